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
	n, send, err := identify(d.ID, d.Body, d.Headers)
	if err != nil {
		k.fail(err)
		return consumer.DeadLetter(err)
	}
	k.ledger.run(n, d.Attempt, time.Now())
	err = outcome(n, d.Attempt)
	now := time.Now()
	if err != nil {
		k.ledger.failed(n, d.Attempt, now)
		return err
	}
	k.ledger.ended(n, end{handled, uint8(d.Attempt), send, d.Redelivered}, now)
	k.outages.handled(k.sessions.of(ctx), now)
	return nil
}

// copied hears of the copies that a place has confirmed.
func (k *soak) copied(d *consumer.Delivery, to topology.Address) {
	if n, _, err := identify(d.ID, d.Body, d.Headers); err == nil && to != k.work.Route().DeadLetter {
		k.ledger.copied(n, d.Attempt)
	}
}

// read is the handler of the dead-letter queue.
func (k *soak) read(_ context.Context, d *consumer.Delivery) error {
	n, send, err := identify(d.ID, d.Body, d.Headers)
	if err != nil {
		k.fail(err)
		return nil
	}
	k.ledger.ended(n, end{deadLetter, uint8(d.History.FinalAttempts), send, d.Redelivered}, time.Now())
	return nil
}

// consume runs a consumer until stop is called.
func (k *soak) consume(conn *connection.Conn, from topology.Source, handler consumer.Handler) (stop func()) {
	c, err := consumer.New(conn, from, handler, consumer.Config{
		Concurrency: concurrency, Logger: k.logger, Trace: consumer.Trace{Confirmed: k.copied},
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
