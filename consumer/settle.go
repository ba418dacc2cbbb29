package consumer

import (
	"fmt"
	"log/slog"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// settle does what the verdict says; e is how the handler ended. The delivery is
// settled when it returns, or is in the hands of who awaits its copy's confirm.
func (s *session) settle(j job, d *Delivery, v verdict, e ending) {
	switch v.move {
	case moveAck:
		s.settled(d, e, Settlement{Place: PlaceDone}, s.acks.ack(j.entry))
	case moveNack:
		s.settled(d, e, Settlement{Place: PlaceWait, Rung: v.rung}, s.acks.nack(j.entry, false))
	case moveRequeue:
		s.settled(d, e, Settlement{Place: PlaceQueue}, s.requeue(j.entry))
	case moveWait:
		to, copy := s.retryCopy(j.raw, d, v)
		s.moveOn(j, d, e, to, copy, Settlement{Place: PlaceWait, Rung: v.rung})
	case moveDeadLetter:
		to, copy := s.letter(j.raw, d, v, e)
		s.moveOn(j, d, e, to, copy, Settlement{Place: PlaceDeadLetter, Cause: v.cause})
	default:
		panic(fmt.Sprintf("consumer: verdict without a move for message %q", d.ID))
	}
}

// settled tells where a message went, and gives its place to the next one.
func (s *session) settled(d *Delivery, e ending, end Settlement, err error) {
	defer s.leave()
	if err != nil {
		// The session is lost: the broker has the delivery back.
		end = Settlement{Place: PlaceQueue}
	}
	s.log(d, e, end)
	s.cfg.Trace.settled(d, end)
}

// requeue gives a delivery back. While Run stops it waits until the fetching
// has: the message would come back here at once, and before 4.3 each return
// counts towards the delivery limit.
func (s *session) requeue(u *unsettled) error {
	if s.stop.Err() != nil {
		select {
		case <-s.quiet:
		case <-s.channel.Done():
		}
	}
	return s.acks.nack(u, true)
}

// log tells where a message went that is not simply done.
func (s *session) log(d *Delivery, e ending, end Settlement) {
	if end.Place == PlaceDone && e.err == nil || !s.cfg.Logger.Enabled(s.work, slog.LevelError) {
		return // most messages, and all of a silent logger
	}
	about := []any{"queue", d.Queue, "message", d.ID, "attempt", d.Attempt}
	if e.err != nil {
		about = append(about, "error", e.text)
	}
	if panicked, ok := e.err.(*PanicError); ok { //nolint:errorlint // only attempt makes one, unwrapped
		about = append(about, "stack", string(panicked.Stack))
	}
	switch end.Place {
	case PlaceDone:
		s.cfg.Logger.Info("message discarded", "queue", d.Queue, "message", d.ID, "attempt", d.Attempt, "reason", e.outcome.Reason)
	case PlaceWait:
		if end.Rung > 0 {
			about = append(about, "wait", s.route.Waits[end.Rung-1])
		}
		if e.err == nil { // not handled, see tooEarly
			s.cfg.Logger.Info("message not due yet, it is sent to a wait again", about...)
			return
		}
		s.cfg.Logger.Warn("attempt failed, the message is sent to its wait", about...)
	case PlaceDeadLetter:
		s.cfg.Logger.Error("message dead-lettered", append(about, "cause", string(end.Cause))...)
	case PlaceQueue:
		s.cfg.Logger.Info("message left to its queue", about...)
	}
}

func (s *session) retryCopy(raw amqp.Delivery, d *Delivery, v verdict) (topology.Address, amqp.Publishing) {
	ended := d.Attempt
	if v.unspent {
		ended--
	}
	return s.route.WaitAt[v.rung-1], xdeath.Retry(raw, xdeath.RetryCopy{
		Queue:     s.route.Queue,
		Returned:  s.returned(raw),
		Attempts:  ended,
		At:        time.Now(),
		NotBefore: v.notBefore,
		User:      s.channel.User(),
	})
}

func (s *session) letter(raw amqp.Delivery, d *Delivery, v verdict, e ending) (topology.Address, amqp.Publishing) {
	failure := xdeath.Failure{
		Cause:     v.cause,
		Error:     e.text,
		ErrorType: errorType(e.err),
		At:        time.Now(),
		Host:      s.host,
	}
	if panicked, ok := e.err.(*PanicError); ok { //nolint:errorlint // only attempt makes one, unwrapped
		failure.Stack = string(panicked.Stack)
	}
	return s.route.DeadLetter, xdeath.DeadLetter(raw, xdeath.Letter{
		Queue:    s.route.Queue,
		Returned: s.returned(raw),
		Attempts: d.Attempt,
		User:     s.channel.User(),
		Failure:  failure,
	})
}

// returned reports whether what our headers say of the past belongs to this
// life of the message.
func (s *session) returned(raw amqp.Delivery) bool {
	return !s.route.Ours() || s.route.Returned(raw.Exchange)
}

// errorType names the type of the error that a handler steered with, or
// returned.
func errorType(err error) string {
	for {
		s, ok := err.(*steering) //nolint:errorlint // what the user wrapped around it is the user's type
		if !ok {
			return fmt.Sprintf("%T", err)
		}
		err = s.cause
	}
}
