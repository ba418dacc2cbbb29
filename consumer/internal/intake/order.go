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

// first returns the prefetch of the first consumer. In order a consumer of one message would have to
// be replaced. What is on its way to it then comes behind later messages, and with a single active
// consumer those could go to another process.
func (s *Session) first(prefetch int) int {
	if s.Lane.Ordered {
		return prefetch
	}
	return s.suspicion.first(prefetch)
}

// deathsOf returns how often consumers have died of a message that is suspect, else 0. A session in order that meets one
// ends, to begin anew with one message at a time, or in the turn of its lane. It begins with no other message. A session that
// has one message at a time because of suspects goes on, and waits for its turn with that message in hand.
//
// A quorum queue hands out messages that have come back before all others. So all suspects have
// been handled when a message comes for the first time. Until then, the end of a session would put
// its messages behind those that have come back.
func (s *Session) deathsOf(raw amqp.Delivery, now time.Time) int {
	if !s.Lane.Ordered {
		return s.suspicion.judge(s.Queue, raw, s.version, 0, now)
	}
	if !raw.Redelivered && s.Bound.renewals > 0 && s.Hand.Counts().Untried == 0 {
		s.Bound.renewals = 0 // no message is left of those sessions
	}
	deaths := s.suspicion.judge(s.Queue, raw, s.version, s.Bound.renewals, now)
	switch {
	case deaths > 0 && (s.base() > 1 || raw.Redelivered && !s.Bound.suspects && !s.Lane.HasTurn()):
		s.Hand.BeginNoMore(hand.ErrSuspects, now, &s.out)
	case deaths == 0 && !raw.Redelivered && s.Bound.suspects:
		s.Hand.BeginNoMore(hand.ErrCleared, now, &s.out)
	}
	return deaths
}

// age looks at the messages that have waited for long, and returns when to look again.
func (s *Session) age(now time.Time) (again time.Duration, err error) {
	if !s.Lane.Ordered {
		return s.giveBackOld(now)
	}
	limit, age := max(s.BeginLimit(), s.Timeout.HoldLimit()), s.oldest(now)
	if why, since := s.Hand.Ends(); why != "" {
		return s.ageAtTheEnd(s.Timeout.LeaveLimit(), age, why, since, now)
	}
	// No message begins late: the session ends instead, when it is next. So a message may wait for
	// longer here. Its key may be held, and no other key shall stand still for it. And a message that is
	// held ends the session first.
	limit += limit / 16
	lane := s.Lane.State(now)
	again = max(limit-age, limit/16)
	if s.Bound.most > 0 || lane.Held > 0 {
		again = min(again, durations.BoundRises)
	}
	switch {
	case s.Bound.most > 0 && lane.Open && lane.Held > 0 && lane.Held == lane.Busy && s.busy(): // the bound keeps other keys away
		return s.leave(hand.ErrHeld, now)
	case age >= limit && (lane.Held > 0 || !lane.Open):
		return s.leave(hand.ErrHeld, now)
	case age >= limit:
		return s.leave(hand.ErrWaited, now)
	case lane.Open && lane.Held == 0 && !s.again && s.Bound.mayRise(s.Handled.Load(), age, s.BeginLimit(), now): // a held message would go back for it
		return s.leave(hand.ErrKeptUp, now)
	}
	return again, nil
}

// leave has the session end, and looks at that end from then on.
func (s *Session) leave(why hand.Stall, now time.Time) (again time.Duration, err error) {
	s.Hand.BeginNoMore(why, now, &s.out)
	return durations.EndLook, s.renewed()
}

// ageAtTheEnd is age for a session that ends when its handlers have returned. One that ends for a larger
// bound goes on if they do not soon.
func (s *Session) ageAtTheEnd(limit, age time.Duration, why hand.Stall, since, now time.Time) (again time.Duration, err error) {
	again = max(limit-age, limit/16)
	if age >= limit {
		s.Hand.Cancel(why) // handlers that are at work are told to end
		return again, nil
	}
	if why == hand.ErrKeptUp && !s.Bound.mayAwait(now.Sub(since)) && s.Hand.BeginAgain(why, now, &s.out) {
		s.Bound.stay(now)
	}
	return min(again, durations.EndLook), nil
}

// visits visits the queue if there was no sign for long. A visit may take a message. In order that
// must be the next one when it is back: nothing is settled meanwhile, or the broker would send the one
// after it.
func (s *Session) visits() {
	switch {
	case !s.Lane.Ordered:
		s.live.look(s.busy())
	case s.live.look(s.Hand.Counts().Unsettled > 0):
		s.Hand.BeginNoMore(hand.Visiting, time.Now(), &s.out)
	}
	s.Signs.Alive(s.live.sign)
}

// renewed returns why a session ends that has no message left that a worker has, or that a
// visit may have; nil if it does not. It does not wait for handlers of former sessions.
//
// Messages that have used up half of the delivery limit go to the end of the queue before,
// as copies; not so where consumers may have died of them: nobody knows of which, and a copy would
// begin to count anew.
func (s *Session) renewed() error {
	if s.live.isVisiting() {
		return nil
	}
	why := s.Hand.Ended()
	if why == "" {
		return nil
	}
	if oldest, goesBack := s.Hand.Oldest(); oldest != nil && !goesBack && returnsOf(oldest) >= s.limit()/2 && why != hand.ErrSuspects {
		s.Lane.TakeBack(0, true, time.Now(), &s.out)
		return s.renewed() // nobody tells, if there is no copy to wait for
	}
	s.bound(why, time.Now())
	return why
}

// left returns why a session ends whose ctx has ended.
func (s *Session) left(ctx context.Context) error {
	err := context.Cause(ctx)
	s.bound(err, time.Now())
	return err
}

// bound sets the bound of the next sessions.
//
// Where a handler of a former session has not returned, messages wait for its key however
// small the prefetch is.
func (s *Session) bound(why error, now time.Time) {
	e := ending{why: why, alone: s.base() == 1}
	if errors.Is(why, hand.ErrWaited) {
		oldest, _ := s.Hand.Oldest()
		e.vain = errors.Is(context.Cause(s.Hand.Stop), hand.ErrWaited) || oldest != nil && returnsOf(oldest) >= s.fewReturns() && s.Lane.Busy() == 0
	}
	s.Bound.ends(e, s.Prefetch.Base, s.Handled.Load(), now)
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
