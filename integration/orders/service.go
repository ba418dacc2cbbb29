package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

const (
	instances = 3  // of the service
	callers   = 64 // of Publish
)

var errFailed = errors.New("failed on purpose")

func (w *scenario) handle(_ context.Context, d *consumer.Delivery) error {
	if w.fails(d.ID, d.Attempt) {
		return errFailed
	}
	return nil
}

// fails is true of the same attempts of the same orders in every run.
func (w *scenario) fails(id string, attempt int) bool {
	r := rand.New(rand.NewPCG(uint64(w.account.Number(id)), uint64(attempt)))
	return r.IntN(100) < w.failures
}

// publish publishes the orders as they come in. As a careful caller it publishes
// one again, with the same id, until it is said to be safe.
func (w *scenario) publish(ctx context.Context, conn *connection.Conn) error {
	p, err := producer.New(conn, producer.Config{})
	if err != nil {
		return err
	}
	orders := make(chan string, w.orders)
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for id := range orders {
				m := producer.Message{Exchange: w.shop.Name, RoutingKey: "order.paid", ID: id, Body: []byte(id)}
				for w.account.Publish(ctx, p, m) != nil && pause.For(ctx, 50*time.Millisecond) {
				}
			}
		})
	}
	began := time.Now()
	for n := range w.orders {
		if !pause.For(ctx, time.Until(began.Add(time.Duration(n)*time.Second/time.Duration(w.rate)))) {
			break
		}
		orders <- w.account.Next()
	}
	close(orders)
	all.Wait()
	return errors.Join(p.Close(), ctx.Err())
}

// startConsumer runs a consumer until stop is called.
func startConsumer(conn *connection.Conn, from topology.Source, h consumer.Handler, cfg consumer.Config) (stop func() error, err error) {
	c, err := consumer.New(conn, from, h, cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-ended
	}), nil
}

// fleet is the instances of the service that run.
type fleet struct {
	scenario *scenario
	stops    [instances]func() error
	next     int // the number of the next instance
}

func startFleet(ctx context.Context, w *scenario) (*fleet, error) {
	f := &fleet{scenario: w}
	for i := range f.stops {
		var err error
		if f.stops[i], err = f.start(ctx); err != nil {
			return nil, errors.Join(err, f.stop())
		}
	}
	return f, nil
}

// start starts an instance as a process does: it connects, declares and runs.
func (f *fleet) start(ctx context.Context) (stop func() error, err error) {
	w := f.scenario
	f.next++
	name := fmt.Sprintf("instance %d", f.next)
	conn, err := connection.Open(ctx, connection.Config{
		URLs: []string{w.broker.AMQPURL()}, Name: name, OpenTimeout: 2 * time.Minute,
		OnConnect: func(ctx context.Context, conn *connection.Conn) error {
			return topology.Declare(ctx, conn, w.shop, w.work)
		},
	})
	if err != nil {
		return nil, err
	}
	end, err := startConsumer(conn, w.work, w.account.Handler(name, w.handle), consumer.Config{Concurrency: 50, Traces: []consumer.Trace{w.account.Trace()}})
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return func() error { return errors.Join(end(), conn.Close()) }, nil
}

// rollOut replaces all instances again and again, one after the other: the new one
// comes first.
func (f *fleet) rollOut(ctx context.Context, began time.Time, lasts time.Duration) error {
	for n := range f.scenario.rollouts {
		if !pause.For(ctx, time.Until(began.Add(lasts*time.Duration(2*n+1)/time.Duration(2*f.scenario.rollouts)))) {
			return context.Cause(ctx)
		}
		for i, stop := range f.stops {
			fresh, err := f.start(ctx)
			if err != nil {
				return err
			}
			f.stops[i] = fresh
			if err := stop(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *fleet) stop() (err error) {
	for _, stop := range f.stops {
		if stop != nil {
			err = errors.Join(err, stop())
		}
	}
	return err
}
