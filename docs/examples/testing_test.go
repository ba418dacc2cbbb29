package examples

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// begin test
func TestTicketIsADeadLetterAfter36Minutes(t *testing.T) {
	rehoptest.Test(t, rehoptest.Config{Version: "4.3"}, func(t *testing.T, broker *rehoptest.Broker) {
		conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: broker.Dial})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if err := topology.Declare(t.Context(), conn, topology.Exchange{Name: "shop"}, orders); err != nil {
			t.Fatal(err)
		}
		attempts := 0
		worker, err := consumer.New(conn, orders, func(context.Context, *consumer.Delivery) error {
			attempts++
			return errors.New("the printer is out of paper")
		}, consumer.Config{})
		if err != nil {
			t.Fatal(err)
		}
		rehoptest.Run(t, worker.Run) // until the test ends

		if _, err := broker.Publish(rehoptest.Message{Exchange: "shop", RoutingKey: "order.paid"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(36*time.Minute + time.Second) // of the bubble: it takes milliseconds
		synctest.Wait()

		letters, _ := broker.Queue("orders.dlq")
		if attempts != 5 || len(letters.Ready) != 1 {
			t.Errorf("%d attempts and %d dead letters, want 5 and 1", attempts, len(letters.Ready))
		}
	})
}

// end test
