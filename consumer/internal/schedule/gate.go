package schedule

import (
	"math/rand/v2"
	"time"
)

// Outage says when the gate of a lane takes the handlers' failures for an outage of
// something that they all need.
type Outage struct {
	Of       int           // runs of the handler that are looked at, the last ones
	From     int           // of them must have said that it is unavailable; 0: never
	MaxPause time.Duration // between two probes, at most
}

// gate decides whether the messages of a lane are handled: all, none, or one at a
// time to find out whether an outage is over.
type gate struct {
	outage Outage
	paused time.Time // since when by order; zero: not
	out    time.Time // since when there is an outage; zero: there is none

	last        []bool // the last runs: whether each said unavailable
	at          int    // of the oldest of them
	unavailable int    // of them

	probing bool          // a message is handled to find out
	fresh   bool          // the next one is of the queue, and not one that is held
	next    time.Time     // when the next one may be
	pause   time.Duration // after it, if it fails
}

// firstPause is between the beginning of an outage and the first probe.
const firstPause = 200 * time.Millisecond

// note notes that a run of the handler has ended, which was a probe or not, the first of
// its message or not, and said unavailable or not. It reports whether an outage has begun
// or is over. Only first runs make an outage: one message that is held and handled again
// and again says nothing of others.
func (g *gate) note(probe, first, unavailable bool, now time.Time) (changed bool) {
	if !g.out.IsZero() {
		if probe {
			g.probing = false
		}
		switch {
		case !unavailable:
			g.out, g.probing = time.Time{}, false
			return true
		case probe:
			g.next = now.Add(g.pause/2 + rand.N(g.pause)) // processes shall not probe together
			g.pause = min(g.pause*3/2, g.outage.MaxPause*2/3)
		}
		return false
	}
	if g.outage.From == 0 || !first {
		return false
	}
	if len(g.last) < g.outage.Of {
		g.last = append(g.last, unavailable)
	} else {
		if g.last[g.at] {
			g.unavailable--
		}
		g.last[g.at] = unavailable
		g.at = (g.at + 1) % len(g.last)
	}
	if unavailable {
		g.unavailable++
	}
	if g.unavailable < g.outage.From {
		return false
	}
	g.out, g.next, g.pause = now, now.Add(firstPause), min(2*firstPause, g.outage.MaxPause*2/3)
	g.last, g.at, g.unavailable = g.last[:0], 0, 0
	return true
}

// may reports whether a message may be handled now, and whether it is a probe then. If
// not, again is when to look again, the zero time if time alone changes nothing.
func (g *gate) may(now time.Time) (ok, probe bool, again time.Time) {
	switch {
	case !g.paused.IsZero(), g.probing:
		return false, false, time.Time{}
	case g.out.IsZero():
		return true, false, time.Time{}
	case now.Before(g.next):
		return false, false, g.next
	}
	return true, true, time.Time{}
}

// isOpen reports whether all messages are handled.
func (g *gate) isOpen() bool { return g.paused.IsZero() && g.out.IsZero() }
