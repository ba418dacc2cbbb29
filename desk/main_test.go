package desk

import (
	"context"
	"fmt"
	"net"
	"os"
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

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fixture is a broker in the process, in a bubble.
type fixture struct {
	*testing.T
	broker  *rehoptest.Broker
	conn    *connection.Conn
	journal *Journal
}

var versions = []string{"3.10", "4.0", "4.3"}

// onEach runs a test on each version of the broker.
func onEach(t *testing.T, do func(w *fixture)) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) { inBubble(t, version, do) })
	}
}

func inBubble(t *testing.T, version string, do func(w *fixture)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		broker, err := rehoptest.NewBroker(rehoptest.Config{Version: version})
		must(t, err)
		defer broker.Close()
		w := &fixture{T: t, broker: broker}
		w.conn = w.connect()
		defer w.conn.Close()
		w.journal, err = OpenJournal(dir)
		must(t, err)
		do(w)
	})
}

func (w *fixture) connect() *connection.Conn {
	conn, err := connection.Open(w.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: w.broker.Dial})
	must(w.T, err)
	return conn
}

// dead makes a queue of dead letters, and a work queue that they are of.
func (w *fixture) dead(letters ...producer.Message) {
	w.Helper()
	orders := topology.WorkQueue{Name: "orders", Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}}}
	must(w.T, topology.Declare(w.Context(), w.conn, topology.Exchange{Name: "shop"}, orders))
	p, err := producer.New(w.conn, producer.Config{})
	must(w.T, err)
	for _, m := range letters {
		_, err := p.Publish(w.Context(), m)
		must(w.T, err)
	}
	must(w.T, p.Close())
	w.consume(len(letters), func(d *consumer.Delivery) error {
		return consumer.DeadLetter(fmt.Errorf("%s", d.Headers["why"]))
	})
	w.has("orders.dlq", len(letters))
}

// consume handles n messages of the work queue.
func (w *fixture) consume(n int, handle func(*consumer.Delivery) error) {
	w.Helper()
	ctx, stop := context.WithCancel(w.Context())
	defer stop()
	handled := make(chan struct{}, n+10)
	c, err := consumer.New(w.conn, topology.WorkQueue{Name: "orders"}, func(_ context.Context, d *consumer.Delivery) error {
		defer func() { handled <- struct{}{} }()
		return handle(d)
	}, consumer.Config{})
	must(w.T, err)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	for range n {
		select {
		case <-handled:
		case <-time.After(time.Minute):
			w.Fatal("not all messages were handled")
		}
	}
	stop()
	must(w.T, <-ended)
}

// has checks how many messages are ready in a queue.
func (w *fixture) has(queue string, n int) {
	w.Helper()
	time.Sleep(time.Second)
	q, _ := w.broker.Queue(queue)
	if len(q.Ready) != n || len(q.Unacked) != 0 {
		w.Errorf("queue %s has %d letters and %d unacked, want %d", queue, len(q.Ready), len(q.Unacked), n)
	}
}

func (w *fixture) ids(queue string) string {
	q, _ := w.broker.Queue(queue)
	var ids []string
	for _, m := range q.Ready {
		ids = append(ids, m.MessageId)
	}
	return fmt.Sprint(ids)
}

func (w *fixture) live() *Live {
	w.Helper()
	l, err := NewLive(w.conn, "orders.dlq", LiveConfig{Journal: w.journal})
	must(w.T, err)
	return l
}

// orders are n messages that fail, every other one for want of stock.
func orders(n int) []producer.Message {
	var all []producer.Message
	for i := range n {
		why := "no stock"
		if i%2 == 1 {
			why = "no such customer"
		}
		all = append(all, producer.Message{Exchange: "shop", RoutingKey: "order.paid", ID: fmt.Sprint("m-", i), Body: fmt.Appendf(nil, "order %d", i), Headers: amqp.Table{"why": why, "n": int64(i)}})
	}
	return all
}

func dialer(w *fixture) func(network, address string) (net.Conn, error) {
	return func(network, address string) (net.Conn, error) { return w.broker.Dial(w.Context(), network, address) }
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	must(t, err)
	return text
}

func address(queue string) *topology.Address { return &topology.Address{RoutingKey: queue} }
