package examples

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
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

func TestReadmeService(t *testing.T) {
	inShop(t, "", func(s *shop) {
		ctx, stop := context.WithCancel(s.ctx)
		body, attempts := []byte("Anna"), 0
		sendTicket := func(context.Context, []byte) error {
			if attempts++; attempts < 3 {
				return errPaper
			}
			stop()
			return nil
		}
		// begin service
		conn, err := connection.Open(ctx, connection.Config{
			URLs:   []string{os.Getenv("AMQP_URL")},
			Logger: slog.Default(), // producers, consumers and stores of conn log here too
			Dial:   s.broker.Dial,  // hidden
		})
		check(err)
		defer conn.Close()

		orders := topology.WorkQueue{
			Name:     "orders",
			Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}},
			Waits:    delay.Default(), // 1m, 5m, 10m, 20m
		}
		check(topology.Declare(ctx, conn, topology.Exchange{Name: "shop"}, orders))

		publisher, err := producer.New(conn, producer.Config{})
		check(err)
		defer publisher.Close()
		receipt, err := publisher.Publish(ctx, producer.Message{Exchange: "shop", RoutingKey: "order.paid", Body: body})
		check(err) // nil: the broker has confirmed that the message is in its queue

		worker, err := consumer.New(conn, orders, func(ctx context.Context, d *consumer.Delivery) error {
			return sendTicket(ctx, d.Body) // an error: next attempt in 1m, 5m, 10m, 20m, then orders.dlq
		}, consumer.Config{Concurrency: 16})
		check(err)
		check(worker.Run(ctx)) // until ctx ends
		// end service
		if attempts != 3 || receipt.Place != producer.PlaceQueue {
			s.Errorf("%d attempts of a message in %v", attempts, receipt.Place)
		}
	})
}

func TestReadmeOutage(t *testing.T) {
	inShop(t, "", func(s *shop) {
		ctx, conn := s.ctx, s.conn
		s.declare(orders)
		s.Chdir(s.TempDir())
		m := producer.Message{Exchange: "shop", RoutingKey: "order.paid"}
		s.broker.Kill()
		// begin outage
		db, err := sqlite.Open("outbox.db") // package store/sqlite
		check(err)
		defer db.Close()
		outbox, err := store.Open(ctx, db, store.SQLite, store.Config{Conn: conn})
		check(err)

		publisher, err := producer.New(conn, producer.Config{Fallback: []producer.Sink{outbox}})
		check(err)
		plain, err := producer.New(conn, producer.Config{}) // without a Fallback
		check(err)
		forwarder, err := outbox.NewForwarder(plain, store.ForwardConfig{})
		check(err)
		go forwarder.Run(ctx)

		receipt, err := publisher.Publish(ctx, m) // nil: confirmed, or in the file
		// end outage
		defer plain.Close()
		defer publisher.Close()
		if err != nil || receipt.Place != producer.PlaceFallback {
			s.Errorf("%v in %v, want it in the fallback", err, receipt.Place)
		}
		s.broker.Start()
		after(time.Minute)
		s.ready("orders", 1)
	})
}

func TestReadmeTest(t *testing.T) {
	ctx := context.Background()
	// begin test
	rehoptest.Test(t, rehoptest.Config{Version: "4.3"}, func(t *testing.T, broker *rehoptest.Broker) {
		conn, err := connection.Open(ctx, connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: broker.Dial})
		check(err)
		// ... declare orders, publish a ticket, run a consumer whose handler always fails
		// end test
		defer conn.Close()
		check(topology.Declare(ctx, conn, topology.Exchange{Name: "shop"}, orders))
		if _, err := broker.Publish(rehoptest.Message{Exchange: "shop", RoutingKey: "order.paid"}); err != nil {
			t.Fatal(err)
		}
		worker, err := consumer.New(conn, orders, func(context.Context, *consumer.Delivery) error { return errPaper }, consumer.Config{})
		check(err)
		stop := rehoptest.Run(t, worker.Run)
		defer stop()
		// begin test
		time.Sleep(36*time.Minute + time.Second) // in the bubble: it takes milliseconds
		synctest.Wait()
		if letters, _ := broker.Queue("orders.dlq"); len(letters.Ready) != 1 {
			t.Errorf("%d dead letters, want 1", len(letters.Ready))
		}
	})
	// end test
}
