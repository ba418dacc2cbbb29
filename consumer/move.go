package consumer

import (
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// moving is a delivery that goes to its next place as a copy. It is acked when
// the copy is confirmed.
type moving struct {
	entry    *unsettled
	key      string // that it was delivered with
	delivery *Delivery
	ending   ending
	to       topology.Address
	end      Settlement // where it is then

	pending  *confirm.Pending
	sent     time.Time // the copy, lately
	deadline time.Time // of the tries, where a nack keeps the message
}

// moveOn sends the copy of a delivery to where it is to end, and leaves the
// confirm to whoever awaits those of the others.
func (s *session) moveOn(j job, d *Delivery, e ending, to topology.Address, copy amqp.Publishing, end Settlement) {
	m := &moving{entry: j.entry, key: j.raw.RoutingKey, delivery: d, ending: e, to: to, end: end, deadline: time.Now().Add(s.cfg.CopyTimeout)}
	if err := s.send(m, copy); err != nil {
		s.insist(m, copy, err)
		return
	}
	s.copies.await(s, m)
}

// send writes a copy, which leaves with the Flush of m.pending.
func (s *session) send(m *moving, copy amqp.Publishing) (err error) {
	if limit := s.channel.FrameSize(); limit > 0 && xdeath.HeaderSize(copy) > limit-frameOverhead {
		return errTooLarge
	}
	m.pending, err = s.publisher.Write(s.settling, confirm.Message{
		Exchange:   m.to.Exchange,
		Key:        m.to.Key,
		Publishing: copy,
		Deadline:   time.Now().Add(s.cfg.CopyTimeout),
	})
	m.sent = time.Now()
	if err == nil && s.cfg.Trace.Copied != nil {
		m.pending.Flush() // the hook may rely on it, and comes before that of the confirm
		s.cfg.Trace.copied(m.delivery, m.to)
	}
	return err
}

// errTooLarge is about headers that a producer outside the SDK has filled up.
// To send them would end the connection.
var errTooLarge = errors.New("the headers of the copy do not fit in a frame")

// frameOverhead is what a frame needs beside its payload.
const frameOverhead = 8

// ackMoved acks deliveries whose copies are confirmed.
func (s *session) ackMoved(moved ...*moving) {
	entries := make([]*unsettled, len(moved))
	for i, m := range moved {
		s.cfg.Trace.confirmed(m.delivery, m.to)
		entries[i] = m.entry
	}
	err := s.acks.ack(entries...)
	for _, m := range moved {
		s.settled(m.delivery, m.ending, m.end, err)
	}
}

// insist brings a delivery to its end whose copy was sent, or could not be: err.
//
// Without an answer it tries again. A definite refusal, or CopyTimeout, leads
// to a nack where that keeps the message: the broker's own path ends in a wait
// or in the dead-letter queue. Where a nack would delete it, for want of a
// dead-letter exchange or because the dead-letter queue itself is missing, the
// tries go on until the session ends.
func (s *session) insist(m *moving, copy amqp.Publishing, err error) {
	var pauses *backoff.ExponentialBackOff
	for {
		if err == nil {
			err = m.pending.Wait(s.settling)
		}
		if err == nil {
			s.ackMoved(m)
			return
		}
		if s.channel.Err() != nil {
			s.settled(m.delivery, m.ending, m.end, err)
			return
		}
		s.cfg.Logger.Warn("copy not confirmed", "queue", m.delivery.Queue, "message", m.delivery.ID, "to", m.to.String(), "error", err)
		missing := m.to == s.route.DeadLetter && errors.Is(err, confirm.ErrReturned)
		nackKeeps := s.route.HasDLX && !missing
		if _, _, blocked := s.conn.Blocked(); blocked {
			m.deadline = time.Now().Add(s.cfg.CopyTimeout) // an alarm is waited out
		}
		if nackKeeps && (definite(err) || time.Now().After(m.deadline)) {
			s.settled(m.delivery, m.ending, s.byBroker(m.key), s.acks.nack(m.entry, false))
			return
		}
		if pauses == nil {
			pauses = backoff.NewExponentialBackOff(
				backoff.WithInitialInterval(100*time.Millisecond),
				backoff.WithMaxInterval(10*time.Second),
				backoff.WithMaxElapsedTime(0))
		}
		if s.settling.Err() != nil || !s.pause(pauses.NextBackOff()) {
			s.settled(m.delivery, m.ending, Settlement{Place: PlaceQueue}, s.requeue(m.entry))
			return
		}
		if err = s.send(m, copy); err == nil {
			m.pending.Flush()
		}
	}
}

// byBroker returns where a nack without requeue leads a delivery with the key.
func (s *session) byBroker(key string) Settlement {
	if rung := s.route.NackLandsOn(key); rung >= 1 && rung <= len(s.route.Waits) {
		return Settlement{Place: PlaceWait, Rung: rung}
	}
	return Settlement{Place: PlaceDeadLetter}
}

// definite reports whether another try cannot end differently.
func definite(err error) bool {
	return errors.Is(err, errTooLarge) || errors.Is(err, confirm.ErrReturned) || errors.Is(err, confirm.ErrRefused)
}
