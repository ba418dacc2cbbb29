package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// A store is the fallback of a producer: a message that the broker does not take is an entry.
func ExampleOpen() {
	ctx, conn, db, stop := connect() // db is of sqlite.Open
	defer stop()
	outbox, err := store.Open(ctx, db, store.SQLite, store.Config{})
	check(err)
	publisher, err := producer.New(conn, producer.Config{Fallback: []producer.Sink{outbox}})
	check(err)
	defer publisher.Close()

	receipt, err := publisher.Publish(ctx, producer.Message{ID: "order-7", RoutingKey: "oders"}) // there is no such queue
	fmt.Println(receipt.Place, receipt.Sink, err)
	found, _, err := outbox.Find(ctx, store.Query{})
	check(err)
	fmt.Println(found[0].Message.ID, found[0].State, found[0].Cause)
	// Output:
	// fallback store <nil>
	// order-7 held unroutable
}

// The error of the publish decides whether an entry is forwarded by itself.
func ExampleStore_Put() {
	ctx, _, db, stop := connect()
	defer stop()
	outbox, err := store.Open(ctx, db, store.SQLite, store.Config{})
	check(err)

	check(outbox.Put(ctx, producer.Message{ID: "order-7", RoutingKey: "orders"}, errAway))
	check(outbox.Put(ctx, producer.Message{ID: "order-8", RoutingKey: "oders"}, producer.ErrReturned))
	found, _, err := outbox.Find(ctx, store.Query{})
	check(err)
	for _, l := range found {
		fmt.Println(l.Message.ID, l.State)
	}
	// Output:
	// order-7 ready
	// order-8 held
}

// The Forwarder publishes entries for as long as a service runs.
func ExampleForwarder_Run() {
	ctx, conn, db, stop := connect()
	defer stop()
	check(topology.Declare(ctx, conn, topology.WorkQueue{Name: "orders"}))
	outbox, err := store.Open(ctx, db, store.SQLite, store.Config{})
	check(err)
	check(outbox.Put(ctx, producer.Message{ID: "order-7", RoutingKey: "orders"}, errAway))

	publisher, err := producer.New(conn, producer.Config{}) // without a Fallback
	check(err)
	defer publisher.Close()
	ctx, done := context.WithCancel(ctx)
	forwarder, err := outbox.NewForwarder(publisher, store.ForwardConfig{Traces: []store.ForwardTrace{{
		Forwarded: func(_ context.Context, f store.Forwarded) {
			fmt.Println(f.Entry.Message.ID, f.Receipt.Place)
			done()
		},
	}}})
	check(err)
	check(forwarder.Run(ctx))
	// Output: order-7 queue
}

// A Forwarder has a Health, and is a part of a service.Service.
func ExampleStore_NewForwarder() {
	ctx, conn, db, stop := connect()
	defer stop()
	outbox, err := store.Open(ctx, db, store.SQLite, store.Config{})
	check(err)
	publisher, err := producer.New(conn, producer.Config{})
	check(err)
	defer publisher.Close()

	forwarder, err := outbox.NewForwarder(publisher, store.ForwardConfig{Rate: 100})
	check(err)
	fmt.Println(rehop.Ready(forwarder.Health())) // before Run
	ctx, done := context.WithCancel(ctx)
	done()
	fmt.Println(forwarder.Run(ctx))
	// Output:
	// false
	// <nil>
}

// The order and its message are committed together, or neither is.
func ExampleStore_PutTx() {
	ctx, _, db, stop := connect()
	defer stop()
	outbox, err := store.Open(ctx, db, store.SQLite, store.Config{})
	check(err)

	tx, err := db.BeginTx(ctx, nil)
	check(err)
	defer tx.Rollback()
	_, err = tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", "order-7")
	check(err)
	_, err = outbox.PutTx(ctx, tx, producer.Message{ID: "order-7", Exchange: "shop", RoutingKey: "order.taken"})
	check(err)
	check(tx.Commit())

	n, err := outbox.Count(ctx, store.Query{States: []store.State{store.Ready}})
	fmt.Println(n, err)
	// Output: 1 <nil>
}

// A reminder is stored until it is due, or cancelled.
func ExampleStore_PutAt() {
	ctx, _, db, stop := connect()
	defer stop()
	outbox, err := store.Open(ctx, db, store.SQLite, store.Config{})
	check(err)

	id, err := outbox.PutAt(ctx, time.Now().Add(48*time.Hour), producer.Message{Exchange: "shop", RoutingKey: "order.remind"})
	check(err)
	n, err := outbox.Cancel(ctx, id)
	fmt.Println(n, err)
	n, err = outbox.Cancel(ctx, id) // it is cancelled already
	fmt.Println(n, err)
	// Output:
	// 1 <nil>
	// 0 <nil>
}

