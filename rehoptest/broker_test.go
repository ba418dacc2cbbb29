package rehoptest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFailsUntilDead(t *testing.T) {
	for _, version := range []string{"3.10", "4.0", "4.3"} {
		for _, kind := range []topology.QueueType{topology.Classic, topology.Quorum} {
			t.Run(version+" "+string(kind), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { failsUntilDead(t, version, kind) })
			})
		}
	}
}

func failsUntilDead(t *testing.T, version string, kind topology.QueueType) {
	b, err := rehoptest.NewBroker(rehoptest.Config{Version: version})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: b.Dial})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	orders := topology.WorkQueue{Name: "orders", Type: kind, Waits: delay.Default(), Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}}}
	if err := topology.Declare(t.Context(), conn, topology.Exchange{Name: "shop"}, orders); err != nil {
		t.Fatal(err)
	}
	publisher, err := producer.New(conn, producer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer publisher.Close()
	receipt, err := publisher.Publish(t.Context(), producer.Message{Exchange: "shop", RoutingKey: "order.paid", Body: []byte("42")})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	var at []time.Duration
	c, err := consumer.New(conn, orders, func(context.Context, *consumer.Delivery) error {
		at = append(at, time.Since(start).Round(time.Second))
		return context.DeadlineExceeded
	}, consumer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	time.Sleep(37 * time.Minute)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	q, ok := b.Queue("orders.dlq")
	if !ok || len(q.Ready) != 1 || len(at) != 5 {
		t.Fatalf("%v %d letters, attempts at %v, %v\n%s", ok, len(q.Ready), at, b.Queues(), b.Story(receipt.ID))
	}
	t.Logf("%v\n%s", at, b.Story(receipt.ID))
}
