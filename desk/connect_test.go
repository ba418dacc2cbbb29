package desk_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/example"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var check = example.Check

// connect connects to a broker in the process, makes dead letters of the queue orders with
// these ids, and a folder for a journal.
func connect(ids ...string) (ctx context.Context, conn *connection.Conn, folder string, stop func()) {
	ctx, conn, end := example.Connect()
	folder, err := os.MkdirTemp("", "desk")
	check(err)
	orders := topology.WorkQueue{Name: "orders", Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}}}
	check(topology.Declare(ctx, conn, topology.Exchange{Name: "shop"}, orders))
	publisher, err := producer.New(conn, producer.Config{})
	check(err)
	for _, id := range ids {
		_, err := publisher.Publish(ctx, producer.Message{ID: id, Exchange: "shop", RoutingKey: "order.paid", Body: []byte("Anna")})
		check(err)
	}
	check(publisher.Close())

	left, done := len(ids), make(chan struct{})
	worker, err := consumer.New(conn, orders, func(context.Context, *consumer.Delivery) error {
		if left--; left == 0 {
			close(done)
		}
		return consumer.DeadLetter(errors.New("no stock"))
	}, consumer.Config{})
	check(err)
	working, enough := context.WithCancel(ctx)
	ran := make(chan error)
	go func() { ran <- worker.Run(working) }()
	if len(ids) > 0 {
		<-done
	}
	enough()
	check(<-ran)
	return ctx, conn, folder, func() {
		end()
		check(os.RemoveAll(folder))
	}
}
