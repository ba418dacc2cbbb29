package main

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/topology"
)

// alone returns an error if somebody consumes the orders already: two runs at
// once would throw away each other's messages.
func (d setup) alone(ctx context.Context, conn *connection.Conn) error {
	for _, q := range d.queues {
		work, err := look(ctx, conn, q.Name)
		if err != nil {
			return err
		}
		if work[0].Consumers > 0 {
			return fmt.Errorf("somebody else consumes %q: another run is at work, or was killed just now; try again in a moment", q.Name)
		}
	}
	return nil
}

// leftovers returns how many messages the work queues, their waits and, unless the dead
// letters are kept, their dead-letter queue still hold.
func (d setup) leftovers(ctx context.Context, conn *connection.Conn, keep bool) (int, error) {
	plan, err := topology.NewPlan(conn.Server().Version, d.exchange, d.sms)
	if err != nil {
		return 0, err
	}
	queues, err := look(ctx, conn, plan.Queues()...)
	messages := 0
	for _, q := range queues {
		if keep && q.Name == d.letters.Name {
			continue
		}
		messages += q.Messages
	}
	return messages, err
}

// look returns the state of queues, and changes nothing.
func look(ctx context.Context, conn *connection.Conn, names ...string) ([]amqp.Queue, error) {
	session, err := conn.Session(ctx, connection.Consume)
	if err != nil {
		return nil, err
	}
	var queues []amqp.Queue
	err = session.Do(ctx, func(ch *amqp.Channel) error {
		for _, name := range names {
			q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
			if err != nil {
				return fmt.Errorf("look at queue %q: %w", name, err)
			}
			queues = append(queues, q)
		}
		return nil
	})
	return queues, errors.Join(err, session.Close())
}
