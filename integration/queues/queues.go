// Package queues looks into the queues of a work queue from outside, and takes
// them away: what the tests of all suites need and no service does.
package queues

import (
	"context"
	"errors"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/topology"
)

// Of returns the names of all queues that belong to a work queue: itself, its
// dead-letter queue, its waits.
func Of(w topology.WorkQueue) []string {
	all := []string{w.Name, w.DeadLetterQueue().Name}
	for i := range w.Waits {
		all = append(all, route.WaitQueue(w.Name, i+1))
	}
	return all
}

// Ready returns how many messages lie in the named queues. It leaves out those
// that a consumer has, and those in the hands of an at-least-once dead-lettering.
func Ready(ctx context.Context, conn *connection.Conn, names ...string) (sum int, err error) {
	session, err := conn.Session(ctx, connection.Consume)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		// One by one: what takes long in a single Do would cost the socket.
		err := session.Do(ctx, func(ch *amqp.Channel) error {
			q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
			sum += q.Messages
			return err
		})
		if err != nil {
			return 0, errors.Join(err, session.Close())
		}
	}
	return sum, session.Close()
}

// silence is how long nothing may come before a queue is looked at again.
const silence = 300 * time.Millisecond

// taker is the tag of the consumer that takes.
const taker = "take"

// Take empties the named queues. found is called with each message and the queue
// where it lay; at its first error Take ends. It consumes, because basic.get is
// refused by a quorum queue with a single active consumer; nobody else may.
func Take(ctx context.Context, conn *connection.Conn, found func(queue string, m amqp.Delivery) error, names ...string) error {
	for _, name := range names {
		for taken := 0; ; {
			n, err := Ready(ctx, conn, name)
			if err != nil {
				return err
			}
			// Messages that go back from the consumer before may not be ready yet.
			if n == 0 && taken == 0 {
				break
			}
			if taken, err = takeSome(ctx, conn, name, found); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeSome takes messages until none has come for a while.
func takeSome(ctx context.Context, conn *connection.Conn, name string, found func(queue string, m amqp.Delivery) error) (taken int, err error) {
	session, err := conn.Session(ctx, connection.Consume)
	if err != nil {
		return 0, err
	}
	var messages <-chan amqp.Delivery
	err = session.Do(ctx, func(ch *amqp.Channel) error {
		var err error
		if err = ch.Qos(100, 0, false); err == nil {
			messages, err = ch.Consume(name, taker, false, false, false, false, nil)
		}
		return err
	})
	for err == nil {
		select {
		case m, ok := <-messages:
			if !ok {
				return taken, session.Err()
			}
			if err = found(name, m); err == nil {
				taken++
				err = m.Ack(false)
			}
			continue
		case <-time.After(silence):
		case <-ctx.Done():
			err = ctx.Err()
		}
		break
	}
	if err == nil { // without it acks are lost when the channel is closed
		err = session.Do(ctx, func(ch *amqp.Channel) error { return ch.Cancel(taker, false) })
	}
	return taken, errors.Join(err, session.Close())
}

// Delete deletes what a plan has declared, with all that is in it.
func Delete(ctx context.Context, conn *connection.Conn, plan topology.Plan) error {
	session, err := conn.Session(ctx, connection.Consume)
	if err != nil {
		return err
	}
	do := func(what func(*amqp.Channel) error) {
		if err == nil {
			err = session.Do(ctx, what)
		}
	}
	for _, name := range plan.Queues() {
		do(func(ch *amqp.Channel) error { _, err := ch.QueueDelete(name, false, false, false); return err })
	}
	for _, name := range plan.Exchanges() {
		do(func(ch *amqp.Channel) error { return ch.ExchangeDelete(name, false, false) })
	}
	return errors.Join(err, session.Close())
}
