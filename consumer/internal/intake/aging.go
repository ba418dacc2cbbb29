package intake

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/route"
)

// A message that waits too long for a worker would leave its handler too little time before
// the broker takes it away, and in the end none. So before that all messages that no worker
// has go back to the queue and come again. A return may count towards the delivery limit,
// and if there are many, fewer messages are sent ahead.

// Why an ordered session ends to begin anew. Only the end of the channel puts messages back
// into their order, and only another session has another prefetch.
var (
	ErrWaited = errors.New("messages have waited too long for a handler")
	ErrKeptUp = errors.New("handlers keep up with their messages, and more are to be sent ahead")

	// See Session.judge.
	ErrSuspects = errors.New("consumers may have died of these messages, and one at a time is to be in hand")
	ErrCleared  = errors.New("no message is left of which consumers may have died, and more are to be sent ahead")
)

// Renews reports whether a session has ended to begin anew.
func Renews(err error) bool {
	for _, why := range []error{ErrWaited, hand.ErrHeld, ErrKeptUp, ErrSuspects, ErrCleared} {
		if errors.Is(err, why) {
			return true
		}
	}
	return false
}

const (
	// riseAfter is how long a bound stays before a larger one is tried for the first time.
	riseAfter = time.Minute

	// riseMessages is how many times the bound must have been handled before.
	riseMessages = 8

	// riseShare is the share of the time between two tries in which all keys may stand
	// still for a larger bound: until the handlers of an ordered session have returned.
	riseShare = 8
)

// Bound bounds the prefetch for the sessions of one Run, one after the other. The zero value
// is no bound.
type Bound struct {
	most    int // 0: no bound
	since   time.Time
	handled int64         // at that time
	after   time.Duration // until a larger one is tried

	suspects bool // it is 1 until all suspects have been handled
	renewals int  // sessions that ended to begin anew while messages came back that may not be settled
}

// of returns what the bound leaves of a prefetch.
func (b *Bound) of(prefetch int) int {
	if b.most == 0 {
		return prefetch
	}
	return min(prefetch, b.most)
}

// set sets the bound, to 1 at least.
func (b *Bound) set(most int, handled int64, now time.Time) {
	b.most, b.since, b.handled, b.after = max(1, most), now, handled, riseAfter
}

// Lift takes the bound away, but not that of suspects: a crash would count against all messages
// in hand.
func (b *Bound) Lift() {
	if !b.suspects {
		b.most = 0
	}
}

// mayRise reports whether the handlers keep up with the bound. age is that of the message
// that waits longest, and limit how old it may become.
func (b *Bound) mayRise(handled int64, age, limit time.Duration, now time.Time) bool {
	return b.most > 0 && now.Sub(b.since) >= b.after && age < limit/4 && handled-b.handled >= int64(riseMessages*b.most)
}

// mayAwait reports whether handlers may still be awaited for a larger bound. With a bound of
// 1 nothing else could be handled meanwhile.
func (b *Bound) mayAwait(d time.Duration) bool { return b.most == 1 || d < b.after/riseShare }

// stay has a larger bound tried later.
func (b *Bound) stay(now time.Time) { b.since, b.after = now, 2*b.after }

// rise doubles the bound.
func (b *Bound) rise(prefetch int, handled int64, now time.Time) {
	b.set(2*b.most, handled, now)
	if b.most >= prefetch {
		b.most = 0
	}
}

// age gives back the messages that wait for a worker if one has waited too long, and
// returns when to look again. In a session in order no message begins late: the session ends
// instead, see end. So there a message may wait for longer. Its key may be held, and no other
// key shall stand still for it.
func (s *Session) age(now time.Time) (again time.Duration, err error) {
	limit, age := s.BeginLimit(), time.Duration(0)
	if oldest, _ := s.Hand.Oldest(); oldest != nil {
		age = now.Sub(oldest.Received)
	}
	lane := s.Lane.State(now)
	rises := s.ending == nil && lane.Open && s.Bound.mayRise(s.Handled.Load(), age, limit, now)
	if s.Ordered { // a held message would go back for it
		rises = rises && !s.again && !lane.Holds
	}
	switch {
	case s.ending != nil:
		limit = s.Timeout.LeaveLimit()
	case s.Ordered:
		limit = max(limit, s.Timeout.HoldLimit())
		limit += limit / 16 // a message that is held ends the session first
	}
	again = max(limit-age, limit/16)
	if s.Bound.most > 0 || s.Ordered && lane.Holds {
		again = min(again, riseAfter)
	}
	full := s.Ordered && s.ending == nil && lane.Open && s.busy() && lane.OnlyHolds
	s.Signs.noteFull(full, now)
	switch {
	case full && s.Bound.most > 0: // the bound keeps other keys away
		return time.Second, s.end(hand.ErrHeld)
	case s.ending != nil && age >= limit:
		s.forced = true
		s.Hand.Cancel(s.ending) // handlers that are at work are told to end
	case s.ending != nil:
		s.giveUpRising(now)
		return min(again, time.Second), s.renewed() // nothing tells of a copy that is confirmed
	case age >= limit:
		return again, s.renew(now)
	case rises && s.Ordered:
		return time.Second, s.end(ErrKeptUp)
	case rises:
		s.Bound.rise(s.configured, s.Handled.Load(), now)
		s.Prefetch.Base = s.Bound.of(s.configured)
		return again, s.adapt(now)
	}
	return again, nil
}

