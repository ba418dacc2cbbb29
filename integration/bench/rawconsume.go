package main

import (
	"context"
	"errors"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/route"
)

// consumerTag is that of the one consumer on its channel.
const consumerTag = "bench"

// rawConsume consumes until all messages were handled, and stops in good order,
// as rehop does: cancel, let work read the deliveries to their end and settle
// them, close the channel.
func rawConsume(ctx context.Context, t *trial, prefetch int, work func(*amqp.Channel, <-chan amqp.Delivery) error) error {
	conn, channel, err := rawChannel(t.url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := channel.Qos(prefetch, 0, false); err != nil {
		return err
	}
	deliveries, err := channel.Consume(t.work.Name, consumerTag, false, false, false, false, nil)
	if err != nil {
		return err
	}
	var worked error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		worked = work(channel, deliveries)
	}()
	select {
	case <-t.done:
	case <-ended:
		return errors.Join(worked, errors.New("the deliveries ended early"))
	case <-ctx.Done():
		return context.Cause(ctx) // closing the connection ends work
	}
	err = channel.Cancel(consumerTag, false)
	<-ended
	err = errors.Join(err, worked, channel.Close())
	t.finish()
	return err
}

// rawPool has workers, each of which acks what it has handled.
func rawPool(concurrency, prefetch int) side {
	return func(ctx context.Context, t *trial) error { return runPool(ctx, t, concurrency, prefetch) }
}

func runPool(ctx context.Context, t *trial, concurrency, prefetch int) error {
	return rawConsume(ctx, t, prefetch, func(_ *amqp.Channel, deliveries <-chan amqp.Delivery) error {
		return pool(concurrency, deliveries, func(d amqp.Delivery) error {
			t.handled(d.Body)
			return d.Ack(false)
		})
	})
}

