// Observe is a shop whose metrics Prometheus reads: handlers fail now and then, the
// broker may go away, and a service that the handlers need is away for a while.
//
//	go run ./integration/withbroker -outage 30s,20s -- go run ./examples/observe
//
// make observe runs it beside a Prometheus.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelapi "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/otel"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
	"github.com/rehop/rehop/topology"
)

var orders = topology.WorkQueue{
	Name:     "observe.orders",
	Bindings: []topology.Binding{{Exchange: "observe.shop", RoutingKey: "order.#"}},
	Waits:    delay.Schedule{2 * time.Second, 5 * time.Second},
}

// audit has what must be told and can wait for the broker.
var audit = topology.WorkQueue{Name: "observe.audit", Bindings: []topology.Binding{{Exchange: "observe.audit", RoutingKey: "#"}}}

func main() {
	listen := flag.String("listen", "127.0.0.1:2112", "where Prometheus finds /metrics")
	length := flag.Duration("for", time.Minute, "how long orders are taken")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *listen, *length); err != nil {
		log.Fatal("observe: ", err)
	}
}

func run(ctx context.Context, listen string, length time.Duration) error {
	exporter, err := prometheus.New()
	if err != nil {
		return err
	}
	otelapi.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(exporter)))
	http.Handle("/metrics", promhttp.Handler())
	server := &http.Server{Addr: listen, ReadHeaderTimeout: time.Second}
	defer server.Close()
	go func() { log.Print("observe: ", server.ListenAndServe()) }()

	telemetry := otel.New(otel.Config{})
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{os.Getenv("AMQP_URL")}, Name: "shop", Telemetry: telemetry})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := topology.Declare(ctx, conn, topology.Exchange{Name: "observe.shop"}, topology.Exchange{Name: "observe.audit"}, orders, audit); err != nil {
		return err
	}
	outbox, done, err := openStore(ctx, conn)
	if err != nil {
		return err
	}
	defer done()
	publisher, err := producer.New(conn, producer.Config{Fallback: []producer.Sink{outbox}})
	if err != nil {
		return err
	}
	defer publisher.Close()
	plain, err := producer.New(conn, producer.Config{})
	if err != nil {
		return err
	}
	defer plain.Close()
	forwarder, err := outbox.NewForwarder(plain, store.ForwardConfig{})
	if err != nil {
		return err
	}
	worker, err := consumer.New(conn, orders, handler(time.Now(), length), consumer.Config{Concurrency: 16})
	if err != nil {
		return err
	}
	auditor, err := consumer.New(conn, audit, func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{Concurrency: 4})
	if err != nil {
		return err
	}
	telemetry.Health("orders", worker.Health)
	telemetry.Health("shop", conn.Health)

	running, end := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer end()
	services := []func() error{
		func() error { return worker.Run(running) },
		func() error { return auditor.Run(running) },
		func() error { return takeNotes(running, plain) },
		func() error { return forwarder.Run(running) },
		func() error { return telemetry.WatchQueues(running, conn, time.Second, orders, audit) },
		func() error { telemetry.WatchStore(running, outbox, time.Second); return nil },
	}
	for _, service := range services {
		all.Go(func() {
			if err := service(); err != nil {
				log.Print("observe: ", err)
			}
		})
	}
	takeOrders(ctx, publisher, length)
	return nil
}

// openStore opens a store in a file for the time when the broker is away.
func openStore(ctx context.Context, conn *connection.Conn) (outbox *store.Store, done func(), err error) {
	dir, err := os.MkdirTemp("", "observe-")
	if err != nil {
		return nil, nil, err
	}
	db, err := sqlite.Open(filepath.Join(dir, "outbox.db"))
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	done = func() { _, _ = db.Close(), os.RemoveAll(dir) } // nothing in it is wanted any more
	outbox, err = store.Open(ctx, db, store.SQLite, store.Config{Conn: conn})
	if err != nil {
		done()
	}
	return outbox, done, err
}

// printerError is an error of a type of its own.
type printerError struct{ paper int }

func (e *printerError) Error() string { return fmt.Sprintf("printer: %d sheets left", e.paper) }

// handler fails in all the ways that there are.
func handler(began time.Time, length time.Duration) consumer.Handler {
	return func(ctx context.Context, d *consumer.Delivery) error {
		select {
		case <-time.After(time.Duration(10+rand.IntN(40)) * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		if at := time.Since(began); at > length*3/4 && at < length*3/4+length/12 {
			return consumer.Hold(errors.New("the payment service is away"))
		}
		switch n := rand.IntN(100); {
		case n < 2:
			return consumer.DeadLetter(errors.New("no such customer"))
		case n < 4:
			return consumer.RetryAfter(3*time.Second, errors.New("come back later"))
		case n < 5:
			return consumer.Discard("a test order")
		case n < 20:
			return &printerError{rand.IntN(5)}
		}
		return nil
	}
}

// takeNotes publishes one note after the other, each when the one before is safe.
func takeNotes(ctx context.Context, publisher *producer.Producer) error {
	for ctx.Err() == nil {
		if _, err := publisher.Publish(ctx, producer.Message{Exchange: "observe.audit", RoutingKey: "note"}); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// takeOrders publishes some 100 orders a second.
func takeOrders(ctx context.Context, publisher *producer.Producer, length time.Duration) {
	var customers sync.WaitGroup
	defer customers.Wait()
	for c := range 20 {
		customers.Go(func() {
			tick := time.NewTicker(200 * time.Millisecond)
			defer tick.Stop()
			for i := range int(length / (200 * time.Millisecond)) {
				_, err := publisher.Publish(ctx, producer.Message{Exchange: "observe.shop", RoutingKey: "order.paid", ID: fmt.Sprintf("order-%d-%d", c, i)})
				if err != nil {
					log.Print("observe: ", err)
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
			}
		})
	}
}