// renew gives back the messages that no worker has, to consume them again.
func (s *Session) renew(now time.Time) error {
	switch lane := s.Lane.State(now); {
	case s.Ordered && (lane.Holds || !lane.Open):
		return s.end(hand.ErrHeld)
	case s.Ordered:
		return s.end(ErrWaited)
	}
	s.Bound.set(max(s.Prefetch.Base/2, min(s.Prefetch.Base, len(s.Hand.Taken()))), s.Handled.Load(), now)
	if err := s.suspend(); err != nil {
		return err
	}
	s.Prefetch.Base = s.Bound.of(s.configured)
	return s.heed(now)
}

// end has an ordered session end when the messages that workers have are settled, because
// one is about to go back.
func (s *Session) end(why error) error {
	if s.ending == nil || s.rising() {
		s.ending, s.since = why, time.Now()
	}
	if !s.rising() {
		s.Hand.KeepForOrder()
	}
	s.Hand.BeginNoMore(s.ending, time.Now(), &s.out)
	return s.renewed()
}

// rising reports whether the session ends only to make room for one with a larger bound. Such
// a session may go on instead.
func (s *Session) rising() bool { return s.ending == ErrKeptUp && !s.settled } //nolint:errorlint // it is a mark

// giveUpRising lets such a session go on if its handlers have not returned soon.
func (s *Session) giveUpRising(now time.Time) {
	if s.rising() && !s.Bound.mayAwait(now.Sub(s.since)) && s.Lane.BeginAgain(ErrKeptUp, now, &s.out) {
		s.ending = nil
		s.Bound.stay(now)
	}
}

// renewed returns why a session ends that has no message left that a worker has, or that a
// visit may have; nil if it does not. It does not wait for handlers of former sessions.
//
// Messages that have used up half of the delivery limit go to the end of the queue before,
// as copies; not so where consumers may have died of them: nobody knows of which, and a copy would
// begin to count anew.
func (s *Session) renewed() error {
	if s.ending == nil || s.live.visiting || s.Hand.IsAtWork() {
		return nil
	}
	s.settled = true
	s.Hand.KeepForOrder()
	if oldest, goesBack := s.Hand.Oldest(); oldest != nil && !goesBack && returnsOf(oldest) >= s.limit()/2 && !errors.Is(s.ending, ErrSuspects) {
		s.Lane.TakeBack(0, true, time.Now(), &s.out)
		return nil
	}
	s.bound(s.ending, time.Now())
	return s.ending
}

// left returns why a session ends whose ctx has ended.
func (s *Session) left(ctx context.Context) error {
	err := context.Cause(ctx)
	s.bound(err, time.Now())
	return err
}

// bound sets the bound of the next sessions. If messages have waited too long, none are sent
// ahead in two cases: the messages that go back have used up a part of their delivery limit
// that way, or handlers had to be told to end. A quorum queue hands messages that have
// come back out before all others, and so in their order only if none comes back again
// before the next session has had them all. So the prefetch stays the same at first, and
// then is so small that none waits. For messages that are held a small prefetch would be no
// help, and other keys would stand still: there is no bound after them.
//
// Where a handler of a former session has not returned, messages wait for its key however
// small the prefetch is.
func (s *Session) bound(why error, now time.Time) {
	if Renews(why) {
		s.Bound.renewals++
	}
	switch {
	case errors.Is(why, ErrSuspects):
		s.Bound.set(1, s.Handled.Load(), now)
		s.Bound.suspects = true
		return
	case errors.Is(why, ErrCleared):
		s.Bound.suspects = false
		s.Bound.Lift()
		return
	case errors.Is(why, ErrKeptUp):
		s.Bound.rise(s.configured, s.Handled.Load(), now)
		return
	case errors.Is(why, hand.ErrHeld):
		s.Bound.Lift()
		return
	case !errors.Is(why, ErrWaited):
		return
	}
	oldest, _ := s.Hand.Oldest()
	if s.forced || oldest != nil && returnsOf(oldest) >= s.fewReturns() && s.Lane.Busy() == 0 {
		s.Bound.set(1, s.Handled.Load(), now)
	}
}

// fewReturns returns how often messages may come back that have waited. The limit of a queue
// of others may be small.
func (s *Session) fewReturns() int {
	if s.DeliveryLimit == 0 {
		return 1
	}
	return s.DeliveryLimit / 4
}

// limit returns the delivery limit that a quorum queue may have. Others may have declared
// it, with a limit or with that of 4.0 and later.
func (s *Session) limit() int { return cmp.Or(s.DeliveryLimit, route.DeliveryLimit) }

// returnsOf returns how often a message has come back, as quorum queues count.
func returnsOf(m *hand.Message) int {
	n, _ := header.Count(m.Raw.Headers[header.DeliveryCount])
	return int(n)
}
