package main

import (
	"context"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/topology"
)

// concurrency bounds the rate at a latency of 300 ms each way to some 800 a second.
const concurrency = 500

// handle is the handler of the work queue.
func (k *soak) handle(ctx context.Context, d *consumer.Delivery) error {
	n := k.account.Number(d.ID)
	if err := unchanged(d.ID, n, d.Body); err != nil {
		k.fail(err)
		return consumer.DeadLetter(err)
	}
	if err := outcome(n, d.Attempt); err != nil {
		return err
	}
	k.outages.handled(k.sessions.of(ctx), time.Now())
	return nil
}

// read is the handler of the dead-letter queue.
func (k *soak) read(ctx context.Context, d *consumer.Delivery) error {
	k.fail(unchanged(d.ID, k.account.Number(d.ID), d.Body))
	return k.account.Letters(ctx, d)
}

// consume runs a consumer until stop is called.
func (k *soak) consume(conn *connection.Conn, from topology.Source, handler consumer.Handler, trace consumer.Trace) (stop func()) {
	c, err := consumer.New(conn, from, handler, consumer.Config{
		Concurrency: concurrency, Logger: k.logger, Traces: []consumer.Trace{trace},
	})
	if err != nil {
		k.fail(err)
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		k.fail(c.Run(ctx))
	}()
	return func() {
		cancel()
		<-ended
	}
}
