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

// view is what the prefetch of a session follows.
type view struct {
	prefetch  int       // of the consumer; 0: there is none
	first     int       // of one that begins
	base      int       // of an open gate
	bounded   bool      // there is a bound
	room      hand.Room // for base
	handled   int64     // messages so far
	suspicion suspicion
	lane      bool // it is asked because the lane may want another number, and not because of a message or the time
}

// next returns the prefetch for now, 0 for no consumer, and whether another consumer is to have it. An
// outage and a pause leave one message or none. It may begin a new measuring.
//
// The prefetch does not grow past keys while there is a bound, because messages have waited for too long, or
// while messages come back that consumers may have died of: each crash would count against thousands, and
// then all of them would be suspect.
func (p *Prefetch) next(v view, now time.Time) (prefetch int, another bool) {
	in, want := v.room, v.prefetch
	switch {
	case !v.lane && (want == 0 || in.Wants < v.base):
		return want, false
	case in.Wants < v.base: // a consumer of one message that is held by now gets no other one
		return in.Wants, in.Wants < v.prefetch || in.Wants == 1 && (v.prefetch == 0 || in.Waiting == 0)
	case v.prefetch == 0:
		return v.first, true
	case v.prefetch < v.base && v.suspicion.oneAtATime():
		return 1, in.Unsettled < v.base && v.suspicion.another(in.Counts, now)
	case v.prefetch < v.base:
		want = v.base
	case p.Fixed:
	case in.Blocked && !v.bounded && !v.suspicion.wary && pastKeys(v.base, in.Counts) > 0:
		return pastKeys(v.base, in.Counts), true
	default:
		waited := time.Duration(0)
		if !in.Oldest.IsZero() {
			waited = now.Sub(in.Oldest)
		}
		want = p.want(want, v.base, v.handled, in.Untried, waited, now)
	}
	return want, want != v.prefetch
}

// heed gives the session the prefetch that its lane wants, and then its messages and handlers.
func (s *Session) heed(now time.Time) error { return s.follow(now, true) }

// adapt gives the session the prefetch that its messages and handlers want, while the gate is open.
func (s *Session) adapt(now time.Time) error { return s.follow(now, false) }

func (s *Session) follow(now time.Time, lane bool) error {
	base := s.base()
	v := view{prefetch: s.prefetch, first: s.first(base), base: base, bounded: s.Bound.most > 0, room: s.Hand.Room(base),
		handled: s.Handled.Load(), suspicion: s.suspicion, lane: lane}
	prefetch, another := s.Prefetch.next(v, now)
	switch {
	case !another:
		return nil
	case s.prefetch > 0 && v.room.Wants == base:
		return s.replace(prefetch)
	case s.prefetch > 0:
		if err := s.suspend(); err != nil || prefetch == 0 {
			return err
		}
	}
	return s.begin(prefetch)
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
