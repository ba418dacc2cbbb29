// Quickstart publishes an order and handles it: two attempts fail, and the third succeeds.
package main

import (
	"context"
	"errors"
	"log"
	"log/slog"
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

	conn, err := connection.Open(ctx, connection.Config{URLs: []string{os.Getenv("AMQP_URL")}, Logger: slog.Default()})
	check(err)

	waits := delay.Fixed(2*time.Second, 4) // delay.Default() is 1m, 5m, 10m, 20m
	orders := topology.WorkQueue{Name: "quickstart.orders", Bindings: []topology.Binding{{Exchange: "quickstart", RoutingKey: "order.#"}}, Waits: waits}
	check(topology.Declare(ctx, conn, topology.Exchange{Name: "quickstart"}, orders))

	publisher, err := producer.New(conn, producer.Config{})
	check(err)
	receipt, err := publisher.Publish(ctx, producer.Message{Exchange: "quickstart", RoutingKey: "order.paid", Body: []byte("Anna, Berlin")})
	check(err)
	log.Printf("message %s is safe: %s", receipt.ID, receipt.Place)

	worker, err := consumer.New(conn, orders, func(ctx context.Context, d *consumer.Delivery) error {
		log.Printf("attempt %d of %s: %s", d.Attempt, d.ID, d.Body)
		if d.Attempt < 3 {
			return errors.New("the printer is out of paper")
		}
		stop()
		return nil
	}, consumer.Config{Concurrency: 16})
	check(err)
	check(worker.Run(ctx)) // until stop, or Ctrl-C
	check(errors.Join(publisher.Close(), conn.Close()))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
