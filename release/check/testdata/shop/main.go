// Shop is a program outside rehop's tree. It publishes an order that fails once, handles
// it, and forwards another one that a store has kept while the broker was away. Its broker
// is in the process.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
	"github.com/rehop/rehop/topology"
)

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	broker, err := rehoptest.NewBroker(rehoptest.Config{})
	check(err)
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: broker.Dial})
	check(err)
	orders := topology.WorkQueue{
		Name:     "orders",
		Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}},
		Waits:    delay.Fixed(50*time.Millisecond, 3),
	}
	check(topology.Declare(ctx, conn, topology.Exchange{Name: "shop"}, orders))

	db, err := sqlite.Open(os.Args[1])
	check(err)
	outbox, err := store.Open(ctx, db, store.SQLite, store.Config{})
	check(err)
	publisher, err := producer.New(conn, producer.Config{})
	check(err)
	order := producer.Message{Exchange: "shop", RoutingKey: "order.paid", ID: "stored"}
	check(outbox.Put(ctx, order, producer.ErrUnconfirmed))
	forwarding, endForward := context.WithCancel(ctx)
	forwarder, err := outbox.NewForwarder(publisher, store.ForwardConfig{})
	check(err)
	forwarded := make(chan error, 1)
	go func() { forwarded <- forwarder.Run(forwarding) }()
	order.ID = "published"
	_, err = publisher.Publish(ctx, order)
	check(err)

	working, endWork := context.WithCancel(ctx)
	attempts := map[string]int{}
	worker, err := consumer.New(conn, orders, func(_ context.Context, d *consumer.Delivery) error {
		attempts[d.ID] = d.Attempt
		if d.Attempt == 1 {
			return errors.New("the printer is out of paper")
		}
		if attempts["published"] == 2 && attempts["stored"] == 2 {
			endWork()
		}
		return nil
	}, consumer.Config{Concurrency: 1})
	check(err)
	check(worker.Run(working))
	endForward()
	if err := <-forwarded; !errors.Is(err, context.Canceled) {
		check(err)
	}
	if ctx.Err() != nil {
		log.Fatalf("attempts after a minute: %v", attempts)
	}
	check(publisher.Close())
	check(conn.Close())
	check(db.Close())
	check(broker.Close())
}

// check ends the program at the first error.
func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