// The payment and the end of its reminder are committed together.
func ExampleStore_CancelTx() {
	ctx, _, db, stop := connect()
	defer stop()
	outbox, err := store.Open(ctx, db, store.SQLite, store.Config{})
	check(err)
	id, err := outbox.PutAt(ctx, time.Now().Add(48*time.Hour), producer.Message{Exchange: "shop", RoutingKey: "order.remind"})
	check(err)

	tx, err := db.BeginTx(ctx, nil)
	check(err)
	defer tx.Rollback()
	_, err = tx.ExecContext(ctx, "DELETE FROM orders WHERE id = ?", "order-7")
	check(err)
	n, err := outbox.CancelTx(ctx, tx, id)
	check(err)
	fmt.Println(n, tx.Commit())
	// Output: 1 <nil>
}

// With KeepOrder a new message waits behind the entries of its line.
func ExampleStore_PutBehind() {
	ctx, _, db, stop := connect()
	defer stop()
	outbox, err := store.Open(ctx, db, store.SQLite, store.Config{KeepOrder: true})
	check(err)
	check(outbox.Put(ctx, producer.Message{RoutingKey: "orders", OrderKey: "anna"}, errAway))

	for _, key := range []string{"anna", "bob"} {
		stored, err := outbox.PutBehind(ctx, producer.Message{RoutingKey: "orders", OrderKey: key})
		fmt.Println(key, stored, err)
	}
	// Output:
	// anna true <nil>
	// bob false <nil>
}

// Collect is the handler of a dead-letter queue.
func ExampleStore_Collect() {
	ctx, conn, db, stop := connect()
	defer stop()
	letters, err := store.Open(ctx, db, store.SQLite, store.Config{})
	check(err)
	orders := topology.WorkQueue{Name: "orders"}
	worker, err := consumer.New(conn, orders.DeadLetterQueue(), letters.Collect, consumer.Config{Concurrency: 50})
	check(err)
	_ = worker // worker.Run(ctx) calls Collect with each dead letter

	check(letters.Collect(ctx, &consumer.Delivery{
		ID:      "order-7",
		History: xdeath.History{Queue: "orders", Failure: xdeath.Failure{Cause: rehop.CauseExhausted, Error: "no stock"}},
	}))
	found, _, err := letters.Find(ctx, store.Query{Queue: "orders"})
	check(err)
	fmt.Println(found[0].Message.ID, found[0].State, found[0].Error)
	// Output: order-7 held no stock
}

// A loop reads all entries, a page at a time.
func ExampleStore_Find() {
	ctx, _, db, stop := connect()
	defer stop()
	letters, err := store.Open(ctx, db, store.SQLite, store.Config{})
	check(err)
	die(ctx, letters, "order-7", "order-8", "order-9")

	q := store.Query{Queue: "orders", Limit: 2}
	for {
		page, next, err := letters.Find(ctx, q)
		check(err)
		for _, l := range page {
			fmt.Println(l.Message.ID, l.Error)
		}
		if next == 0 {
			return
		}
		q.After = next
	}
	// Output:
	// order-7 no stock
	// order-8 no stock
	// order-9 no stock
}

// Groups are the entries by the reason of their failure. Replay sends those of one group
// back, after the bug is mended.
func ExampleStore_Replay() {
	ctx, conn, db, stop := connect()
	defer stop()
	check(topology.Declare(ctx, conn, topology.WorkQueue{Name: "orders"}))
	publisher, err := producer.New(conn, producer.Config{})
	check(err)
	defer publisher.Close()
	letters, err := store.Open(ctx, db, store.SQLite, store.Config{})
	check(err)
	die(ctx, letters, "order-7", "order-8")

	groups, _, err := letters.Groups(ctx, store.Query{Queue: "orders"})
	check(err)
	fmt.Println(groups[0].Count, groups[0].Example.Error)
	report, err := letters.Replay(ctx, publisher, store.Query{Fingerprint: groups[0].Fingerprint}, store.ReplayOptions{Rate: 100})
	fmt.Println(report.Sent, report.Failed, err)
	// Output:
	// 2 no stock
	// 2 0 <nil>
}

// A person puts a message right before it is sent back.
func ExampleStore_Edit() {
	ctx, _, db, stop := connect()
	defer stop()
	letters, err := store.Open(ctx, db, store.SQLite, store.Config{})
	check(err)
	die(ctx, letters, "order-7")
	found, _, err := letters.Find(ctx, store.Query{MessageIDs: []string{"order-7"}})
	check(err)

	check(letters.Edit(ctx, found[0].Number, func(m *producer.Message) error {
		m.Body = bytes.ReplaceAll(m.Body, []byte("artikel"), []byte("article"))
		return nil
	}))
	found, _, err = letters.Find(ctx, store.Query{Text: "article"})
	check(err)
	fmt.Printf("%s\n", found[0].Message.Body)
	// Output: one article
}

