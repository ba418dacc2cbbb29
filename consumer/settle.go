package consumer

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v4"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// settle does what the verdict says; e is how the handler ended.
func (s *session) settle(raw amqp.Delivery, u *unsettled, d *Delivery, v verdict, e ending) {
	var end Settlement
	var err error
	switch v.move {
	case moveAck:
		end = Settlement{Place: PlaceDone}
		err = s.acks.ack(u)
	case moveNack:
		end = Settlement{Place: PlaceWait, Rung: v.rung}
		err = s.acks.nack(u, false)
	case moveRequeue:
		end = Settlement{Place: PlaceQueue}
		err = s.requeue(u)
	case moveWait:
		to, copy := s.retryCopy(raw, d, v)
		end, err = s.moveOn(raw, u, d, to, copy, Settlement{Place: PlaceWait, Rung: v.rung})
	case moveDeadLetter:
		to, copy := s.letter(raw, d, v, e)
		end, err = s.moveOn(raw, u, d, to, copy, Settlement{Place: PlaceDeadLetter, Cause: v.cause})
	default:
		panic(fmt.Sprintf("consumer: verdict without a move for message %q", d.ID))
	}
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
		s.cfg.Logger.Info("message discarded", append(about, "reason", e.outcome.Reason)...)
	case PlaceWait:
		if end.Rung > 0 {
			about = append(about, "wait", s.route.Waits[end.Rung-1])
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

// moveOn gets a copy confirmed, then acks. It returns where the message is
// then, or an error if the session is lost.
//
// Without an answer it tries again. A definite refusal, or CopyTimeout, leads
// to a nack where that keeps the message: the broker's own path ends in a wait
// or in the dead-letter queue. Where a nack would delete it, for want of a
// dead-letter exchange or because the dead-letter queue itself is missing, the
// tries go on until the session ends.
func (s *session) moveOn(raw amqp.Delivery, u *unsettled, d *Delivery, to topology.Address, copy amqp.Publishing, end Settlement) (Settlement, error) {
	var pauses *backoff.ExponentialBackOff
	deadline := time.Now().Add(s.cfg.CopyTimeout)
	for {
		err := errTooLarge
		if limit := s.channel.FrameSize(); limit == 0 || xdeath.HeaderSize(copy) <= limit-frameOverhead {
			err = s.publish(d, to, copy)
		}
		if err == nil {
			s.cfg.Trace.confirmed(d, to)
			return end, s.acks.ack(u)
		}
		if s.channel.Err() != nil {
			return end, err
		}
		s.cfg.Logger.Warn("copy not confirmed", "queue", d.Queue, "message", d.ID, "to", to.String(), "error", err)
		missing := to == s.route.DeadLetter && errors.Is(err, confirm.ErrReturned)
		nackKeeps := s.route.HasDLX && !missing
		if _, _, blocked := s.conn.Blocked(); blocked {
			deadline = time.Now().Add(s.cfg.CopyTimeout) // an alarm is waited out
		}
		if nackKeeps && (definite(err) || time.Now().After(deadline)) {
			return s.byBroker(raw), s.acks.nack(u, false)
		}
		if pauses == nil {
			pauses = backoff.NewExponentialBackOff(
				backoff.WithInitialInterval(100*time.Millisecond),
				backoff.WithMaxInterval(10*time.Second),
				backoff.WithMaxElapsedTime(0))
		}
		if s.settling.Err() != nil || !s.pause(pauses.NextBackOff()) {
			return Settlement{Place: PlaceQueue}, s.requeue(u)
		}
	}
}

// errTooLarge is about headers that a producer outside the SDK has filled up.
// To send them would end the connection.
var errTooLarge = errors.New("the headers of the copy do not fit in a frame")

// frameOverhead is what a frame needs beside its payload.
const frameOverhead = 8

// publish gets one copy confirmed.
func (s *session) publish(d *Delivery, to topology.Address, copy amqp.Publishing) error {
	pending, err := s.publisher.Send(s.settling, confirm.Message{
		Exchange:   to.Exchange,
		Key:        to.Key,
		Publishing: copy,
		Deadline:   time.Now().Add(s.cfg.CopyTimeout),
	})
	if err != nil {
		return err
	}
	s.cfg.Trace.copied(d, to)
	return pending.Wait(s.settling)
}

// byBroker returns where a nack without requeue leads.
func (s *session) byBroker(raw amqp.Delivery) Settlement {
	if rung := s.route.NackLandsOn(raw.RoutingKey); rung >= 1 && rung <= len(s.route.Waits) {
		return Settlement{Place: PlaceWait, Rung: rung}
	}
	return Settlement{Place: PlaceDeadLetter}
}

// definite reports whether another try cannot end differently.
func definite(err error) bool {
	return errors.Is(err, errTooLarge) || errors.Is(err, confirm.ErrReturned) || errors.Is(err, confirm.ErrRefused)
}
