package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
)

// orders measures how long the requests of a service take that write into the file of the
// store, each with a message of PutTx, without Forward and beside it. The three take
// many short turns: how long the disk takes for a commit changes by the second, and a
// turn in which it stands still says nothing about Forward.
func (b *bench) orders(ctx context.Context) error {
	all := []*orders{{name: "without Forward"}, {name: "beside Forward", forward: true}, {name: "beside Forward with KeepOrder", forward: true, ordered: true}}
	for round := range 15 {
		for _, o := range all {
			if err := o.measure(ctx, filepath.Join(b.dir, fmt.Sprintf("orders-%v-%v-%d.db", o.forward, o.ordered, round))); err != nil {
				return err
			}
		}
	}
	for _, o := range all {
		slices.Sort(o.waits)
		at := func(of int) time.Duration { return o.waits[len(o.waits)*of/4].Round(time.Millisecond) }
		row("orders at 50/s, "+o.name+": waiting for the file in all requests of a turn of 2 s, quartiles", "%v, %v, %v", at(1), at(2), at(3))
		row("orders at 50/s, "+o.name+": p50, p99, max", "%v; %d took more than 300 ms, %d failed", &o.took, o.slow.Load(), o.refused.Load())
	}
	return nil
}

// orders are requests beside a Forward, or beside none.
type orders struct {
	name             string
	forward, ordered bool
	took             latencies
	waits            []time.Duration // for the file, in each turn
	slow, refused    atomic.Int64
}

// measure takes orders for one turn.
func (o *orders) measure(ctx context.Context, path string) (err error) {
	db, err := sqlite.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	s, err := store.Open(ctx, db, store.SQLite, store.Config{KeepOrder: o.ordered})
	if err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE orders (id TEXT PRIMARY KEY, customer TEXT)"); err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		if o.forward {
			done <- runForwarder(running, s, taken{}, store.ForwardConfig{})
		} else {
			done <- nil
		}
	}()
	defer func() { stop(); err = errors.Join(err, <-done) }()
	var waited atomic.Int64
	const each = callers * 20 * time.Millisecond // 50 orders/s
	_, err = together(2*time.Second, func(c, i int) error {
		if i == 0 { // not all at the same moment
			<-time.After(time.Duration(c) * 20 * time.Millisecond)
		}
		began := time.Now()
		err := order(ctx, db, s, &waited, fmt.Sprint(c, "-", i), fmt.Sprint("customer ", c%20))
		long := time.Since(began)
		if o.took.add(long); long > 300*time.Millisecond {
			o.slow.Add(1)
		}
		<-time.After(each - long)
		if err != nil && strings.Contains(err.Error(), "locked") { // after 5 s
			o.refused.Add(1)
			return nil
		}
		return err
	})
	o.waits = append(o.waits, time.Duration(waited.Load()))
	return err
}

// order is a request. It adds to waited how long it has waited for the file.
func order(ctx context.Context, db *sql.DB, s *store.Store, waited *atomic.Int64, id, customer string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	began := time.Now()
	_, err = tx.ExecContext(ctx, "INSERT INTO orders VALUES (?, ?)", id, customer)
	if waited.Add(int64(time.Since(began))); err != nil {
		return err
	}
	if _, err := s.PutTx(ctx, tx, producer.Message{Exchange: "shop", RoutingKey: "order.taken", OrderKey: customer, ID: id, Body: make([]byte, 256)}); err != nil {
		return err
	}
	return tx.Commit()
}
