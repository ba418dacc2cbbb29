package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/topology"
)

// queues are all that belong to the work queue.
func queues(w topology.WorkQueue) []string {
	all := []string{w.Name, w.DeadLetterQueue().Name}
	for i := range w.Waits {
		all = append(all, w.WaitQueue(i+1))
	}
	return all
}

const (
	atRest   = 2 * time.Second  // of silence, when every message has ended
	nothing  = 20 * time.Second // of silence, when some have not: they will not
	patience = 3 * time.Minute
)

// settle returns when no queue holds a message and all have ended, or when
// that is not to be expected any more.
func (k *soak) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("the queues are not empty after %v", patience))
	defer cancel()
	for sleep(ctx, 200*time.Millisecond) {
		counts, last := k.ledger.snapshot()
		quiet := time.Since(last)
		if quiet < atRest || counts.open > 0 && quiet < nothing {
			continue
		}
		left, err := ready(ctx, k.observer, k.work)
		if err == nil && left == 0 || quiet > nothing {
			return nil
		}
	}
	return context.Cause(ctx)
}

// ready returns how many messages lie in the queues of w. It leaves out those
// that a consumer has, or an at-least-once dead-lettering.
func ready(ctx context.Context, conn *connection.Conn, w topology.WorkQueue) (sum int, err error) {
	err = withChannel(ctx, conn, func(ch *amqp.Channel) error {
		for _, name := range queues(w) {
			q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
			if err != nil {
				return err
			}
			sum += q.Messages
		}
		return nil
	})
	return sum, err
}

// collect takes what is left in the queues.
func (k *soak) collect(ctx context.Context) (err error) {
	session, err := k.observer.Session(ctx, connection.Consume)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	for _, name := range queues(k.work) {
		for {
			var m amqp.Delivery
			var ok bool
			// One by one: what takes long in a single Do would cost the socket.
			err := session.Do(ctx, func(ch *amqp.Channel) (err error) {
				m, ok, err = ch.Get(name, true)
				return err
			})
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			n, send, err := identify(m.MessageId, m.Body, m.Headers)
			if err != nil {
				return err
			}
			k.ledger.ended(n, end{inQueue, 0, send, m.Redelivered}, time.Now())
		}
	}
	return nil
}
