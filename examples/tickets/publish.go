package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/producer"
)

// publish brings all orders into the queue. It returns nil when each is safe.
func (d setup) publish(ctx context.Context, conn *connection.Conn, orders []Order, l *ledger) error {
	fallback, err := producer.NewExchangeSink(conn, d.unsent.Exchange)
	if err != nil {
		return err
	}
	publisher, err := producer.New(conn, producer.Config{Fallback: []producer.Sink{fallback}})
	if err != nil {
		return err
	}

	// All at once: the calls share one channel, and each waits for its confirm.
	errs := make([]error, len(orders))
	var calls sync.WaitGroup
	for i, order := range orders {
		calls.Go(func() { errs[i] = d.publishOne(ctx, publisher, order, l) })
	}
	calls.Wait()
	return errors.Join(summed(errs), publisher.Close())
}

// summed returns one error for many of the same cause.
func summed(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%d orders could not be published, the first: %w", len(errs), errs[0])
}

func (d setup) publishOne(ctx context.Context, publisher *producer.Producer, order Order, l *ledger) error {
	body, err := json.Marshal(order)
	if err != nil {
		return fmt.Errorf("order %s: %w", order.ID, err)
	}
	message := producer.Message{
		Exchange:    d.exchange.Name,
		RoutingKey:  "order.paid",
		ID:          l.messageID(order), // the same however often the order is published
		ContentType: "application/json",
		Body:        body,
	}
	if order.VIP {
		message.Priority = 9
	}
	receipt, err := publisher.Publish(ctx, message)
	if err != nil {
		return err
	}
	if receipt.Place == producer.PlaceFallback {
		l.fellBack(receipt.ID) // safe, but no handler will see it
		return nil
	}
	l.published(receipt.ID)
	return nil
}
