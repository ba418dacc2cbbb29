package otel_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/otel"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
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
		URLs: []string{"amqp://guest:guest@broker"}, Dial: broker.Dial,
		Traces: []connection.Trace{telemetry.Connection("shop")},
	})
	must(err)
	defer conn.Close()
	orders := topology.WorkQueue{Name: "orders", Waits: delay.Fixed(10*time.Millisecond, 4)}
	must(topology.Declare(ctx, conn, orders))

	publisher, err := producer.New(conn, producer.Config{Traces: []producer.Trace{telemetry.Producer()}})
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
	}, consumer.Config{Traces: []consumer.Trace{telemetry.Consumer()}})
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

func must(err error) {
	if err != nil {
		panic(err)
	}
}
