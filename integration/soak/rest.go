package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/integration/queues"
)

const (
	silence  = 20 * time.Second // after which what is missing will not come
	patience = 3 * time.Minute
)

// settle returns when all is at rest, or when that is not to be expected any
// more.
func (k *soak) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("the queues are not empty after %v", patience))
	defer cancel()
	return k.account.Rest(ctx, silence, func(ctx context.Context) (int, error) {
		return queues.Ready(ctx, k.observer, queues.Of(k.work)...)
	})
}

// collect takes what is left in the queues.
func (k *soak) collect(ctx context.Context) error {
	return queues.Take(ctx, k.observer, func(queue string, m amqp.Delivery) error {
		return errors.Join(unchanged(m.MessageId, k.account.Number(m.MessageId), m.Body), k.account.Lies(k.work, queue, m))
	}, queues.Of(k.work)...)
}
