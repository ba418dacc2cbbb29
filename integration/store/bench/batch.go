package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/store/database"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/topology"
)

// batches compares consumers that write a row for each message, once, into SQLite: in a
// transaction each, and in one for 100 of them.
func (b *bench) batches(ctx context.Context) error {
	conn, err := b.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	const size = 100
	plain, err := b.consumed(ctx, conn, "one", 3000, func(s *store.Store, w topology.Source, insert consumer.Handler) (*consumer.Consumer, error) {
		return consumer.New(conn, w, s.OnceHandler(insert), consumer.Config{Concurrency: 16})
	})
	if err != nil {
		return err
	}
	row("messages consumed, each with a row in a transaction of its own (OnceHandler)", "%.0f/s, %v of CPU each", plain.rate, plain.each)
	for _, tt := range []struct {
		name, what string
		keys       int
	}{{"batch", "100 to a transaction (NewBatch, OnceBatch)", 0}, {"keyed", "the same with KeyLimit 1 and 1,000 keys", 1}} {
		many, err := b.consumed(ctx, conn, tt.name, 30_000, func(s *store.Store, w topology.Source, insert consumer.Handler) (*consumer.Consumer, error) {
			return consumer.NewBatch(conn, w, s.OnceBatch(insert), consumer.Batch{Size: size, Linger: 10 * time.Millisecond}, consumer.Config{KeyLimit: tt.keys})
		})
		if err != nil {
			return err
		}
		row("messages consumed, "+tt.what, "%.0f/s, %.1f times one by one, %v of CPU each", many.rate, many.rate/plain.rate, many.each)
	}
	return nil
}

// once measures OnceHandler and OnceBatch with a row of the handler's own for each message,
// without a broker: OnceHandler from 16 callers at a time, OnceBatch in transactions of 100.
func (b *bench) once(ctx context.Context) error {
	if strings.Contains(b.on, string(store.SQLite)) {
		db, s, err := b.open(ctx, "once.db")
		if err != nil {
			return err
		}
		if err := errors.Join(b.onceOf(ctx, store.SQLite, db, s), db.Close()); err != nil {
			return err
		}
	}
	return b.onServers(ctx, func(dialect store.Dialect, _ *database.Server, db *sql.DB, s *store.Store) error {
		return b.onceOf(ctx, dialect, db, s)
	})
}

