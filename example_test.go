package rehop_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// A message fails twice, waits in the broker each time, and is done at its
// third attempt. (A service gets its ctx from signal.NotifyContext and handles
// the errors that check stands for here.)
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()

	conn, err := connection.Open(ctx, connection.Config{URLs: []string{os.Getenv("AMQP_URL")}})
	check(err)
	defer conn.Close()

	orders := topology.WorkQueue{
		Name:     "example.orders",
		Bindings: []topology.Binding{{Exchange: "example.shop", RoutingKey: "order.#"}},
		Waits:    delay.Fixed(200*time.Millisecond, 4), // delay.Default() is 1m, 5m, 10m, 20m
	}
	check(topology.Declare(ctx, conn, topology.Exchange{Name: "example.shop"}, orders))

	publisher, err := producer.New(conn, producer.Config{})
	check(err)
	defer publisher.Close()
	receipt, err := publisher.Publish(ctx, producer.Message{Exchange: "example.shop", RoutingKey: "order.paid", Body: []byte("Anna")})
	check(err)
	fmt.Println("safe in:", receipt.Place)

	worker, err := consumer.New(conn, orders, func(ctx context.Context, d *consumer.Delivery) error {
		fmt.Printf("attempt %d: %s, %s\n", d.Attempt, d.RoutingKey, d.Body)
		if d.Attempt < 3 {
			return errors.New("the printer is out of paper")
		}
		stop() // nothing more to come
		return nil
	}, consumer.Config{})
	check(err)
	check(worker.Run(ctx))

	// Output:
	// safe in: queue
	// attempt 1: order.paid, Anna
	// attempt 2: order.paid, Anna
	// attempt 3: order.paid, Anna
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
