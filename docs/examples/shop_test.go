package examples

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
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

// begin orders
var orders = topology.WorkQueue{
	Name:     "orders",
	Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}},
	Waits:    delay.Default(), // 1m, 5m, 10m, 20m
}

// end orders

// Order is the value that the messages carry.
type Order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
}

var errPaper = errors.New("the printer is out of paper")

// A shop is what the code of a page finds when it begins: a broker, and a connection on which
// nothing is declared yet.
type shop struct {
	*testing.T
	broker *rehoptest.Broker
	conn   *connection.Conn
	ctx    context.Context // ends with the test
}

// inShop runs f in a bubble, where minutes pass in milliseconds.
func inShop(t *testing.T, version string, f func(s *shop)) {
	t.Helper()
	t.Setenv("AMQP_URL", "amqp://guest:guest@broker")
	rehoptest.Test(t, rehoptest.Config{Version: version}, func(t *testing.T, broker *rehoptest.Broker) {
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		conn, err := connection.Open(ctx, connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: broker.Dial})
		check(err)
		t.Cleanup(func() { conn.Close() })
		f(&shop{t, broker, conn, ctx})
	})
}

// declare declares the exchange shop with other things.
func (s *shop) declare(specs ...topology.Spec) {
	s.Helper()
	check(topology.Declare(s.ctx, s.conn, append([]topology.Spec{topology.Exchange{Name: "shop"}}, specs...)...))
}

// producer returns a producer that is closed with the test.
func (s *shop) producer() *producer.Producer {
	s.Helper()
	publisher, err := producer.New(s.conn, producer.Config{})
	check(err)
	s.Cleanup(func() { publisher.Close() })
	return publisher
}

// publish publishes an order.
func (s *shop) publish(m producer.Message) {
	s.Helper()
	if m.RoutingKey == "" {
		m.Exchange, m.RoutingKey = "shop", "order.paid"
	}
	_, err := s.producer().Publish(s.ctx, m)
	check(err)
}

// run runs a consumer until the test ends.
func (s *shop) run(worker *consumer.Consumer) (stop func()) {
	s.Helper()
	return rehoptest.Run(s.T, worker.Run)
}

// after lets time pass.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// ready checks how many messages are ready in a queue.
func (s *shop) ready(queue string, want int) {
	s.Helper()
	q, ok := s.broker.Queue(queue)
	if !ok || len(q.Ready) != want {
		s.Errorf("%d messages are ready in %s, want %d", len(q.Ready), queue, want)
	}
}

// database opens a database with a table of orders.
func (s *shop) database() *sql.DB {
	s.Helper()
	db, err := sqlite.Open(filepath.Join(s.TempDir(), "shop.db"))
	check(err)
	s.Cleanup(func() {
		synctest.Wait() // Once may be at work on its table, in the file that is removed next
		db.Close()
	})
	_, err = db.Exec("CREATE TABLE orders (id TEXT)")
	check(err)
	return db
}

// openStore opens a store in a database.
func openStore(ctx context.Context, db *sql.DB) *store.Store {
	l, err := store.Open(ctx, db, store.SQLite, store.Config{})
	check(err)
	return l
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
