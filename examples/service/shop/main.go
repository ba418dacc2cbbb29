// Shop takes orders over HTTP. An order and its message are one transaction, so a shop
// that answers 202 has both, with or without a broker.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/rehop/rehop/examples/service/order"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/service"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
)

func main() { order.Main(run) }

func run(ctx context.Context) error {
	db, err := sqlite.Open(os.Getenv("SHOP_DB"))
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, customer TEXT, number INTEGER)"); err != nil {
		return err
	}
	conn, err := order.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	outbox, err := store.Open(ctx, db, store.SQLite, store.Config{KeepOrder: true, Conn: conn})
	if err != nil {
		return err
	}
	publisher, err := producer.New(conn, producer.Config{})
	if err != nil {
		return err
	}
	defer publisher.Close()
	forwarder, err := outbox.NewForwarder(publisher, store.ForwardConfig{})
	if err != nil {
		return err
	}

	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		var o order.Order
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			http.Error(w, "want an order as JSON", http.StatusBadRequest)
		} else if err := take(r.Context(), db, outbox, o); err != nil {
			slog.Error("order not taken", "id", o.ID, "error", err)
			http.Error(w, "try again", http.StatusServiceUnavailable)
		} else {
			w.WriteHeader(http.StatusAccepted)
		}
	})
	web := &http.Server{Addr: os.Getenv("SHOP_ADDR"), Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	return service.Service{Stages: [][]service.Part{
		{service.Server(web.ListenAndServe, web.Shutdown)},
		{forwarder},
	}}.Run(ctx)
}

// take stores an order and its message. An order that comes again changes nothing.
func take(ctx context.Context, db *sql.DB, outbox *store.Store, o order.Order) error {
	m, err := producer.Message{Exchange: order.Exchange, RoutingKey: order.Placed, ID: o.ID, OrderKey: o.Customer}.JSON(o)
	if err != nil {
		return err
	}
	if o.VIP {
		m.Priority = 9
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	if first, err := outbox.Once(ctx, tx, "POST /orders", o.ID); err != nil || !first {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, customer, number) VALUES (?, ?, ?)", o.ID, o.Customer, o.Number); err != nil {
		return err
	}
	if _, err := outbox.PutTx(ctx, tx, m); err != nil {
		return err
	}
	return tx.Commit()
}
