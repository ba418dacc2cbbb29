package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/account"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/integration/queues"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// lot is a work queue and its messages. Each fails once: some wait until the
// broker is down, the others until it is back.
type lot struct {
	queue    topology.WorkQueue
	engine   topology.Engine
	due      int // percent
	account  *account.Account
	declared time.Time
	lost     int // in the runs so far
}

// later is the Type of a message that waits until the broker is back.
const later = "later"

var errFailed = errors.New("failed on purpose")

func newLot(name string, queueType topology.QueueType, due int, s settings) *lot {
	waits := delay.Schedule{s.wait, 3 * s.wait}
	return &lot{
		queue:   topology.WorkQueue{Name: name, Type: queueType, Waits: waits},
		due:     due,
		account: account.New(name, waits, 0),
	}
}

func (l *lot) handle(_ context.Context, d *consumer.Delivery) error {
	switch {
	case d.Attempt > 1:
		return nil
	case d.Type == later:
		return consumer.RetryAfter(l.queue.Waits[1], errFailed)
	}
	return errFailed
}

// run brings messages into the waits of all lots, takes the broker down until
// the share is due, and waits until all have ended.
func run(ctx context.Context, b *broker.Broker, fault string, lots []*lot, s settings) (err error) {
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{b.AMQPURL()}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	endConsuming, err := consume(ctx, conn, lots)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endConsuming()) }()

	for _, l := range lots {
		if !pause.For(ctx, time.Until(l.declared.Add(nodes.YoungQueue))) {
			return context.Cause(ctx)
		}
	}
	if err := fill(ctx, conn, lots, later, func(l *lot) int { return s.messages - s.messages*l.due/100 }); err != nil {
		return err
	}
	began := time.Now() // nothing is due before a wait from here
	if err := fill(ctx, conn, lots, "", func(l *lot) int { return s.messages * l.due / 100 }); err != nil {
		return err
	}
	ended := time.Now() // and all that is to be due is, a wait from here
	down, up := b.Stop, b.Start
	if fault == kill {
		down = b.Kill
	}
	if err := down(ctx); err != nil {
		return err
	}
	if late := time.Since(began) - s.wait; late > 0 {
		return fmt.Errorf("the broker went down %v after the first wait had ended: -wait is too short", late)
	}
	if !pause.For(ctx, time.Until(ended.Add(s.wait+time.Second))) {
		return context.Cause(ctx)
	}
	if err := up(ctx); err != nil {
		return err
	}
	return rest(ctx, conn, lots, s)
}

// consume runs a consumer of each lot until end is called.
func consume(ctx context.Context, conn *connection.Conn, lots []*lot) (end func() error, err error) {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, len(lots))
	started := 0
	for _, l := range lots {
		c, newErr := consumer.New(conn, l.queue, l.account.Handler("", l.handle), consumer.Config{Concurrency: 100, Traces: []consumer.Trace{l.account.Trace()}})
		if newErr != nil {
			err = newErr
			break
		}
		started++
		go func() { ended <- c.Run(running) }()
	}
	end = sync.OnceValue(func() (err error) {
		cancel()
		for range started {
			err = errors.Join(err, <-ended)
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(err, end())
	}
	return end, nil
}

// fill publishes messages of a type to all lots, and returns when all are in
// their waits.
func fill(ctx context.Context, conn *connection.Conn, lots []*lot, messageType string, messages func(*lot) int) error {
	p, err := producer.New(conn, producer.Config{})
	if err != nil {
		return err
	}
	want := map[*lot]int{}
	turns := make(chan *lot)
	errs := make(chan error, 64)
	for range cap(errs) {
		go func() {
			var failed error
			for l := range turns {
				failed = errors.Join(failed, l.account.Publish(ctx, p, producer.Message{RoutingKey: l.queue.Name, ID: l.account.Next(), Type: messageType}))
			}
			errs <- failed
		}()
	}
	for _, l := range lots {
		want[l] = l.account.Counts().Failures + messages(l)
		for range messages(l) {
			turns <- l
		}
	}
	close(turns)
	for range cap(errs) {
		err = errors.Join(err, <-errs)
	}
	if err = errors.Join(err, p.Close()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for _, l := range lots {
		for c := l.account.Counts(); c.Failures < want[l] || c.Unsettled > 0; c = l.account.Counts() {
			if !pause.For(ctx, 20*time.Millisecond) {
				return fmt.Errorf("%s: %+v, want %d failures and nothing unsettled: %w", l.queue.Name, c, want[l], context.Cause(ctx))
			}
		}
	}
	return nil
}

// rest waits for the end of all messages, and takes what is left in the queues.
func rest(ctx context.Context, conn *connection.Conn, lots []*lot, s settings) error {
	for _, l := range lots {
		all := queues.Of(l.queue)
		limited, cancel := context.WithTimeout(ctx, 10*s.wait+2*time.Minute)
		err := l.account.Rest(limited, 3*s.wait+20*time.Second, func(ctx context.Context) (int, error) {
			return queues.Ready(ctx, conn, all...)
		})
		if err == nil {
			err = queues.Take(limited, conn, func(queue string, m amqp.Delivery) error { return l.account.Lies(l.queue, queue, m) }, all...)
		}
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}