func (b *bench) onceOf(ctx context.Context, dialect store.Dialect, db *sql.DB, s *store.Store) error {
	orders := map[store.Dialect]string{
		store.SQLite: "CREATE TABLE orders (id TEXT PRIMARY KEY, body BLOB)", store.MySQL: "CREATE TABLE orders (id VARCHAR(64) PRIMARY KEY, body BLOB)",
		store.PostgreSQL: "CREATE TABLE orders (id TEXT PRIMARY KEY, body BYTEA)",
	}
	if _, err := db.ExecContext(ctx, orders[dialect]); err != nil {
		return err
	}
	const abreast, long = 16, 5 * time.Second
	insert := insert(dialect)
	var n atomic.Int64
	body := make([]byte, bodySize)
	next := func() *consumer.Delivery {
		return &consumer.Delivery{Queue: "orders", ID: fmt.Sprint(n.Add(1)), Body: body, Attempt: 1}
	}
	for _, measured := range []struct {
		what    string
		callers int
		run     func() error
	}{
		{fmt.Sprintf("OnceHandler from %d callers", abreast), abreast, func() error { return s.OnceHandler(insert)(ctx, next()) }},
		{"OnceHandler from one caller", 1, func() error { return s.OnceHandler(insert)(ctx, next()) }},
		{"OnceBatch of 100", 1, func() error {
			batch := make([]*consumer.Delivery, 100)
			for i := range batch {
				batch[i] = next()
			}
			err := s.OnceBatch(insert)(ctx, batch)
			for _, d := range batch {
				err = errors.Join(err, d.Err())
			}
			return err
		}},
	} {
		if dialect == store.SQLite && measured.callers > 1 {
			continue // which has one writer at a time
		}
		var all sync.WaitGroup
		errs := make([]error, measured.callers)
		before, began, spent := n.Load(), time.Now(), cpu()
		for c := range measured.callers {
			all.Go(func() {
				for errs[c] == nil && time.Since(began) < long {
					errs[c] = measured.run()
				}
			})
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		took, used, handled := time.Since(began), cpu()-spent, n.Load()-before
		row(fmt.Sprintf("%v: %s, each with a row of its own, without a broker", dialect, measured.what), "%.0f/s, %v of CPU each", float64(handled)/took.Seconds(), used/time.Duration(handled))
	}
	return nil
}

// insert returns a handler that writes a row.
func insert(dialect store.Dialect) consumer.Handler {
	statement := "INSERT INTO orders (id, body) VALUES (?, ?)"
	if dialect == store.PostgreSQL {
		statement = "INSERT INTO orders (id, body) VALUES ($1, $2)"
	}
	return func(ctx context.Context, d *consumer.Delivery) error {
		_, err := store.TxFrom(ctx).ExecContext(ctx, statement, d.ID, d.Body)
		return err
	}
}

// speed is how fast messages are consumed, and the time of the processor that each takes
// in this process.
type speed struct {
	rate float64
	each time.Duration
}

// cpu returns the time of the processor that this process has taken.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// consumed returns how fast a consumer handles so many messages that are in a queue.
func (b *bench) consumed(ctx context.Context, conn *connection.Conn, name string, messages int64,
	consume func(*store.Store, topology.Source, consumer.Handler) (*consumer.Consumer, error)) (result speed, err error) {
	db, s, err := b.open(ctx, name+".db")
	if err != nil {
		return speed{}, err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "CREATE TABLE orders (id TEXT PRIMARY KEY, body BLOB)"); err != nil {
		return speed{}, err
	}
	w := topology.WorkQueue{Name: "bench.batch." + name}
	if err := topology.Declare(ctx, conn, w); err != nil {
		return speed{}, err
	}
	defer func() { err = errors.Join(err, topology.DeleteAll(ctx, conn, w)) }()
	p, err := producer.New(conn, producer.Config{})
	if err != nil {
		return speed{}, err
	}
	defer p.Close()
	body := make([]byte, bodySize)
	for sent := int64(0); sent < messages; {
		var some []producer.Message
		for ; len(some) < 1000 && sent < messages; sent++ {
			some = append(some, producer.Message{RoutingKey: w.Name, ID: fmt.Sprint(sent), OrderKey: fmt.Sprint(sent % 1000), Body: body})
		}
		if _, err := p.PublishAll(ctx, some); err != nil {
			return speed{}, err
		}
	}

	running, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	var handled atomic.Int64
	insert := insert(store.SQLite)
	c, err := consume(s, w, func(ctx context.Context, d *consumer.Delivery) error {
		if err := insert(ctx, d); err != nil {
			return err
		}
		if handled.Add(1) == messages {
			close(done)
		}
		return nil
	})
	if err != nil {
		return speed{}, err
	}
	began, spent := time.Now(), cpu()
	ran := make(chan error, 1)
	go func() { ran <- c.Run(running) }()
	select {
	case <-done:
	case err := <-ran:
		return speed{}, fmt.Errorf("the consumer ended: %w", err)
	case <-time.After(5 * time.Minute):
		return speed{}, fmt.Errorf("%d of %d messages in 5 minutes", handled.Load(), messages)
	}
	took, used := time.Since(began), cpu()-spent
	cancel()
	if err := <-ran; err != nil {
		return speed{}, err
	}
	var rows int64
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM orders").Scan(&rows); err != nil {
		return speed{}, err
	}
	if rows != messages {
		return speed{}, fmt.Errorf("%d rows of %d messages", rows, messages)
	}
	return speed{float64(messages) / took.Seconds(), used / time.Duration(messages)}, nil
}
