// Quickstart publishes an order and handles it: the first attempt fails, the
// next one comes back from the broker after its wait.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, stop); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, done func()) error {
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{os.Getenv("AMQP_URL")}})
	if err != nil {
		return err
	}
	defer conn.Close()

	orders := topology.WorkQueue{
		Name:     "quickstart.orders",
		Bindings: []topology.Binding{{Exchange: "quickstart", Key: "order.#"}},
		Waits:    delay.Fixed(2*time.Second, 4), // delay.Default() is 1m, 5m, 10m, 20m
	}
	if err := topology.Declare(ctx, conn, topology.Exchange{Name: "quickstart"}, orders); err != nil {
		return err
	}

	shop, err := producer.New(conn, producer.Config{})
	if err != nil {
		return err
	}
	defer shop.Close()
	receipt, err := shop.Publish(ctx, producer.Message{Exchange: "quickstart", Key: "order.paid", Body: []byte("Anna, Berlin")})
	if err != nil {
		return err
	}
	log.Printf("message %s is safe: %s", receipt.ID, receipt.Place)

	office, err := consumer.New(conn, orders, func(ctx context.Context, d *consumer.Delivery) error {
		log.Printf("attempt %d of %s: %s", d.Attempt, d.ID, d.Body)
		if d.Attempt < 3 {
			return errors.New("the printer is out of paper")
		}
		done()
		return nil
	}, consumer.Config{Concurrency: 16})
	if err != nil {
		return err
	}
	return office.Run(ctx)
}
