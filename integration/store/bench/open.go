package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/rehop/rehop/integration/store/database"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// openFor is how long the transaction is open.
const openFor = 30 * time.Second

// openTransaction measures Put while a transaction with PutTx is open, and while none is.
func (b *bench) openTransaction(ctx context.Context) error {
	return b.onServers(ctx, func(dialect store.Dialect, _ *database.Server, db *sql.DB, s *store.Store) error {
		for _, open := range []bool{false, true} {
			if err := b.putBeside(ctx, dialect, db, s, open); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *bench) putBeside(ctx context.Context, dialect store.Dialect, db *sql.DB, s *store.Store, open bool) (err error) {
	if open {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		for i := range 100 {
			if _, err := s.PutTx(ctx, tx, producer.Message{RoutingKey: "k", ID: fmt.Sprint("open ", i)}); err != nil {
				return err
			}
		}
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- runForwarder(running, s, taken{}, store.ForwardConfig{}) }()
	defer func() { stop(); err = errors.Join(err, <-done) }()
	var took latencies
	const each = callers * 5 * time.Millisecond // 200/s
	_, err = together(openFor, func(c, i int) error {
		if i == 0 { // not all at the same moment
			<-time.After(time.Duration(c) * 5 * time.Millisecond)
		}
		began := time.Now()
		err := s.Put(ctx, producer.Message{RoutingKey: fmt.Sprint("other ", i%3), ID: fmt.Sprint(open, " ", c, "-", i)}, errAway)
		took.add(time.Since(began))
		<-time.After(each - time.Since(began))
		return err
	})
	row(fmt.Sprintf("%v: Put at 200/s beside Forward, a transaction with PutTx open for %v: %v; p50, p99, max", dialect, openFor, open), "%v", &took)
	return err
}
