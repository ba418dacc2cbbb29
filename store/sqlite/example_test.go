package sqlite_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
)

// A message is delivered twice, and the handler's work is done once.
func Example_once() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "shop")
	check(err)
	defer os.RemoveAll(folder)
	db, err := sqlite.Open(filepath.Join(folder, "shop.db"))
	check(err)
	defer db.Close()
	_, err = db.ExecContext(ctx, "CREATE TABLE orders (id TEXT)")
	check(err)
	letters, err := store.Open(ctx, db, store.SQLite, store.Config{})
	check(err)

	handler := consumer.Wrap(func(ctx context.Context, d *consumer.Delivery) error {
		fmt.Println("handled:", d.ID)
		_, err := store.TxFrom(ctx).ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", d.ID)
		return err
	}, letters.OnceHandler)

	d := &consumer.Delivery{Queue: "orders", ID: "order-7"} // a consumer makes it of a message
	fmt.Println(handler(ctx, d), handler(ctx, d))

	var n int
	check(db.QueryRowContext(ctx, "SELECT count(*) FROM orders").Scan(&n))
	fmt.Println("orders:", n)
	// Output:
	// handled: order-7
	// <nil> <nil>
	// orders: 1
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// One file holds the letters of a program.
func ExampleOpen() {
	folder, err := os.MkdirTemp("", "shop")
	check(err)
	defer os.RemoveAll(folder)
	db, err := sqlite.Open(filepath.Join(folder, "letters.db"))
	check(err)
	defer db.Close()

	ctx := context.Background()
	letters, err := store.Open(ctx, db, store.SQLite, store.Config{})
	check(err)
	n, err := letters.Count(ctx, store.Query{})
	fmt.Println(n, err)
	// Output: 0 <nil>
}

// A program that only looks opens what is there, and makes nothing.
func ExampleOpenReadOnly() {
	folder, err := os.MkdirTemp("", "shop")
	check(err)
	defer os.RemoveAll(folder)
	name := filepath.Join(folder, "shop.db")
	_, err = sqlite.OpenReadOnly(name)
	fmt.Println("a slip:", err != nil)

	db, err := sqlite.Open(name)
	check(err)
	check(db.Close())
	db, err = sqlite.OpenReadOnly(name)
	check(err)
	defer db.Close()
	_, err = store.Open(context.Background(), db, store.SQLite, store.Config{Existing: true})
	fmt.Println(err)
	// Output:
	// a slip: true
	// store: the database is no store: it has no table rehop_letters of this package
}