// The state of an entry says whether it waits for a person, is published, or is kept.
func ExampleStore_Park() {
	ctx, _, db, stop := connect()
	defer stop()
	letters, err := store.Open(ctx, db, store.SQLite, store.Config{})
	check(err)
	die(ctx, letters, "order-7", "order-8")
	one, all := store.Query{MessageIDs: []string{"order-7"}}, store.Query{Queue: "orders"}

	fmt.Println(letters.Park(ctx, one))    // nothing forwards it
	fmt.Println(letters.Release(ctx, one)) // the Forwarder publishes it
	fmt.Println(letters.Archive(ctx, all)) // kept for the record
	fmt.Println(letters.Delete(ctx, all))
	fmt.Println(letters.Delete(ctx, store.Query{})) // refused: it selects everything
	// Output:
	// 1 <nil>
	// 1 <nil>
	// 2 <nil>
	// 2 <nil>
	// 0 store: Query names no entries but by state, time or After; want another condition, or All
}

// Count is exact, and CountUpTo is quick.
func ExampleStore_Count() {
	ctx, _, db, stop := connect()
	defer stop()
	letters, err := store.Open(ctx, db, store.SQLite, store.Config{})
	check(err)
	die(ctx, letters, "order-7", "order-8", "order-9")

	n, err := letters.Count(ctx, store.Query{Queue: "orders"})
	fmt.Println(n, err)
	n, more, err := letters.CountUpTo(ctx, store.Query{Queue: "orders"}, 2)
	fmt.Println(n, more, err)
	// Output:
	// 3 <nil>
	// 2 true <nil>
}

// The failures of a day, hour by hour, tell whether a mend has helped.
func ExampleStore_Trend() {
	ctx, _, db, stop := connect()
	defer stop()
	letters, err := store.Open(ctx, db, store.SQLite, store.Config{})
	check(err)
	die(ctx, letters, "order-7", "order-8") // at noon

	from := time.Date(2026, 7, 1, 10, 0, 0, 0, time.UTC)
	counts, more, err := letters.Trend(ctx, store.Query{Queue: "orders"}, from, from.Add(4*time.Hour), 4)
	fmt.Println(counts, more, err)
	// Output: [0 0 2 0] false <nil>
}

// The handler's writes are committed once for each message, however often it is delivered.
func ExampleStore_OnceHandler() {
	ctx, _, db, stop := connect()
	defer stop()
	outbox, err := store.Open(ctx, db, store.SQLite, store.Config{})
	check(err)
	handler := consumer.Wrap(func(ctx context.Context, d *consumer.Delivery) error {
		fmt.Println("handled", d.ID)
		_, err := store.TxFrom(ctx).ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", d.ID)
		return err
	}, outbox.OnceHandler)

	d := &consumer.Delivery{Queue: "orders", ID: "order-7"}
	fmt.Println(handler(ctx, d))
	fmt.Println(handler(ctx, d))
	// Output:
	// handled order-7
	// <nil>
	// <nil>
}

// A handler that has a transaction of its own calls Once first.
func ExampleStore_Once() {
	ctx, _, db, stop := connect()
	defer stop()
	outbox, err := store.Open(ctx, db, store.SQLite, store.Config{})
	check(err)
	handler := func(ctx context.Context, d *consumer.Delivery) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		first, err := outbox.Once(ctx, tx, d.Queue, d.ID)
		fmt.Println(first, err)
		if err != nil || !first {
			return err // nil for a message that was handled before
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", d.ID); err != nil {
			return err
		}
		return tx.Commit()
	}
	d := &consumer.Delivery{Queue: "orders", ID: "order-7"}
	check(errors.Join(handler(ctx, d), handler(ctx, d)))
	// Output:
	// true <nil>
	// false <nil>
}

// A batch shares one transaction. The error of a message undoes the work of this message
// alone.
func ExampleStore_OnceBatch() {
	ctx, _, db, stop := connect()
	defer stop()
	outbox, err := store.Open(ctx, db, store.SQLite, store.Config{})
	check(err)
	handler := outbox.OnceBatch(func(ctx context.Context, d *consumer.Delivery) error {
		if len(d.Body) == 0 {
			return consumer.DeadLetter(errors.New("an empty order"))
		}
		_, err := store.TxFrom(ctx).ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", d.ID)
		return err
	})

	batch := []*consumer.Delivery{
		{Queue: "orders", ID: "order-7", Body: []byte("Anna")},
		{Queue: "orders", ID: "order-8"},
	}
	fmt.Println(handler(ctx, batch), batch[0].Err(), batch[1].Err())
	var n int
	check(db.QueryRowContext(ctx, "SELECT count(*) FROM orders").Scan(&n))
	fmt.Println(n, "row")
	// Output:
	// <nil> <nil> an empty order
	// 1 row
}
