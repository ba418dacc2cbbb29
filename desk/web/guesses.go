package web

import (
	"net/netip"
	"time"
)

const (
	// An address has ten guesses, and one more every ten seconds: 8,650 a day.
	guessBurst = 10
	guessEvery = 10 * time.Second
	// All addresses together have a hundred, and one more a second.
	allBurst = 100
	allEvery = time.Second
	// maxGuessers bounds the addresses that are kept in mind.
	maxGuessers = 1000
)

// guesses bounds how often wrong tokens and passwords are tried, by each address and by all
// together. It keeps no request waiting: a client that hangs up has guessed all the same.
type guesses struct {
	all bucket
	of  map[netip.Prefix]guesser
}

// guesser is what is known of an address.
type guesser struct {
	bucket
	right time.Time // the last right answer
}

// bucket counts wrong answers: it is the time at which all guesses are there again.
type bucket time.Time

// wait returns how long it is until a guess is there; 0 if there is one.
func (b bucket) wait(now time.Time, burst int, every time.Duration) time.Duration {
	return max(0, time.Time(b).Add(-time.Duration(burst-1)*every).Sub(now))
}

// without returns the bucket with one guess less.
func (b bucket) without(now time.Time, every time.Duration) bucket {
	if time.Time(b).Before(now) {
		b = bucket(now)
	}
	return bucket(time.Time(b).Add(every))
}

// try notes an answer, and returns 0 if it counts. Else it returns how long the address must
// wait, whether or not the answer is right. An address that was right within sessionFor
// does not wait for the guesses of others.
func (g *guesses) try(from netip.Prefix, right bool, now time.Time) (wait time.Duration) {
	one := g.of[from]
	wait = one.wait(now, guessBurst, guessEvery)
	if now.Sub(one.right) >= sessionFor {
		wait = max(wait, g.all.wait(now, allBurst, allEvery))
	}
	switch {
	case wait > 0:
		return wait
	case right:
		one.right = now
	default:
		one.bucket, g.all = one.without(now, guessEvery), g.all.without(now, allEvery)
	}
	g.keep(from, one, now)
	return 0
}

// keep keeps an address in mind. If there are too many, one is forgotten: one of which
// there is nothing to know any more, or else the one of which there is for the shortest time.
func (g *guesses) keep(from netip.Prefix, one guesser, now time.Time) {
	if g.of == nil {
		g.of = map[netip.Prefix]guesser{}
	}
	if _, known := g.of[from]; !known && len(g.of) >= maxGuessers {
		var oldest netip.Prefix
		var least time.Time
		for address, other := range g.of {
			until := other.right.Add(sessionFor)
			if full := time.Time(other.bucket); full.After(until) {
				until = full
			}
			if !until.After(now) {
				delete(g.of, address)
			} else if least.IsZero() || until.Before(least) {
				oldest, least = address, until
			}
		}
		if len(g.of) >= maxGuessers {
			delete(g.of, oldest)
		}
	}
	g.of[from] = one
}

// guesserOf is whom an address belongs to: of version 6 its network of 64 bits. Whatever is
// no address is one guesser.
func guesserOf(remote string) netip.Prefix {
	a, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	ip := a.Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits)
	return p
}
