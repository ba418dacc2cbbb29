package rehoptest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// orders is the work queue of the tests below: a failed ticket is tried again
// after 1, 5, 10 and 20 minutes.
var orders = topology.WorkQueue{
	Name:     "orders",
	Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}},
	Waits:    delay.Default(),
}

// connect connects to a broker and declares the queues; the connection ends with the test.
func connect(t *testing.T, broker *rehoptest.Broker) *connection.Conn {
	t.Helper()
	conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: broker.Dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := topology.Declare(t.Context(), conn, topology.Exchange{Name: "shop"}, orders); err != nil {
		t.Fatal(err)
	}
	return conn
}

// publish publishes an order and returns its id.
func publish(t *testing.T, conn *connection.Conn) string {
	t.Helper()
	publisher, err := producer.New(conn, producer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer publisher.Close()
	receipt, err := publisher.Publish(t.Context(), producer.Message{Exchange: "shop", RoutingKey: "order.paid", Body: []byte("Anna")})
	if err != nil {
		t.Fatal(err)
	}
	return receipt.ID
}

// consume runs a consumer until stop is called, or the test ends.
func consume(t *testing.T, conn *connection.Conn, w topology.WorkQueue, handler consumer.Handler) (stop func()) {
	t.Helper()
	worker, err := consumer.New(conn, w, handler, consumer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return rehoptest.Run(t, worker.Run)
}

// A ticket that fails five times is a dead letter after 36 minutes.
func TestFailedTicketIsADeadLetter(t *testing.T) {
	rehoptest.Test(t, rehoptest.Config{}, func(t *testing.T, broker *rehoptest.Broker) {
		conn := connect(t, broker)
		id := publish(t, conn)
		attempts := 0
		consume(t, conn, orders, func(context.Context, *consumer.Delivery) error {
			attempts++
			return errors.New("the printer is out of paper")
		})

		time.Sleep(36*time.Minute + time.Second) // of the bubble: it takes milliseconds
		synctest.Wait()

		letters, _ := broker.Queue("orders.dlq")
		if attempts != 5 || len(letters.Ready) != 1 || letters.Ready[0].MessageId != id {
			t.Errorf("%d attempts and %d letters, want 5 and 1:\n%s", attempts, len(letters.Ready), broker.Story(id))
		}
	})
}

// sink takes what a producer could not publish.
type sink struct{ ids []string }

func (s *sink) Name() string { return "the drawer" }

func (s *sink) Put(_ context.Context, m producer.Message, _ error) error {
	s.ids = append(s.ids, m.ID)
	return nil
}

// While the broker is away, the fallback takes over.
func TestFallbackWhileTheBrokerIsAway(t *testing.T) {
	rehoptest.Test(t, rehoptest.Config{}, func(t *testing.T, broker *rehoptest.Broker) {
		conn := connect(t, broker)
		drawer := &sink{}
		publisher, err := producer.New(conn, producer.Config{Timeout: 5 * time.Second, Fallback: []producer.Sink{drawer}})
		if err != nil {
			t.Fatal(err)
		}
		defer publisher.Close()
		order := producer.Message{Exchange: "shop", RoutingKey: "order.paid", Body: []byte("Anna")}

		broker.Kill()
		receipt, err := publisher.Publish(t.Context(), order)
		if err != nil || receipt.Place != producer.PlaceFallback || len(drawer.ids) != 1 {
			t.Errorf("while the broker is away: %v in %v, the drawer holds %d", err, receipt.Place, len(drawer.ids))
		}

		broker.Start()
		time.Sleep(time.Minute) // it is found again
		receipt, err = publisher.Publish(t.Context(), order)
		if err != nil || receipt.Place != producer.PlaceQueue {
			t.Errorf("when it is back: %v in %v", err, receipt.Place)
		}
	})
}

// A roll-out in the middle of a wait loses no ticket and counts its attempts on.
func TestRollOutInTheMiddleOfAWait(t *testing.T) {
	rehoptest.Test(t, rehoptest.Config{}, func(t *testing.T, broker *rehoptest.Broker) {
		conn := connect(t, broker)
		id := publish(t, conn)
		stop := consume(t, conn, orders, func(context.Context, *consumer.Delivery) error {
			return errors.New("the printer is out of paper")
		})
		time.Sleep(3 * time.Minute) // failed at 0 and 1 min; waits for 5 min more
		stop()

		var attempts []int
		consume(t, conn, orders, func(_ context.Context, d *consumer.Delivery) error {
			attempts = append(attempts, d.Attempt)
			return nil
		})
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		if fmt.Sprint(attempts) != "[3]" {
			t.Errorf("the new version saw the attempts %v, want [3]:\n%s", attempts, broker.Story(id))
		}
	})
}

// A program in another process, or another client library, gets a port.
func ExampleBroker_Listen() {
	broker, err := rehoptest.NewBroker(rehoptest.Config{Version: "3.10"})
	if err != nil {
		panic(err)
	}
	defer broker.Close()
	address, err := broker.Listen()
	if err != nil {
		panic(err)
	}
	conn, err := connection.Open(context.Background(), connection.Config{URLs: []string{"amqp://guest:guest@" + address}})
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	fmt.Println(conn.Server().Version)
	// Output: 3.10.8
}

// Messages may be put into queues and taken out of them by hand.
func ExampleBroker_Publish() {
	broker, err := rehoptest.NewBroker(rehoptest.Config{})
	if err != nil {
		panic(err)
	}
	defer broker.Close()
	conn, err := connection.Open(context.Background(), connection.Config{
		URLs: []string{"amqp://guest:guest@broker"},
		Dial: broker.Dial,
	})
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	if err := topology.Declare(context.Background(), conn, topology.DeadLetterQueue{Name: "letters"}); err != nil {
		panic(err)
	}

	message := rehoptest.Message{RoutingKey: "letters"}
	message.Body = []byte("to whom it may concern")
	queues, err := broker.Publish(message)
	if err != nil {
		panic(err)
	}
	fmt.Println("queues:", queues)
	for _, m := range broker.Drain("letters") {
		fmt.Printf("%s\n", m.Body)
	}
	// Output:
	// queues: 1
	// to whom it may concern
}
