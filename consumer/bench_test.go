package consumer_test

import (
	"context"
	"sync/atomic"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// One operation is a message that is handled and acked. What the broker in the
// process allocates counts too.
func BenchmarkConsume(b *testing.B) {
	broker, err := rehoptest.NewBroker(rehoptest.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer broker.Close()
	conn, err := connection.Open(b.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: broker.Dial})
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	orders := topology.WorkQueue{Name: "orders", Type: topology.Classic}
	if err := topology.Declare(b.Context(), conn, orders); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var left atomic.Int64
	left.Store(int64(b.N))
	c, err := consumer.New(conn, orders, func(context.Context, *consumer.Delivery) error {
		if left.Add(-1) == 0 {
			cancel()
		}
		return nil
	}, consumer.Config{Concurrency: 64, Prefetch: 256})
	if err != nil {
		b.Fatal(err)
	}
	for range b.N {
		m := rehoptest.Message{RoutingKey: "orders", Publishing: amqp.Publishing{DeliveryMode: amqp.Persistent, Body: make([]byte, 256)}}
		if _, err := broker.Publish(m); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	if err := c.Run(ctx); err != nil {
		b.Fatal(err)
	}
}
