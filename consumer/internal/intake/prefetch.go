package intake

import (
	"time"

	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/consumer/internal/hand"
)

// How many messages the broker sends ahead, where Config.Prefetch leaves it to
// the consumer: as many as are handled at a time, and in addition what the
// handlers do in durations.Buffered, so that quick handlers do not wait for the
// network and slow ones do not hoard what other consumers could handle.
const (
	maxPrefetch = 2000

	// Messages are sent ahead after durations.Calm, or when so many messages were handled since,
	// and all that were delivered before are among them: the one that a crash was due to is
	// not in hand.
	calmMessages = 100
)

// Prefetch is what the prefetch of each session follows.
type Prefetch struct {
	Base  int  // Config.Concurrency, or Config.Prefetch
	Fixed bool // it stays so

	began    time.Time // of the measuring
	handled  int64     // at that time
	unsteady time.Time // when a message came last that had been delivered before
	since    int64     // handled until then
	cautious time.Time // until when the prefetch stays small
}

// begin starts the measuring.
func (p *Prefetch) begin(handled int64, now time.Time) {
	p.began, p.handled = now, handled
	p.redelivered(handled, now)
}

// redelivered notes that a message came that had been delivered before.
func (p *Prefetch) redelivered(handled int64, now time.Time) { p.unsteady, p.since = now, handled }

// calm reports whether a crash is unlikely enough to have more sent ahead. untried
// is how many messages that were delivered before no handler has returned from.
func (p *Prefetch) calm(handled int64, untried int, now time.Time) bool {
	return now.Sub(p.unsteady) >= durations.Calm || untried == 0 && handled-p.since >= calmMessages
}

// want returns the prefetch for now, base at least, given how many messages have been handled
// so far, how many that were delivered before no handler has returned from, and how
// long the oldest one has waited for a handler.
func (p *Prefetch) want(prefetch, base int, handled int64, untried int, waited time.Duration, now time.Time) int {
	elapsed := now.Sub(p.began)
	if elapsed < durations.Buffered {
		return prefetch
	}
	rate := float64(handled-p.handled) / elapsed.Seconds()
	p.began, p.handled = now, handled
	if prefetch > base && waited >= durations.Stale {
		p.cautious = now.Add(durations.Cautious)
		return base
	}
	if now.Before(p.cautious) || !p.calm(handled, untried, now) {
		return prefetch
	}
	ahead := min(base+int(rate*durations.Buffered.Seconds()), max(base, maxPrefetch))
	if ahead < 2*prefetch {
		return prefetch // another consumer costs two round trips
	}
	return ahead
}

// base returns the prefetch of an open gate that the session starts with.
func (s *Session) base() int { return s.Bound.of(s.Prefetch.Base) }

// adapt gives the session the prefetch that its messages and handlers want, while the gate is open.
//
// It does not grow past keys while there is a bound, because messages have waited for too long, or
// while messages come back that consumers may have died of: each crash would count against thousands, and
// then all of them would be suspect.
func (s *Session) adapt(now time.Time) error {
	base := s.base()
	in := s.Hand.Room(base)
	want := s.prefetch
	switch {
	case s.prefetch == 0, in.Wants < base:
		return nil // see heed
	case want < base:
		want = max(want, s.suspicion.bound(base, in.Suspects, in.Uncleared, now))
	case s.Prefetch.Fixed:
		return nil
	default:
		if in.Blocked && s.Bound.most == 0 && !s.suspicion.wary {
			if more := pastKeys(base, in.Counts); more > 0 {
				return s.replace(more)
			}
		}
		waited := time.Duration(0)
		if !in.Oldest.IsZero() {
			waited = now.Sub(in.Oldest)
		}
		want = s.Prefetch.want(want, base, s.Handled.Load(), in.Untried, waited, now)
	}
	if want == s.prefetch {
		return nil
	}
	return s.replace(want)
}

// busy reports whether the broker waits for us and not we for it.
func (s *Session) busy() bool { return s.Hand.Counts().Recent >= s.prefetch }

const (
	// maxInHand is how many messages, and how many bytes of their bodies, are in hand at most while
	// the prefetch grows. A message costs about 1 KiB beside its body.
	maxInHand      = 10_000
	maxBytesInHand = 64 << 20
)

// pastKeys returns the prefetch of the next consumer where all messages in hand have a slot or wait
// for their keys: as many as are in hand, so that their number doubles; 0 if there may be no more.
func pastKeys(base int, in hand.Counts) int {
	more := in.Unsettled
	if rest := maxInHand - in.Unsettled; rest <= 2*more {
		more = rest
	}
	if in.Bytes > 0 {
		more = min(more, (maxBytesInHand-in.Bytes)*in.Unsettled/in.Bytes)
	}
	if more < max(base, in.Unsettled/4) {
		return 0 // so few would be used up again at once
	}
	return more
}
