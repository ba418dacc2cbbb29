package examples

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
	"github.com/rehop/rehop/topology"
)

// begin test
func TestTicketIsADeadLetterAfter36Minutes(t *testing.T) {
	rehoptest.Test(t, rehoptest.Config{Version: "4.3"}, func(t *testing.T, broker *rehoptest.Broker) {
		conn, err := connection.Open(t.Context(), connection.Config{
			URLs:      []string{"amqp://guest:guest@broker"},
			Dial:      broker.Dial, // in place of a socket
			OnConnect: declare,     // of the program: declares orders, whose waits are 1m, 5m, 10m, 20m
		})
		check(err)
		t.Cleanup(func() { _ = conn.Close() })
		attempts := 0
		worker, err := consumer.New(conn, orders, func(context.Context, *consumer.Delivery) error {
			attempts++
			return errors.New("the printer is out of paper")
		}, consumer.Config{})
		check(err)
		rehoptest.Run(t, worker.Run) // until the test ends

		_, err = broker.Publish(rehoptest.Message{Exchange: "shop", RoutingKey: "order.paid"})
		check(err)
		time.Sleep(36*time.Minute + time.Second) // of the bubble: it takes milliseconds
		synctest.Wait()

		letters, _ := broker.Queue("orders.dlq")
		if attempts != 5 || len(letters.Ready) != 1 {
			t.Errorf("%d attempts and %d dead letters, want 5 and 1", attempts, len(letters.Ready))
		}
	})
}

// end test

func declare(ctx context.Context, conn *connection.Conn) error {
	return topology.Declare(ctx, conn, topology.Exchange{Name: "shop"}, orders)
}

func TestFaults(t *testing.T) {
	inShop(t, "", func(s *shop) {
		t, ctx, broker := s.T, s.ctx, s.broker
		s.declare(orders)
		outbox := openStore(ctx, s.database())
		publisher, err := producer.New(s.conn, producer.Config{Fallback: []producer.Sink{outbox}})
		check(err)
		defer publisher.Close()
		forwarder, err := outbox.NewForwarder(s.producer(), store.ForwardConfig{})
		check(err)
		order := producer.Message{Exchange: "shop", RoutingKey: "order.paid"}
		// begin faults
		broker.Kill() // as kill -9 does
		receipt, err := publisher.Publish(ctx, order)
		if err != nil || receipt.Place != producer.PlaceFallback {
			t.Errorf("%v, in the %v, want it in the fallback", err, receipt.Place)
		}
		broker.Start()
		rehoptest.Run(t, forwarder.Run) // until the test ends
		time.Sleep(time.Minute)
		synctest.Wait()
		if q, _ := broker.Queue("orders"); len(q.Ready) != 1 {
			t.Errorf("%d orders are in the queue, want 1", len(q.Ready))
		}
		// end faults
	})
}

func TestStoreInABubble(t *testing.T) {
	inShop(t, "", func(s *shop) {
		t, ctx, conn, broker := s.T, s.ctx, s.conn, s.broker
		s.declare(orders)
		order := rehoptest.Message{Exchange: "shop", RoutingKey: "order.paid"}
		order.MessageId = "order-7"
		n := 0
		pack := func(context.Context, *consumer.Delivery) error { n++; return nil }
		// begin store
		db, err := sqlite.Open(filepath.Join(t.TempDir(), "shop.db"))
		check(err)
		t.Cleanup(func() {
			synctest.Wait() // the store may be at work on its table
			db.Close()
		})
		inbox, err := store.Open(ctx, db, store.SQLite, store.Config{})
		check(err)
		worker, err := consumer.New(conn, orders, inbox.OnceHandler(pack), consumer.Config{})
		// end store
		check(err)
		rehoptest.Run(t, worker.Run)

		for range 2 { // the same message, twice
			_, err := broker.Publish(order)
			check(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n != 1 {
			t.Errorf("the order was packed %d times, want once", n)
		}
	})
}
