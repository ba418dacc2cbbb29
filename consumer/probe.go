package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/transport"
)

const (
	// probeAfter is how long a session waits for a delivery before it asks the
	// queue for a sign, and how long between two probes.
	probeAfter = 10 * time.Second

	// silentAfter is how old the latest sign is when the consumer counts as
	// unhealthy: a probe and 5 s without its answer.
	silentAfter = probeAfter + 5*time.Second

	// probeLimit is how long the queue has to answer before the socket is given
	// up. The election of a leader takes seconds, and must not cost one.
	probeLimit = 15 * time.Second

	// probePriority is below that of every consumer which wants messages.
	probePriority = -1000
)

var errUnanswered = connection.WithClass(fmt.Errorf("the queue has not answered for %v: its node may be cut off from its cluster, or the queue be without a majority", probeLimit), connection.Transient)

// liveness looks for signs that the queue of a session delivers.
type liveness struct {
	timer   *time.Timer
	sign    time.Time    // when a delivery came, the queue answered, or the broker last waited for us
	answers chan error   // of the probe; nil for a good one
	probing bool         // an answer is to come
	probe   func() error // asks the queue for a sign
}

func newLiveness(probe func() error) *liveness {
	return &liveness{timer: time.NewTimer(probeAfter), sign: time.Now(), answers: make(chan error, 1), probe: probe}
}

// look is called by the timer. It probes the queue if there was no sign for long. A
// busy consumer, which has as many messages as it may have, is not probed: the queue
// would give the next message to the probe.
func (l *liveness) look(busy bool) {
	idle := time.Since(l.sign)
	switch {
	case idle < probeAfter:
		l.timer.Reset(probeAfter - idle)
		return
	case busy:
		l.sign = time.Now()
	case !l.probing:
		l.probing = true
		go func() { l.answers <- l.probe() }() // the probe is bounded, and answered takes the result
	}
	l.timer.Reset(probeAfter)
}

// answered takes the answer of a probe.
func (l *liveness) answered(err error) {
	l.probing = false
	if err == nil {
		l.sign = time.Now()
	}
	l.timer.Reset(probeAfter)
}

// close waits for the probe that is under way.
func (l *liveness) close() {
	l.timer.Stop()
	if l.probing {
		<-l.answers //nolint:errcheck // the session is over
	}
}

// probeQueue asks a queue to accept one more consumer, and cancels that one. It
// needs permission to read only, and every type of queue answers it only when it
// can deliver. A passive declare does not show that: on 4.3, a leader that is cut
// off from all its followers answers it (measured). The low priority leaves the
// messages to the real consumer, which has room.
//
// The probe has a channel of its own, which a refusal closes. Without an answer it
// closes the socket: the next connection goes to another node, if there is one.
func probeQueue(ctx context.Context, conn *connection.Conn, queue, tag string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, probeLimit, errUnanswered)
	defer cancel()
	channel, err := conn.Session(ctx, connection.Consume)
	if err != nil {
		return err
	}
	defer func() { _ = channel.Close() }() // what is on it goes back to the queue
	err = visit(ctx, channel, queue, tag)
	if errors.Is(err, errUnanswered) {
		transport.Of(channel).GiveUp(err)
	}
	if err != nil {
		return consumeError(queue, err)
	}
	return nil
}

// visit starts a consumer and cancels it. Every type of queue answers that itself,
// and a quorum queue after it has done all that it was told on the channel before.
func visit(ctx context.Context, channel *connection.Session, queue, tag string) error {
	var strays <-chan amqp.Delivery // a call that is left may still write to it
	err := channel.Do(ctx, func(ch *amqp.Channel) (err error) {
		if err = ch.Qos(1, 0, false); err != nil {
			return err
		}
		// Without waiting: the answer to the cancel comes after the consume, and
		// in the time of a round trip messages could come.
		strays, err = ch.Consume(queue, tag, false, false, false, true, amqp.Table{"x-priority": int32(probePriority)})
		if err != nil {
			return err
		}
		return ch.Cancel(tag, false)
	})
	if err != nil {
		return err
	}
	for raw := range strays {
		// Not left to the closing of the channel, which counts towards the delivery
		// limit of a 4.3 broker.
		_ = channel.Channel().Nack(raw.DeliveryTag, false, true)
	}
	return nil
}

// ask asks the queue of a lane whether it has messages. Its channel is one that a
// refusal may close: on broker 4.3.0 the user needs permission to configure.
func (s *session) ask() {
	s.tasks.Go(func() {
		began := time.Now()
		ctx, cancel := context.WithTimeout(s.from.settling, settlingFor)
		defer cancel()
		ready, err := s.count(ctx)
		s.workers.asked(ready, time.Since(began), err)
	})
}

// count returns how many messages of the queue are not sent to anybody.
func (s *session) count(ctx context.Context) (ready int, err error) {
	if s.counting == nil || s.counting.Err() != nil {
		if s.counting, err = s.conn.Session(ctx, connection.Consume); err != nil {
			return 0, err
		}
	}
	var q amqp.Queue // a call that is left may still write to it
	err = s.counting.Do(ctx, func(ch *amqp.Channel) (err error) {
		q, err = ch.QueueDeclarePassive(s.queue, true, false, false, false, nil)
		return err
	})
	if err != nil {
		return 0, err
	}
	return q.Messages, nil
}
