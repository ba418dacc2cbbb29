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
	"github.com/rehop/rehop/topology"
)

// publish brings all orders into the queue. It returns nil when each is safe.
func (d desk) publish(ctx context.Context, conn *connection.Conn, orders []Order, l *ledger) error {
	fallback, err := producer.NewExchangeSink(conn, d.unsent.Exchange)
	if err != nil {
		return err
	}
	shop, err := producer.New(conn, producer.Config{Fallback: []producer.Sink{fallback}})
	if err != nil {
		return errors.Join(err, fallback.Close())
	}

	// All at once: the calls share one channel, and each waits for its confirm.
	errs := make([]error, len(orders))
	var calls sync.WaitGroup
	for i, order := range orders {
		calls.Go(func() { errs[i] = d.publishOne(ctx, shop, order, l) })
	}
	calls.Wait()
	return errors.Join(summed(errs), shop.Close())
}

// summed returns one error for many of the same cause.
func summed(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%d orders could not be published, the first: %w", len(errs), errs[0])
}

func (d desk) publishOne(ctx context.Context, shop *producer.Producer, order Order, l *ledger) error {
	body, err := json.Marshal(order)
	if err != nil {
		return fmt.Errorf("order %s: %w", order.ID, err)
	}
	message := producer.Message{
		Exchange:    d.exchange.Name,
		Key:         "order.paid",
		ID:          l.messageID(order), // the same however often the order is published
		ContentType: "application/json",
		Body:        body,
	}
	if order.VIP {
		message.Priority = topology.MaxPriority
	}
	receipt, err := shop.Publish(ctx, message)
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
