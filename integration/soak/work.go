package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/topology"
)

const concurrency = 200

// handle is the handler of the work queue.
func (k *soak) handle(ctx context.Context, d *consumer.Delivery) error {
	n, send, err := identify(d.ID, d.Body, d.Headers)
	if err != nil {
		k.fail(err)
		return consumer.DeadLetter(err)
	}
	k.ledger.run(n, d.Attempt, time.Now())
	err = outcome(n, d.Attempt)
	now := time.Now()
	if err != nil {
		k.ledger.failed(n, d.Attempt, now)
		return err
	}
	k.ledger.ended(n, end{handled, uint8(d.Attempt), send, d.Redelivered}, now)
	k.outages.handled(k.sessions.of(ctx), now)
	return nil
}

// read is the handler of the dead-letter queue.
func (k *soak) read(_ context.Context, d *consumer.Delivery) error {
	n, send, err := identify(d.ID, d.Body, d.Headers)
	if err != nil {
		k.fail(err)
		return nil
	}
	k.ledger.ended(n, end{deadLetter, uint8(d.History.FinalAttempts), send, d.Redelivered}, time.Now())
	return nil
}

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
func (k *soak) collect(ctx context.Context) error {
	return withChannel(ctx, k.observer, func(ch *amqp.Channel) error {
		for _, name := range queues(k.work) {
			for {
				m, ok, err := ch.Get(name, true)
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
	})
}

// remove deletes what was declared, for a broker that is not ours.
func remove(ctx context.Context, conn *connection.Conn, plan topology.Plan) error {
	return withChannel(ctx, conn, func(ch *amqp.Channel) error {
		for _, q := range plan.Queues {
			if _, err := ch.QueueDelete(q.Name, false, false, false); err != nil {
				return err
			}
		}
		for _, e := range plan.Exchanges {
			if err := ch.ExchangeDelete(e.Name, false, false); err != nil {
				return err
			}
		}
		return nil
	})
}

func withChannel(ctx context.Context, conn *connection.Conn, do func(*amqp.Channel) error) error {
	session, err := conn.Session(ctx, connection.Consume)
	if err != nil {
		return err
	}
	return errors.Join(session.Do(ctx, do), session.Close())
}
