package rehoptest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// An order that fails five times is a dead letter after 36 minutes, which pass at once. In a
// test file the function is TestOrders.
func ExampleTest() {
	TestOrders := func(t *testing.T) {
		rehoptest.Test(t, rehoptest.Config{Version: "4.3"}, func(t *testing.T, broker *rehoptest.Broker) {
			conn := connect(t, broker) // connection.Open with broker.Dial, and topology.Declare
			publish(t, conn)
			worker, err := consumer.New(conn, orders, func(_ context.Context, d *consumer.Delivery) error {
				fmt.Println("attempt", d.Attempt)
				return errors.New("the printer is out of paper")
			}, consumer.Config{})
			if err != nil {
				t.Fatal(err)
			}
			rehoptest.Run(t, worker.Run)
			time.Sleep(36*time.Minute + time.Second) // of the bubble
			synctest.Wait()
			letters, _ := broker.Queue("orders.dlq")
			fmt.Println(len(letters.Ready), "dead letter")
		})
	}
	run(TestOrders)
	// Output:
	// attempt 1
	// attempt 2
	// attempt 3
	// attempt 4
	// attempt 5
	// 1 dead letter
}

// Run runs a consumer until stop is called, or the test ends.
func ExampleRun() {
	TestOrders := func(t *testing.T) {
		rehoptest.Test(t, rehoptest.Config{}, func(t *testing.T, broker *rehoptest.Broker) {
			stop := rehoptest.Run(t, func(ctx context.Context) error {
				<-ctx.Done()
				fmt.Println("stopped")
				return nil
			})
			stop()
		})
	}
	run(TestOrders)
	// Output: stopped
}

// A failing test prints the story of a message.
func ExampleBroker_Story() {
	broker, err := rehoptest.NewBroker(rehoptest.Config{})
	check(err)
	ctx, conn, stop := openShop(broker)
	defer stop()
	check(topology.Declare(ctx, conn, topology.WorkQueue{Name: "orders"}))

	m := rehoptest.Message{RoutingKey: "orders"}
	m.MessageId = "order-7"
	_, err = broker.Publish(m)
	check(err)
	for line := range strings.Lines(broker.Story("order-7")) {
		_, step, _ := strings.Cut(strings.TrimSpace(line), "  ") // after the time
		fmt.Println(step)
	}
	// Output:
	// published to the queue orders
	// in orders
}

// The connections of a Conn are named after its Config.Name. Cut fails as a network does,
// and Disconnect as an operator does.
func ExampleBroker_Cut() {
	broker, err := rehoptest.NewBroker(rehoptest.Config{})
	check(err)
	ctx, conn, stop := openShop(broker) // named "shop"
	defer stop()

	session, err := conn.Session(ctx, connection.Consume)
	check(err)
	fmt.Println("cut", broker.Cut("shop consume"))
	<-session.Done()

	session, err = conn.Session(ctx, connection.Consume) // on a new connection
	check(err)
	fmt.Println("closed", broker.Disconnect("shop consume", "maintenance"))
	<-session.Done()
	var closed *amqp.Error
	fmt.Println(errors.As(session.Err(), &closed), closed.Code, closed.Reason)
	// Output:
	// cut 1
	// closed 1
	// true 320 CONNECTION_FORCED - maintenance
}

// While the broker blocks publishers, Publish cannot succeed.
func ExampleBroker_Block() {
	TestOrders := func(t *testing.T) {
		rehoptest.Test(t, rehoptest.Config{}, func(t *testing.T, broker *rehoptest.Broker) {
			conn := connect(t, broker) // connection.Open with broker.Dial, and topology.Declare
			publisher, err := producer.New(conn, producer.Config{})
			check(err)
			defer publisher.Close()

			broker.Block("low on memory")
			_, err = publisher.Publish(t.Context(), producer.Message{RoutingKey: "orders"})
			fmt.Println(err != nil)
			broker.Unblock()
			check(publisher.AwaitConnection(t.Context()))
			_, err = publisher.Publish(t.Context(), producer.Message{RoutingKey: "orders"})
			fmt.Println(err)
		})
	}
	run(TestOrders)
	// Output:
	// true
	// <nil>
}

// A queue that does not answer confirms nothing.
func ExampleBroker_Refuse() {
	TestOrders := func(t *testing.T) {
		rehoptest.Test(t, rehoptest.Config{}, func(t *testing.T, broker *rehoptest.Broker) {
			conn := connect(t, broker) // connection.Open with broker.Dial, and topology.Declare
			publisher, err := producer.New(conn, producer.Config{})
			check(err)
			defer publisher.Close()

			fmt.Println(broker.Refuse("orders", true))
			_, err = publisher.Publish(t.Context(), producer.Message{RoutingKey: "orders"})
			fmt.Println(errors.Is(err, producer.ErrUnconfirmed))
			broker.Refuse("orders", false)
		})
	}
	run(TestOrders)
	// Output:
	// true
	// true
}

// Each answer of the broker comes 5 ms late.
func ExampleBroker_Slow() {
	broker, err := rehoptest.NewBroker(rehoptest.Config{})
	check(err)
	ctx, conn, stop := openShop(broker)
	defer stop()
	broker.Slow(5 * time.Millisecond)
	defer broker.Slow(0)

	began := time.Now()
	check(topology.Declare(ctx, conn, topology.Exchange{Name: "shop"}))
	fmt.Println(time.Since(began) >= 5*time.Millisecond)
	// Output: true
}

// An operator deletes by hand. The messages go with their queue.
func ExampleBroker_DeleteQueue() {
	broker, err := rehoptest.NewBroker(rehoptest.Config{})
	check(err)
	ctx, conn, stop := openShop(broker)
	defer stop()
	check(topology.Declare(ctx, conn, topology.Exchange{Name: "shop"},
		topology.WorkQueue{Name: "orders", Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "#"}}}))
	_, err = broker.Publish(rehoptest.Message{Exchange: "shop", RoutingKey: "order.paid"})
	check(err)

	fmt.Println(broker.DeleteExchange("shop"))
	fmt.Println(len(broker.DeleteQueue("orders")), "message")
	fmt.Println(broker.Queues())
	// Output:
	// true
	// 1 message
	// [orders.dlq]
}
