package intake

import (
	"cmp"
	"context"
	"errors"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/route"
)

// All of order. Only the end of the channel puts messages back into their places. So a session in
// order gives nothing back while it lasts, and never replaces its consumer: it ends to begin anew.
// Other files of this package do not ask whether a session keeps an order.

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

// stage is how far the end of an ordered session has come.
type stage uint8

const (
	stays  stage = iota
	rises        // it ends only to make room for one with a larger bound, and may stay
	leaves       // no other message begins to be handled
	over         // no worker has a message, and the session ends in any case
	forced       // handlers are told to end
)

// end is the end of an ordered session.
type end struct {
	stage stage
	why   error
	since time.Time
}

// first returns the prefetch of the first consumer. In order a consumer of one message would have to
// be replaced. What is on its way to it then comes behind later messages, and with a single active
// consumer those could go to another process.
func (s *Session) first(prefetch int) int {
	if s.Lane.Ordered {
		return prefetch
	}
	return s.suspicion.first(prefetch)
}

// isSuspect reports whether a message is suspect. A session in order that has to begin anew for it
// begins with no other message.
//
// A quorum queue hands out messages that have come back before all others. So all suspects have
// been handled when a message comes for the first time. Until then, the end of a session would put
// its messages behind those that have come back.
func (s *Session) isSuspect(raw amqp.Delivery, now time.Time) bool {
	if !s.Lane.Ordered {
		return s.suspicion.judge(s.Queue, raw, s.version, 0, now)
	}
	if !raw.Redelivered && s.Bound.renewals > 0 && s.Hand.Counts().Untried == 0 {
		s.Bound.renewals = 0 // no message is left of those sessions
	}
	suspect := s.suspicion.judge(s.Queue, raw, s.version, s.Bound.renewals, now)
	switch {
	case suspect && s.Prefetch.Base > 1:
		s.Hand.EndInOrder(ErrSuspects, now, &s.out)
	case !suspect && !raw.Redelivered && s.Bound.suspects:
		s.Hand.EndInOrder(ErrCleared, now, &s.out)
	}
	return suspect
}

// age looks at the messages that have waited for long, and returns when to look again.
func (s *Session) age(now time.Time) (again time.Duration, err error) {
	if !s.Lane.Ordered {
		return s.giveBackOld(now)
	}
	limit, age := max(s.BeginLimit(), s.Timeout.HoldLimit()), s.oldest(now)
	if s.end.stage != stays {
		return s.ageAtTheEnd(s.Timeout.LeaveLimit(), age, now)
	}
	// No message begins late: the session ends instead, when it is next. So a message may wait for
	// longer here. Its key may be held, and no other key shall stand still for it. And a message that is
	// held ends the session first.
	limit += limit / 16
	lane := s.Lane.State(now)
	again = max(limit-age, limit/16)
	if s.Bound.most > 0 || lane.Holds {
		again = min(again, durations.BoundRises)
	}
	switch {
	case s.Bound.most > 0 && lane.Open && lane.OnlyHolds && s.busy(): // the bound keeps other keys away
		return durations.EndLook, s.leave(hand.ErrHeld)
	case age >= limit && (lane.Holds || !lane.Open):
		return again, s.leave(hand.ErrHeld)
	case age >= limit:
		return again, s.leave(ErrWaited)
	case lane.Open && !lane.Holds && !s.again && s.Bound.mayRise(s.Handled.Load(), age, s.BeginLimit(), now): // a held message would go back for it
		return durations.EndLook, s.leave(ErrKeptUp)
	}
	return again, nil
}

// ageAtTheEnd is age for a session that ends when its handlers have returned.
func (s *Session) ageAtTheEnd(limit, age time.Duration, now time.Time) (again time.Duration, err error) {
	again = max(limit-age, limit/16)
	if age >= limit {
		s.end.stage = forced
		s.Hand.Cancel(s.end.why) // handlers that are at work are told to end
		return again, nil
	}
	s.giveUpRising(now)
	return min(again, durations.EndLook), s.renewed() // nothing tells of a copy that is confirmed
}

// visits visits the queue if there was no sign for long. A visit may take a message. In order that
// must be the next one when it is back: nothing is settled meanwhile, or the broker would send the one
// after it.
func (s *Session) visits() {
	switch {
	case !s.Lane.Ordered:
		s.live.look(s.busy())
	case s.live.look(s.Hand.Counts().Unsettled > 0):
		s.Hand.BeginNoMore(errVisiting, time.Now(), &s.out)
	}
	s.Signs.Alive(s.live.sign)
}

// leave has an ordered session end when the messages that workers have are settled, because
// one is about to go back.
func (s *Session) leave(why error) error {
	if s.end.stage <= rises {
		s.end = end{leaves, why, time.Now()}
		if why == ErrKeptUp { //nolint:errorlint // it is a mark
			s.end.stage = rises
		}
	}
	if s.end.stage > rises {
		s.Hand.KeepForOrder()
	}
	s.Hand.BeginNoMore(s.end.why, time.Now(), &s.out)
	return s.renewed()
}

// giveUpRising lets a session go on that ends for a larger bound, if its handlers have not returned
// soon.
func (s *Session) giveUpRising(now time.Time) {
	if s.end.stage == rises && !s.Bound.mayAwait(now.Sub(s.end.since)) && s.Lane.BeginAgain(ErrKeptUp, now, &s.out) {
		s.end = end{}
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
	if s.end.stage == stays || s.live.isVisiting() || s.Hand.IsAtWork() {
		return nil
	}
	s.end.stage = max(s.end.stage, over)
	s.Hand.KeepForOrder()
	if oldest, goesBack := s.Hand.Oldest(); oldest != nil && !goesBack && returnsOf(oldest) >= s.limit()/2 && !errors.Is(s.end.why, ErrSuspects) {
		s.Lane.TakeBack(0, true, time.Now(), &s.out)
		return nil
	}
	s.bound(s.end.why, time.Now())
	return s.end.why
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
	if s.end.stage == forced || oldest != nil && returnsOf(oldest) >= s.fewReturns() && s.Lane.Busy() == 0 {
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
