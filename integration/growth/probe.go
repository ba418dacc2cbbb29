package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// callers is how many goroutines publish, and how many handlers there are.
const callers = 64

// load is what a probe does: it publishes and consumes as fast as it can.
type load struct {
	size   int // of a body, in bytes
	shards int // 0: one work queue without keys
}

// both measures rehop and the plain program in turns, and returns the medians of their rates, in messages
// per second.
func (g *growth) both(ctx context.Context, l load) (rehop, raw float64, err error) {
	var rehops, raws []float64
	for round := range g.rounds {
		sides := []func() error{
			func() error {
				rate, err := g.rehop(ctx, l)
				rehops = append(rehops, rate)
				return err
			},
			func() error {
				rate, err := g.raw(ctx, l)
				raws = append(raws, rate)
				return err
			},
		}
		if round%2 == 1 {
			slices.Reverse(sides)
		}
		for _, side := range sides {
			if err := side(); err != nil {
				return 0, 0, err
			}
		}
	}
	return median(rehops), median(raws), nil
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// source is what can be declared and consumed.
type source interface {
	topology.Spec
	topology.Source
}

// spec returns the topology of a load, and the queue of a key.
func (l load) spec() (source, func(key string) string) {
	name := "rehop-growth-" + rand.Text()
	if l.shards == 0 {
		return topology.WorkQueue{Name: name, Type: topology.Quorum, Waits: delay.Schedule{time.Hour}}, func(string) string { return name }
	}
	s := topology.Shards{Name: name, Count: l.shards, Type: topology.Quorum, Waits: delay.Fixed(5*time.Second, 3), SingleActiveConsumer: true}
	return s, s.Queue
}

// rehop returns the rate at which rehop's handlers get messages.
func (g *growth) rehop(ctx context.Context, l load) (rate float64, err error) {
	from, queue := l.spec()
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{g.url}})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := topology.Declare(ctx, conn, from); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, topology.Delete(context.WithoutCancel(ctx), conn, from)) }()
	publisher, err := producer.New(conn, producer.Config{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, publisher.Close()) }()

	c := newClock()
	cfg := consumer.Config{Concurrency: callers}
	if l.shards > 0 {
		cfg.KeyLimit, cfg.RetryInPlace = 1, true
	}
	worker, err := consumer.New(conn, from, func(context.Context, *consumer.Delivery) error {
		c.one()
		return nil
	}, cfg)
	if err != nil {
		return 0, err
	}
	body := make([]byte, l.size)
	return c.rate(ctx, g.duration, func(ctx context.Context, key string) error {
		_, err := publisher.Publish(ctx, producer.Message{RoutingKey: queue(key), OrderKey: key, Body: body})
		return err
	}, worker.Run)
}

// raw returns the rate of a plain program: one channel that publishes, one channel for each queue, and as
// many goroutines that ack.
func (g *growth) raw(ctx context.Context, l load) (rate float64, err error) {
	conn, err := amqp.Dial(g.url)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	publishing, err := conn.Channel()
	if err != nil {
		return 0, err
	}
	if err := publishing.Confirm(false); err != nil {
		return 0, err
	}
	c := newClock()
	n := max(l.shards, 1)
	queues := make([]string, n)
	for i := range queues {
		queues[i] = "raw-growth-" + rand.Text()
		channel, err := conn.Channel()
		if err != nil {
			return 0, err
		}
		if _, err := channel.QueueDeclare(queues[i], true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
			return 0, err
		}
		if err := channel.Qos(4*callers, 0, false); err != nil {
			return 0, err
		}
		deliveries, err := channel.Consume(queues[i], "growth", false, false, false, false, nil)
		if err != nil {
			return 0, err
		}
		var workers sync.WaitGroup
		for range callers / n {
			workers.Go(func() {
				for d := range deliveries {
					c.one()
					_ = d.Ack(false) // a lost channel ends the range
				}
			})
		}
		defer func() {
			_, deleted := channel.QueueDelete(queues[i], false, false, false)
			err = errors.Join(err, channel.Close(), deleted)
			workers.Wait()
		}()
	}
	body := make([]byte, l.size)
	return c.rate(ctx, g.duration, func(ctx context.Context, key string) error {
		var number int
		_, _ = fmt.Sscan(key, &number) // every key is a number
		confirm, err := publishing.PublishWithDeferredConfirmWithContext(ctx, "", queues[number%n], true, false, amqp.Publishing{
			Headers: amqp.Table{"key": key}, DeliveryMode: amqp.Persistent, MessageId: key, Timestamp: time.Now(), Body: body,
		})
		if err != nil {
			return err
		}
		acked, err := confirm.WaitContext(ctx)
		if err == nil && !acked {
			err = errors.New("not confirmed")
		}
		return err
	}, func(ctx context.Context) error { <-ctx.Done(); return nil })
}

// clock counts what is handled.
type clock struct {
	handled atomic.Int64
	all     atomic.Int64  // how many that will be, once it is known
	done    chan struct{} // closed when so many were handled, if they were not before it was known
}

func newClock() *clock { return &clock{done: make(chan struct{})} }

func (c *clock) one() {
	if c.handled.Add(1) == c.all.Load() {
		close(c.done)
	}
}

// rate publishes while run consumes: for a quarter of d until all is warm, then for d.
func (c *clock) rate(ctx context.Context, d time.Duration, publish func(ctx context.Context, key string) error, run func(context.Context) error) (float64, error) {
	publishing, enough := context.WithCancel(ctx)
	defer enough()
	consuming, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, callers+1)
	var published atomic.Int64
	var publishers, consumers sync.WaitGroup
	for caller := range callers {
		publishers.Go(func() {
			for i := 0; publishing.Err() == nil; i++ {
				// What has begun is confirmed, so that nothing is left behind.
				if err := publish(ctx, fmt.Sprint(caller*1000+i%16)); err != nil {
					failed <- err
					enough()
					return
				}
				published.Add(1)
			}
		})
	}
	consumers.Go(func() { failed <- run(consuming) })
	var rate float64
	if pause.For(publishing, d/4) {
		before, began := c.handled.Load(), time.Now()
		if pause.For(publishing, d) {
			rate = float64(c.handled.Load()-before) / time.Since(began).Seconds()
		}
	}
	enough()
	publishers.Wait()
	if c.all.Store(published.Load()); c.handled.Load() < c.all.Load() {
		select {
		case <-c.done:
		case <-ctx.Done():
		}
	}
	stop()
	consumers.Wait()
	close(failed)
	var errs []error
	for err := range failed {
		errs = append(errs, err)
	}
	return rate, errors.Join(append(errs, ctx.Err())...)
}
