package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// rawPublisher publishes as rehop does: persistent, mandatory, confirmed, with a
// message id and a timestamp. It may be used by several goroutines.
type rawPublisher struct {
	conn     *amqp.Connection
	channel  *amqp.Channel
	queue    string
	prefix   string
	last     atomic.Uint64
	returned chan int // gets how many messages came back, once the channel is closed
}

func newRawPublisher(url, queue string) (*rawPublisher, error) {
	conn, channel, err := rawChannel(url)
	if err != nil {
		return nil, err
	}
	if err := channel.Confirm(false); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	p := &rawPublisher{conn: conn, channel: channel, queue: queue, prefix: rand.Text() + "-", returned: make(chan int, 1)}
	returns := channel.NotifyReturn(make(chan amqp.Return, 1000))
	go func() {
		n := 0
		for range returns {
			n++
		}
		p.returned <- n
	}()
	return p, nil
}

// rawChannel opens a connection with one channel on it.
func rawChannel(url string) (*amqp.Connection, *amqp.Channel, error) {
	conn, err := amqp.Dial(url)
	if err != nil {
		return nil, nil, err
	}
	channel, err := conn.Channel()
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, channel, nil
}

// send writes one message; its confirm is awaited later.
func (p *rawPublisher) send(ctx context.Context, body []byte) (*amqp.DeferredConfirmation, error) {
	return p.sendTo(ctx, p.queue, nil, body)
}

func (p *rawPublisher) sendTo(ctx context.Context, queue string, headers amqp.Table, body []byte) (*amqp.DeferredConfirmation, error) {
	return p.channel.PublishWithDeferredConfirmWithContext(ctx, "", queue, true, false, amqp.Publishing{
		Headers:      headers,
		DeliveryMode: amqp.Persistent,
		MessageId:    p.prefix + strconv.FormatUint(p.last.Add(1), 10),
		Timestamp:    time.Now(),
		Body:         body,
	})
}

// publish writes one message and waits for its confirm.
func (p *rawPublisher) publish(ctx context.Context, body []byte) error {
	confirm, err := p.send(ctx, body)
	if err != nil {
		return err
	}
	return confirmed(ctx, confirm)
}

var errNotConfirmed = errors.New("not confirmed")

func confirmed(ctx context.Context, c *amqp.DeferredConfirmation) error {
	acked, err := c.WaitContext(ctx)
	if err != nil {
		return err
	}
	if !acked {
		return errNotConfirmed
	}
	return nil
}

// close returns an error if a message came back.
func (p *rawPublisher) close() error {
	errs := []error{p.channel.Close(), p.conn.Close()}
	if n := <-p.returned; n > 0 {
		errs = append(errs, fmt.Errorf("%d messages were returned", n))
	}
	return errors.Join(errs...)
}

func withRawPublisher(t *trial, do func(*rawPublisher) error) error {
	p, err := newRawPublisher(t.url, t.work.Name)
	if err != nil {
		return err
	}
	return errors.Join(do(p), p.close())
}

// rawPublish has goroutines on one channel, each of which waits for its own
// confirm.
func rawPublish(goroutines int) side {
	return func(ctx context.Context, t *trial) error {
		return withRawPublisher(t, func(p *rawPublisher) error {
			err := t.publishAll(ctx, goroutines, p.publish)
			t.finish()
			return err
		})
	}
}

// rawPipeline has one goroutine that writes on while up to window messages are
// unconfirmed.
func rawPipeline(window int) side {
	return func(ctx context.Context, t *trial) error {
		return withRawPublisher(t, func(p *rawPublisher) error {
			if err := p.publish(ctx, number(newBody(), 0)); err != nil {
				return err
			}
			t.begin()
			err := p.pipeline(ctx, 1, t.n, window)
			t.finish()
			return err
		})
	}
}

// pipeline publishes the messages from one number up to another.
func (p *rawPublisher) pipeline(ctx context.Context, from, to, window int) error {
	body := newBody()
	inFlight := make([]*amqp.DeferredConfirmation, window) // a ring
	for i := from; i < to+window; i++ {
		place := i % window
		if oldest := inFlight[place]; oldest != nil {
			if err := confirmed(ctx, oldest); err != nil {
				return err
			}
			inFlight[place] = nil
		}
		if i >= to {
			continue
		}
		confirm, err := p.send(ctx, number(body, i))
		if err != nil {
			return err
		}
		inFlight[place] = confirm
	}
	return nil
}

// rawBatches writes a batch, then waits for all its confirms.
func rawBatches(size int) side {
	return func(ctx context.Context, t *trial) error {
		return withRawPublisher(t, func(p *rawPublisher) error {
			err := t.batches(size, func(from, to int) error { return p.pipeline(ctx, from, to, size) })
			t.finish()
			return err
		})
	}
}

// preload fills a queue. It is not measured.
func preload(ctx context.Context, url, queue string, n int) error {
	p, err := newRawPublisher(url, queue)
	if err != nil {
		return err
	}
	return errors.Join(p.pipeline(ctx, 0, n, 1000), p.close())
}