// pool has workers that read the deliveries to their end.
func pool(workers int, deliveries <-chan amqp.Delivery, work func(amqp.Delivery) error) error {
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for d := range deliveries {
				errs[w] = errors.Join(errs[w], work(d))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// rawBulk has one goroutine, which acks half a prefetch at a time. It is the
// fastest that a client can do, and possible only while handlers run one after
// the other.
func rawBulk(prefetch int) side {
	return func(ctx context.Context, t *trial) error {
		return rawConsume(ctx, t, prefetch, func(channel *amqp.Channel, deliveries <-chan amqp.Delivery) error {
			var last uint64
			open := 0
			for d := range deliveries {
				t.handled(d.Body)
				last = d.DeliveryTag
				if open++; open >= prefetch/2 {
					if err := channel.Ack(last, true); err != nil {
						return err
					}
					open = 0
				}
			}
			if open > 0 {
				return channel.Ack(last, true)
			}
			return nil
		})
	}
}

// rawNack has one goroutine that nacks everything, which the wiring of the queue
// takes to its first wait.
func rawNack(prefetch int) side {
	return func(ctx context.Context, t *trial) error {
		return rawConsume(ctx, t, prefetch, func(_ *amqp.Channel, deliveries <-chan amqp.Delivery) error {
			for d := range deliveries {
				t.handled(d.Body)
				if err := d.Nack(false, false); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// rawRepublishPool has workers, each of which gets a copy confirmed and then
// acks.
func rawRepublishPool(concurrency int) side {
	return func(ctx context.Context, t *trial) error {
		copies, err := newRawPublisher(t.url, route.WaitQueue(t.work.Name, 1))
		if err != nil {
			return err
		}
		err = rawConsume(ctx, t, concurrency, func(_ *amqp.Channel, deliveries <-chan amqp.Delivery) error {
			return pool(concurrency, deliveries, func(d amqp.Delivery) error {
				t.handled(d.Body)
				confirm, err := copies.copy(ctx, t, d)
				if err == nil {
					err = confirmed(ctx, confirm)
				}
				if err != nil {
					return err
				}
				return d.Ack(false)
			})
		})
		return errors.Join(err, copies.close())
	}
}

// copy writes a copy of d.
func (p *rawPublisher) copy(ctx context.Context, t *trial, d amqp.Delivery) (*amqp.DeferredConfirmation, error) {
	return p.channel.PublishWithDeferredConfirmWithContext(ctx, "", p.queue, true, false, t.copyOf(d))
}

// sent is a copy that is written and the delivery that it replaces.
type sent struct {
	tag     uint64
	confirm *amqp.DeferredConfirmation
}

// rawRepublish has one goroutine that writes copies to the first wait and one
// that waits for their confirms, in order, and acks what was confirmed: all that
// is ready as one frame.
func rawRepublish(prefetch int) side {
	return func(ctx context.Context, t *trial) error {
		copies, err := newRawPublisher(t.url, route.WaitQueue(t.work.Name, 1))
		if err != nil {
			return err
		}
		err = rawConsume(ctx, t, prefetch, func(channel *amqp.Channel, deliveries <-chan amqp.Delivery) error {
			inFlight := make(chan sent, prefetch)
			var acked error
			var wg sync.WaitGroup
			wg.Go(func() { acked = ackConfirmed(ctx, channel, inFlight) })
			err := copyAll(ctx, t, copies, deliveries, inFlight)
			close(inFlight)
			wg.Wait()
			return errors.Join(err, acked)
		})
		return errors.Join(err, copies.close())
	}
}

func copyAll(ctx context.Context, t *trial, copies *rawPublisher, deliveries <-chan amqp.Delivery, inFlight chan<- sent) error {
	for d := range deliveries {
		t.handled(d.Body)
		confirm, err := copies.copy(ctx, t, d)
		if err != nil {
			return err
		}
		inFlight <- sent{d.DeliveryTag, confirm}
	}
	return nil
}

// copyOf returns a delivery with as much written on it as rehop writes, so that
// the broker has the same work.
func (t *trial) copyOf(d amqp.Delivery) amqp.Publishing {
	headers := make(amqp.Table, len(d.Headers)+5)
	for key, value := range d.Headers {
		headers[key] = value
	}
	headers["x-bench-attempts"] = int64(1)
	headers["x-bench-queue"] = t.work.Name
	headers["x-bench-exchange"] = d.Exchange
	headers["x-bench-routing-key"] = d.RoutingKey
	headers["x-bench-first-failed-at"] = time.Now()
	return amqp.Publishing{
		Headers:         headers,
		ContentType:     d.ContentType,
		ContentEncoding: d.ContentEncoding,
		DeliveryMode:    amqp.Persistent,
		Priority:        d.Priority,
		CorrelationId:   d.CorrelationId,
		ReplyTo:         d.ReplyTo,
		MessageId:       d.MessageId,
		Timestamp:       d.Timestamp,
		Type:            d.Type,
		AppId:           d.AppId,
		Body:            d.Body,
	}
}

// ackConfirmed never acks a delivery whose copy is unconfirmed: it takes them in
// their order, and acks when the next one would have to wait.
func ackConfirmed(ctx context.Context, channel *amqp.Channel, inFlight <-chan sent) error {
	var last uint64
	flush := func() error {
		if last == 0 {
			return nil
		}
		tag := last
		last = 0
		return channel.Ack(tag, true)
	}
	for s := range inFlight {
		if !s.confirm.Acked() {
			if err := flush(); err != nil {
				return err
			}
			if err := confirmed(ctx, s.confirm); err != nil {
				return err
			}
		}
		last = s.tag
		if len(inFlight) == 0 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// rawEndToEnd is rawPublish and rawPool at the same time.
func rawEndToEnd(n int) side {
	return func(ctx context.Context, t *trial) error {
		return withRawPublisher(t, func(p *rawPublisher) error {
			return t.endToEnd(ctx, n, p.publish, func(ctx context.Context) error { return runPool(ctx, t, n, n) })
		})
	}
}
