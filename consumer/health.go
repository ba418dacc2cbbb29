package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	// askAfter is how long a session waits for a delivery before it asks the
	// queue for a sign, and how long between two questions.
	askAfter = 10 * time.Second

	// silentAfter is how old the latest sign is when the consumer counts as
	// unhealthy: a question and 5 s without its answer.
	silentAfter = askAfter + 5*time.Second

	// askLimit is how long the queue has to answer before the socket is given
	// up. The election of a leader takes seconds, and must not cost one.
	askLimit = 15 * time.Second

	// askPriority is below that of every consumer which wants messages.
	askPriority = -1000
)

var (
	errNotRunning = errors.New("consumer: Run is not running")
	errStarting   = errors.New("consumer: Run does not consume yet")
	errStopping   = errors.New("consumer: Run is stopping")
	errUnanswered = fmt.Errorf("the queue has not answered for %v: its node may be cut off from its cluster, or the queue be without a majority", askLimit)
)

// health is what a Consumer knows of its consuming.
type health struct {
	mu    sync.Mutex
	fault error     // why nothing is consumed
	sign  time.Time // the latest sign that the queue delivers, if there is no fault
	since time.Time // when the consuming was interrupted; zero while it is not
	cause string    // of the interruption, lately
}

// interrupted says that nothing is consumed any more, and returns since when,
// and whether it has been told of the same cause before.
func (h *health) interrupted(queue string, err error, now time.Time) (since time.Time, again bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since.IsZero() {
		h.since, h.cause = now, ""
	}
	again = h.cause == err.Error()
	h.cause = err.Error()
	h.fault = fmt.Errorf("consumer: queue %q is not consumed since %s: %w", queue, h.since.Format(time.RFC3339), err)
	return h.since, again
}

// fail says that nothing is consumed, and why.
func (h *health) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault, h.since = err, time.Time{}
}

// alive says that the queue has given a sign.
func (h *health) alive(at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault, h.sign, h.since = nil, at, time.Time{}
}

func (h *health) err(queue string, now time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fault != nil {
		return h.fault
	}
	if silent := now.Sub(h.sign); silent > silentAfter {
		return fmt.Errorf("consumer: queue %q has given no sign for %v: its node may be cut off from its cluster, or the queue be without a majority",
			queue, silent.Round(time.Second))
	}
	return nil
}

// beat is when a session looks for signs of its queue.
type beat struct {
	timer *time.Timer
	last  time.Time // when a delivery came, or the queue answered
}

func newBeat() *beat { return &beat{timer: time.NewTimer(askAfter), last: time.Now()} }

// look asks the queue for a sign if none has come for so long, and sets the
// timer that calls it again. A consumer that is busy, with as many messages as it
// may have, gets no sign and needs none; asked then, the queue would hand out
// the message that is next.
func (b *beat) look(busy bool, ask func() error) error {
	idle := time.Since(b.last)
	if idle >= askAfter {
		if !busy {
			if err := ask(); err != nil {
				return err
			}
		}
		b.last, idle = time.Now(), 0
	}
	b.timer.Reset(askAfter - idle)
	return nil
}

func (s *session) look(busy bool) error {
	err := s.beat.look(busy, s.ask)
	if err == nil {
		s.health.alive(s.beat.last)
	}
	return err
}

// ask has the queue accept one more consumer, and cancels that: the one question
// that wants no permission but to read, and that every type of queue answers
// only when it can deliver. A passive declare does not tell: measured on 4.3, a
// leader that is cut off from all its followers answers it as if nothing were
// wrong. Its priority keeps the messages with the real consumer, which has room.
//
// No answer is the end of the socket: the next one goes to another node, where
// there is one.
func (s *session) ask() error {
	ctx, cancel := context.WithTimeoutCause(s.stop, askLimit, errUnanswered)
	defer cancel()
	tag := s.tag + "-health"
	var strays <-chan amqp.Delivery
	err := s.channel.Do(ctx, func(ch *amqp.Channel) (err error) {
		if err = ch.Qos(1, 0, false); err != nil {
			return err
		}
		// Without waiting: the answer to the cancel comes after the consume, and
		// in the time of a round trip messages could come.
		strays, err = ch.Consume(s.route.Queue, tag, false, false, false, true, amqp.Table{"x-priority": int32(askPriority)})
		if err != nil {
			return err
		}
		return ch.Cancel(tag, false)
	})
	if err != nil {
		return s.consumeError(err)
	}
	// Before anything that was delivered after them is handled: its ack could be
	// a multiple one, and take them along.
	for raw := range strays {
		s.giveBack(raw)
	}
	return nil
}
