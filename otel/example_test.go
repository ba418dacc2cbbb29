package otel_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/otel"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/topology"
)

// A message fails four times and is done by the fifth attempt. All of them are in the
// trace of its publish.
func Example() {
	broker, err := rehoptest.NewBroker(rehoptest.Config{}) // in place of RabbitMQ
	must(err)
	defer broker.Close()
	exporter := tracetest.NewInMemoryExporter() // in place of one to a collector
	spans := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	ctx, stop := context.WithCancel(context.Background())

	telemetry := otel.New(otel.Config{TracerProvider: spans})
	conn, err := connection.Open(ctx, connection.Config{
		URLs: []string{"amqp://guest:guest@broker"}, Dial: broker.Dial, Name: "shop",
		Telemetry: telemetry, // for the Conn, its producers, its consumers and its stores
	})
	must(err)
	defer conn.Close()
	orders := topology.WorkQueue{Name: "orders", Waits: delay.Fixed(10*time.Millisecond, 4)}
	must(topology.Declare(ctx, conn, orders))

	publisher, err := producer.New(conn, producer.Config{})
	must(err)
	defer publisher.Close()
	_, err = publisher.Publish(ctx, producer.Message{RoutingKey: "orders"})
	must(err)
	worker, err := consumer.New(conn, orders, func(_ context.Context, d *consumer.Delivery) error {
		if d.Attempt < 5 {
			return errPaper
		}
		stop()
		return nil
	}, consumer.Config{})
	must(err)
	must(worker.Run(ctx))

	story := exporter.GetSpans()
	slices.SortFunc(story, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	for _, span := range story {
		if span.SpanContext.TraceID() == story[0].SpanContext.TraceID() {
			fmt.Printf("%s: %s\n", span.Name, span.Status.Code)
		}
	}
	// Output:
	// publish amq.default: Unset
	// process orders: Error
	// wait orders: Unset
	// process orders: Error
	// wait orders: Unset
	// process orders: Error
	// wait orders: Unset
	// process orders: Error
	// wait orders: Unset
	// process orders: Unset
}

// A program with hooks of its own names them beside those of the Telemetry. A Conn has both
// its Traces and those of its Telemetry, so this is for a Conn that hands none down.
func ExampleTelemetry_Connection() {
	broker, err := rehoptest.NewBroker(rehoptest.Config{}) // in place of RabbitMQ
	must(err)
	defer broker.Close()
	reader := metric.NewManualReader() // in place of an exporter to Prometheus
	telemetry := otel.New(otel.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	opened := make(chan connection.Role, 1)
	conn, err := connection.Open(context.Background(), connection.Config{
		URLs: []string{"amqp://guest:guest@broker"}, Dial: broker.Dial,
		Traces: []connection.Trace{telemetry.Connection("shop"), {SessionOpened: func(s connection.SessionEvent) { opened <- s.Role }}},
	})
	must(err)
	defer conn.Close()

	session, err := conn.Session(context.Background(), connection.Publish)
	must(err)
	fmt.Println("opened:", <-opened)
	for _, p := range read(reader, "rehop.connection.sessions") {
		fmt.Println(p)
	}
	must(session.Close())
	// Output:
	// opened: publish
	// 1 shop publish
}

// The health of a consumer is a metric: 1 for the status that it has.
func ExampleTelemetry_Health() {
	_, conn, stop := connect()
	defer stop()
	reader := metric.NewManualReader() // in place of an exporter to Prometheus
	telemetry := otel.New(otel.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	worker, err := consumer.New(conn, topology.WorkQueue{Name: "orders"}, func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{})
	must(err)

	end := telemetry.Health("orders", worker.Health)
	defer end()
	for _, p := range read(reader, "rehop.health") {
		fmt.Println(p)
	}
	// Output:
	// 0 orders degraded
	// 0 orders healthy
	// 1 orders unhealthy
}

// One process of a service asks the broker for the depths of its queues.
func ExampleTelemetry_WatchQueues() {
	ctx, conn, stop := connect()
	defer stop()
	orders := topology.WorkQueue{Name: "orders"}
	must(topology.Declare(ctx, conn, orders))
	publisher, err := producer.New(conn, producer.Config{})
	must(err)
	defer publisher.Close()
	_, err = publisher.Publish(ctx, producer.Message{RoutingKey: "orders"})
	must(err)

	reader := metric.NewManualReader()
	telemetry := otel.New(otel.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	watching, end := context.WithCancel(ctx)
	watched := make(chan error)
	go func() { watched <- telemetry.WatchQueues(watching, conn, 15*time.Second, orders) }()
	for _, p := range read(reader, "rehop.queue.messages") {
		fmt.Println(p)
	}
	end()
	fmt.Println(<-watched)
	// Output:
	// 0 orders.dlq dead-letter
	// 1 orders work
	// <nil>
}

// One process of a service asks its store for the number of its entries.
func ExampleTelemetry_WatchStore() {
	ctx, _, stop := connect()
	defer stop()
	folder, err := os.MkdirTemp("", "shop")
	must(err)
	defer os.RemoveAll(folder)
	db, err := sqlite.Open(filepath.Join(folder, "outbox.db")) // of package store/sqlite
	must(err)
	defer db.Close()
	reader := metric.NewManualReader()
	telemetry := otel.New(otel.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	outbox, err := store.Open(ctx, db, store.SQLite, store.Config{})
	must(err)
	must(outbox.Put(ctx, producer.Message{RoutingKey: "oders"}, producer.ErrReturned))

	watching, end := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() { telemetry.WatchStore(watching, outbox, time.Minute); close(watched) }()
	for _, p := range read(reader, "rehop.store.letters") {
		fmt.Println(p)
	}
	end()
	<-watched
	// Output:
	// 0 archived store
	// 0 parked store
	// 0 ready store
	// 0 scheduled store
	// 1 held store
}
