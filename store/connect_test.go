package store_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/example"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/xdeath"
)

// sqlite stands for package store/sqlite, which this module does not depend on. A test of
// the docs sets Open, and runs the examples.
var sqlite struct {
	Open func(path string) (*sql.DB, error)
}

func TestMain(m *testing.M) {
	flag.Parse()
	if sqlite.Open == nil {
		check(flag.Set("test.skip", "^Example"))
	}
	goleak.VerifyTestMain(m)
}

var check = example.Check

// connect connects to a broker in the process, and opens a database with a table of orders.
func connect() (ctx context.Context, conn *connection.Conn, db *sql.DB, stop func()) {
	ctx, conn, end := example.Connect()
	folder, err := os.MkdirTemp("", "store")
	check(err)
	db, err = sqlite.Open(filepath.Join(folder, "shop.db"))
	check(err)
	_, err = db.ExecContext(ctx, "CREATE TABLE orders (id TEXT)")
	check(err)
	return ctx, conn, db, func() {
		end()
		check(db.Close())
		check(os.RemoveAll(folder))
	}
}

// die puts dead letters of the queue orders into a store, as a consumer would.
func die(ctx context.Context, letters *store.Store, ids ...string) {
	for _, id := range ids {
		check(letters.Collect(ctx, &consumer.Delivery{
			ID: id, Queue: "orders.dlq", Exchange: "shop", RoutingKey: "order.paid", Body: []byte("one artikel"),
			History: xdeath.History{
				Queue: "orders", Exchange: "shop", RoutingKey: "order.paid", FinalAttempts: 5,
				Failure: xdeath.Failure{Cause: rehop.CauseExhausted, Error: "no stock", At: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)},
			},
		}))
	}
}

// errAway is the error of a publish while the broker is away.
var errAway = errors.New("the broker is away")
