package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// publish publishes messages to queues by their names.
func publish(ctx context.Context, conn *connection.Conn, messages ...producer.Message) {
	publisher, err := producer.New(conn, producer.Config{})
	check(err)
	defer publisher.Close()
	_, err = publisher.PublishAll(ctx, messages)
	check(err)
}

// A message fails once, waits in the broker, and is done at its second attempt. A service
// has connection.Open in place of connect, and runs until it is told to stop.
func ExampleNew() {
	ctx, conn, stop := connect()
	defer stop()
	orders := topology.WorkQueue{Name: "orders", Waits: delay.Fixed(10*time.Millisecond, 4)}
	check(topology.Declare(ctx, conn, orders))
	publish(ctx, conn, producer.Message{RoutingKey: "orders", Body: []byte("Anna")})

	ctx, done := context.WithCancel(ctx)
	worker, err := consumer.New(conn, orders, func(_ context.Context, d *consumer.Delivery) error {
		fmt.Printf("attempt %d: %s\n", d.Attempt, d.Body)
		if d.Attempt == 1 {
			return errors.New("the printer is out of paper")
		}
		done()
		return nil
	}, consumer.Config{Concurrency: 16})
	check(err)
	check(worker.Run(ctx))
	// Output:
	// attempt 1: Anna
	// attempt 2: Anna
}

// A handler gets three messages at once, or fewer when a minute has passed.
func ExampleNewBatch() {
	ctx, conn, stop := connect()
	defer stop()
	orders := topology.WorkQueue{Name: "orders"}
	check(topology.Declare(ctx, conn, orders))
	publish(ctx, conn, producer.Message{RoutingKey: "orders"}, producer.Message{RoutingKey: "orders"}, producer.Message{RoutingKey: "orders"})

	ctx, done := context.WithCancel(ctx)
	worker, err := consumer.NewBatch(conn, orders, func(_ context.Context, batch []*consumer.Delivery) error {
		fmt.Println("insert", len(batch), "rows")
		done()
		return nil
	}, consumer.Batch{Size: 3, Linger: time.Minute}, consumer.Config{})
	check(err)
	check(worker.Run(ctx))
	// Output: insert 3 rows
}

// Sixteen messages are handled at a time, and the messages of a customer one after the other.
func ExampleConfig_orderKey() {
	ctx, conn, stop := connect()
	defer stop()
	orders := topology.WorkQueue{Name: "orders"}
	check(topology.Declare(ctx, conn, orders))
	for _, body := range []string{"cart", "paid", "sent"} {
		publish(ctx, conn,
			producer.Message{RoutingKey: "orders", OrderKey: "anna", Body: []byte(body)},
			producer.Message{RoutingKey: "orders", OrderKey: "bob", Body: []byte(body)})
	}

	ctx, done := context.WithCancel(ctx)
	var mu sync.Mutex
	of, left := map[string][]string{}, 6
	worker, err := consumer.New(conn, orders, func(_ context.Context, d *consumer.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		of[d.OrderKey] = append(of[d.OrderKey], string(d.Body))
		if left--; left == 0 {
			done()
		}
		return nil
	}, consumer.Config{Concurrency: 16, KeyLimit: 1})
	check(err)
	check(worker.Run(ctx))
	fmt.Println(of)
	// Output: map[anna:[cart paid sent] bob:[cart paid sent]]
}

// While a consumer is paused other consumers get the messages, and its Health is degraded.
func ExampleConsumer_Pause() {
	ctx, conn, stop := connect()
	defer stop()
	orders := topology.WorkQueue{Name: "orders"}
	check(topology.Declare(ctx, conn, orders))
	handled := make(chan string)
	worker, err := consumer.New(conn, orders, func(_ context.Context, d *consumer.Delivery) error {
		handled <- d.ID
		return nil
	}, consumer.Config{})
	check(err)
	ctx, done := context.WithCancel(ctx)
	ran := make(chan error)
	go func() { ran <- worker.Run(ctx) }()
	publish(ctx, conn, producer.Message{RoutingKey: "orders", ID: "order-7"})
	fmt.Println(<-handled)

	worker.Pause()
	var health *rehop.HealthError
	fmt.Println(errors.As(worker.Health(), &health) && health.Degraded, health.Cause)
	worker.Resume()
	publish(ctx, conn, producer.Message{RoutingKey: "orders", ID: "order-8"})
	fmt.Println(<-handled)
	done()
	fmt.Println(<-ran)
	// Output:
	// order-7
	// true consumer: queue "orders": paused by Pause
	// order-8
	// <nil>
}

// Operators see and pause the consumers of a service. (The one of this example does not run.)
func ExampleOperator() {
	_, conn, stop := connect()
	defer stop()
	worker, err := consumer.New(conn, topology.WorkQueue{Name: "orders"}, func(context.Context, *consumer.Delivery) error {
		return nil
	}, consumer.Config{})
	check(err)
	ops, err := consumer.Operator(worker)
	check(err)
	mux := http.NewServeMux()
	mux.Handle("/ops/", http.StripPrefix("/ops", ops))

	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "http://localhost:8080/ops/pause?queue=orders", nil))
	health, _, _ := strings.Cut(answer.Body.String(), " since")
	fmt.Println(answer.Code, health)
	// Output: 200 orders: unhealthy
}

// A program that reads a queue by itself settles its messages as a consumer does.
func ExampleSettler() {
	ctx, conn, stop := connect()
	defer stop()
	orders := topology.WorkQueue{Name: "orders", Waits: delay.Default()}
	check(topology.Declare(ctx, conn, orders))
	publish(ctx, conn, producer.Message{RoutingKey: "orders", ID: "order-7"})
	settler, err := consumer.NewSettler(conn, orders, consumer.SettlerConfig{})
	check(err)
	defer settler.Close()

	session, err := conn.Session(ctx, connection.Consume)
	check(err)
	defer session.Close()
	var raw amqp.Delivery
	check(session.Do(ctx, func(ch *amqp.Channel) (err error) {
		raw, _, err = ch.Get("orders", false)
		return err
	}))
	fmt.Println("attempt", settler.Delivery(raw).Attempt)
	settled, err := settler.Settle(ctx, raw, errors.New("the printer is out of paper"))
	check(err)
	fmt.Println(settled.Disposition, settled.WaitNumber, settled.Wait)
	// Output:
	// attempt 1
	// wait 1 1m0s
}
