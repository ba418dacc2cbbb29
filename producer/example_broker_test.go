package producer_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// Publish returns nil once the message is safe. A service has connection.Open in place of
// connect.
func ExampleNew() {
	ctx, conn, stop := connect()
	defer stop()
	check(topology.Declare(ctx, conn, topology.WorkQueue{Name: "orders"}))

	publisher, err := producer.New(conn, producer.Config{})
	check(err)
	defer publisher.Close()
	receipt, err := publisher.Publish(ctx, producer.Message{RoutingKey: "orders", ID: "order-7", Body: []byte("Anna")})
	fmt.Println(receipt.ID, receipt.Place, err)
	// Output: order-7 queue <nil>
}

// No queue takes the message, and there is no Fallback.
func ExampleProducer_Publish_returned() {
	ctx, conn, stop := connect()
	defer stop()
	publisher, err := producer.New(conn, producer.Config{})
	check(err)
	defer publisher.Close()

	_, err = publisher.Publish(ctx, producer.Message{RoutingKey: "oders"}) // there is no such queue
	fmt.Println(errors.Is(err, producer.ErrReturned), producer.CauseOf(err), rehop.ClassOf(err))
	// Output: true unroutable configuration
}

// With topology.Delays a message arrives after a delay.
func ExampleProducer_Publish_delay() {
	ctx, conn, stop := connect()
	defer stop()
	check(topology.Declare(ctx, conn, topology.Delays{}, topology.WorkQueue{Name: "orders"}))
	publisher, err := producer.New(conn, producer.Config{})
	check(err)
	defer publisher.Close()

	receipt, err := publisher.Publish(ctx, producer.Message{RoutingKey: "orders", Delay: 30 * time.Minute})
	fmt.Println(receipt.Place, err) // it is safe now, and in the queue orders in 30 minutes
	// Output: queue <nil>
}

// Each message has a receipt of its own.
func ExampleProducer_PublishAll() {
	ctx, conn, stop := connect()
	defer stop()
	check(topology.Declare(ctx, conn, topology.WorkQueue{Name: "orders"}))
	publisher, err := producer.New(conn, producer.Config{})
	check(err)
	defer publisher.Close()

	receipts, err := publisher.PublishAll(ctx, []producer.Message{
		{ID: "order-7", RoutingKey: "orders"},
		{ID: "order-8", RoutingKey: "oders"}, // there is no such queue
	})
	for _, r := range receipts {
		fmt.Println(r.ID, "safe:", r.Err == nil)
	}
	fmt.Println(errors.Is(err, producer.ErrReturned))
	// Output:
	// order-7 safe: true
	// order-8 safe: false
	// true
}

// Many messages are on their way at a time. Flush waits for the last of them.
func ExampleProducer_PublishAsync() {
	ctx, conn, stop := connect()
	defer stop()
	check(topology.Declare(ctx, conn, topology.WorkQueue{Name: "orders"}))
	publisher, err := producer.New(conn, producer.Config{})
	check(err)
	defer publisher.Close()

	var safe atomic.Int64
	for range 100 {
		publisher.PublishAsync(ctx, producer.Message{RoutingKey: "orders"}, func(r producer.Receipt, err error) {
			if err == nil {
				safe.Add(1)
			}
		})
	}
	check(publisher.Flush(ctx))
	fmt.Println(safe.Load(), "are safe")
	// Output: 100 are safe
}

// A program that has messages of its own to keep waits for the broker before it begins.
func ExampleProducer_AwaitConnection() {
	ctx, conn, stop := connect()
	defer stop()
	publisher, err := producer.New(conn, producer.Config{})
	check(err)
	defer publisher.Close()

	fmt.Println(publisher.AwaitConnection(ctx))
	// Output: <nil>
}

// A stop waits for the messages on their way, and takes no more.
func ExampleProducer_Shutdown() {
	ctx, conn, stop := connect()
	defer stop()
	check(topology.Declare(ctx, conn, topology.WorkQueue{Name: "orders"}))
	publisher, err := producer.New(conn, producer.Config{})
	check(err)
	publisher.PublishAsync(ctx, producer.Message{RoutingKey: "orders", ID: "order-7"}, func(r producer.Receipt, err error) {
		fmt.Println(r.ID, r.Place, err)
	})

	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	fmt.Println(publisher.Shutdown(ctx))
	// Output:
	// order-7 queue <nil>
	// <nil>
}

// drawer keeps messages in memory. A store.Store keeps them on a disk.
type drawer struct{}

func (drawer) Name() string { return "drawer" }

func (drawer) Put(_ context.Context, m producer.Message, cause error) error {
	fmt.Println("put", m.ID, producer.CauseOf(cause))
	return nil
}

// A message that no queue takes is safe in the fallback.
func ExampleSink() {
	ctx, conn, stop := connect()
	defer stop()
	publisher, err := producer.New(conn, producer.Config{Fallback: []producer.Sink{drawer{}}})
	check(err)
	defer publisher.Close()

	receipt, err := publisher.Publish(ctx, producer.Message{RoutingKey: "oders", ID: "order-7"}) // there is no such queue
	fmt.Println(receipt.Place, receipt.Sink, err)
	// Output:
	// put order-7 unroutable
	// fallback drawer <nil>
}

// A dead-letter exchange is the fallback.
func ExampleNewExchangeSink() {
	ctx, conn, stop := connect()
	defer stop()
	check(topology.Declare(ctx, conn, topology.DeadLetterQueue{Name: "lost", Exchange: "lost"}))
	sink, err := producer.NewExchangeSink(conn, "lost")
	check(err)
	publisher, err := producer.New(conn, producer.Config{Fallback: []producer.Sink{sink}})
	check(err)
	defer publisher.Close()

	receipt, err := publisher.Publish(ctx, producer.Message{RoutingKey: "oders"}) // there is no such queue
	fmt.Println(receipt.Place, receipt.Sink, receipt.Cause, err)
	// Output: fallback exchange lost unroutable <nil>
}

// A dead letter that was read by hand becomes the message that its producer published.
func ExampleFromDelivery() {
	m := producer.FromDelivery(amqp.Delivery{
		MessageId: "order-7",
		Body:      []byte("Anna"),
		Headers: amqp.Table{
			"tenant":              "north",
			"x-rehop-queue":       "orders",
			"x-rehop-exchange":    "shop",
			"x-rehop-routing-key": "order.paid",
			"x-rehop-cause":       "exhausted",
		},
	})
	fmt.Printf("%s to %s, %s: %s %v\n", m.ID, m.Exchange, m.RoutingKey, m.Body, m.Headers)
	// Output: order-7 to shop, order.paid: Anna map[tenant:north]
}
