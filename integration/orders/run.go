package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/rehop/rehop/topology"
)

// scenario is one run.
type scenario struct {
	settings
	broker  *broker.Broker
	shop    topology.Exchange
	work    topology.WorkQueue
	account *account.Account
}

func newScenario(s settings) *scenario {
	w := &scenario{settings: s, shop: topology.Exchange{Name: "shop"}, work: topology.WorkQueue{
		Name: "orders", Type: s.queueType, Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}},
		Waits: delay.Schedule{500 * time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second},
	}}
	w.account = account.New(w.work.Name, w.work.Waits, s.orders)
	return w
}

// run goes through all of it once, and prints what became of the orders.
func run(ctx context.Context, s settings, out io.Writer) (err error) {
	b, err := broker.Start(ctx, broker.Options{Version: s.version, Name: "rehop-orders"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close(context.WithoutCancel(ctx))) }()
	w := newScenario(s)
	w.broker = b
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{b.AMQPURL()}, Name: "shop"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	plan, err := topology.DeclarePlan(ctx, conn, w.shop, w.work)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "RabbitMQ %s, %s work queue, %s: %d orders at %d/s, %d %% of the attempts fail, %d roll-outs, two restarts and a kill of the broker\n",
		b.Version(), s.queueType, plan.Engines[0].Engine, s.orders, s.rate, s.failures, s.rollouts)
	pause.For(ctx, nodes.YoungQueue) // the broker will be killed
	err = w.live(ctx, conn, out)
	fmt.Fprintln(out, w.account)
	for cause, n := range w.account.Doubled().By {
		fmt.Fprintf(out, "  %d %s\n", n, cause)
	}
	return errors.Join(err, w.account.Verdict())
}

// live publishes all orders, while the service is rolled out and the broker goes
// down, and returns when all have ended.
func (w *scenario) live(ctx context.Context, conn *connection.Conn, out io.Writer) (err error) {
	f, err := startFleet(ctx, w)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	letters, err := startConsumer(conn, w.work.DeadLetterQueue(), w.account.Letters, consumer.Config{Concurrency: 10})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, letters()) }()

	began := time.Now()
	lasts := time.Duration(float64(w.orders) / float64(w.rate) * float64(time.Second))
	errs := make(chan error, 3)
	go func() { errs <- w.publish(ctx, conn) }()
	go func() { errs <- f.rollOut(ctx, began, lasts) }()
	go func() { errs <- w.breakBroker(ctx, began, lasts) }()
	for range cap(errs) {
		err = errors.Join(err, <-errs)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "published within %v\n", time.Since(began).Round(100*time.Millisecond))
	all := queues.Of(w.work)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	err = w.account.Rest(ctx, 30*time.Second, func(ctx context.Context) (int, error) { return queues.Ready(ctx, conn, all...) })
	if err != nil {
		return err
	}
	return queues.Take(ctx, conn, func(queue string, m amqp.Delivery) error { return w.account.Lies(w.work, queue, m) }, all...)
}

// breakBroker takes the broker down three times: after a sixth, a half and five
// sixths of the time.
func (w *scenario) breakBroker(ctx context.Context, began time.Time, lasts time.Duration) error {
	for i, down := range []func(context.Context) error{w.broker.Stop, w.broker.Kill, w.broker.Stop} {
		if !pause.For(ctx, time.Until(began.Add(lasts*time.Duration(1+2*i)/6))) {
			return context.Cause(ctx)
		}
		if err := down(ctx); err != nil {
			return err
		}
		if err := w.broker.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}
