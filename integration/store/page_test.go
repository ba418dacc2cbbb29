package store_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/topology"
)

// Order is the value that the messages carry.
type Order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// The web service of docs/outbox.md stores each order and its message once, while the broker is away too.
func TestTheWebServiceOfThePage(t *testing.T) {
	onOnly(t, store.PostgreSQL, func(t *testing.T, p place) { testTheWebServiceOfThePage(t, p.source) })
}

func testTheWebServiceOfThePage(t *testing.T, databaseURL string) {
	broker, err := rehoptest.NewBroker(rehoptest.Config{})
	check(err)
	defer broker.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: broker.Dial})
	check(err)
	defer conn.Close()
	bills := topology.WorkQueue{Name: "bills", Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}}}
	check(topology.Declare(ctx, conn, topology.Exchange{Name: "shop"}, bills))
	mux := http.NewServeMux()
	// begin web
	db, err := sql.Open("pgx", databaseURL) // with the import _ "github.com/jackc/pgx/v5/stdlib"
	check(err)
	outbox, err := store.Open(ctx, db, store.PostgreSQL, store.Config{Conn: conn, KeepOrder: true}) // in each process; makes its tables
	check(err)

	take := func(ctx context.Context, o Order) error {
		m, err := producer.Message{Exchange: "shop", RoutingKey: "order.taken", ID: "order-" + o.ID, OrderKey: o.Customer}.JSON(o)
		if err != nil {
			return err
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if first, err := outbox.Once(ctx, tx, "POST /orders", o.ID); err != nil || !first {
			return err // nil for an order that was taken before
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES ($1)", o.ID); err != nil {
			return err
		}
		if _, err := outbox.PutTx(ctx, tx, m); err != nil {
			return err
		}
		return tx.Commit()
	}
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		var o Order
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.ID == "" || len(o.ID) > 200 {
			http.Error(w, "want an order with an id as JSON", http.StatusBadRequest)
		} else if err := take(r.Context(), o); err != nil {
			http.Error(w, "try again", http.StatusServiceUnavailable)
		} else {
			w.WriteHeader(http.StatusAccepted) // order and message are in the database, with or without a broker
		}
	})

	plain, err := producer.New(conn, producer.Config{}) // without a Fallback
	check(err)
	forwarder, err := outbox.NewForwarder(plain, store.ForwardConfig{})
	check(err)
	go forwarder.Run(ctx) // in one process or in each
	// end web
	defer func() {
		cancel()
		poll.Until(t, time.Minute, "the forwarder has ended", func() bool {
			var h *rehop.HealthError
			return errors.As(forwarder.Health(), &h) && !h.Degraded
		})
		plain.Close()
		db.Close()
	}()
	_, err = db.ExecContext(ctx, "CREATE TABLE orders (id TEXT PRIMARY KEY)")
	check(err)
	_, err = db.ExecContext(ctx, "CREATE TABLE bills (id TEXT PRIMARY KEY)")
	check(err)

	broker.Stop()
	for _, body := range []string{`{"id":"7"}`, `{"id":"7"}`, `{"id":"8"}`, `{}`, `none`} {
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body)))
		if want := map[bool]int{true: 202, false: 400}[strings.Contains(body, "id")]; answer.Code != want {
			t.Fatalf("%s: answer %d, want %d", body, answer.Code, want)
		}
	}
	broker.Start()

	handled := make(chan string, 10)
	note := outbox.OnceHandler(consumer.JSON(func(ctx context.Context, d *consumer.Delivery, o Order) error {
		_, err := store.TxFrom(ctx).ExecContext(ctx, "INSERT INTO bills (id) VALUES ($1)", o.ID)
		return err
	}))
	worker, err := consumer.New(conn, bills, func(ctx context.Context, d *consumer.Delivery) error {
		err := note(ctx, d)
		if err == nil {
			handled <- d.ID
		}
		return err
	}, consumer.Config{})
	check(err)
	stop := rehoptest.Run(t, worker.Run)
	for range 2 {
		select {
		case <-handled:
		case <-ctx.Done():
			t.Fatal("the bills were not written")
		}
	}
	stop()
	var orders, written int
	check(db.QueryRowContext(ctx, "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM bills)").Scan(&orders, &written))
	if orders != 2 || written != 2 {
		t.Errorf("%d orders and %d bills, want 2 and 2", orders, written)
	}
}
