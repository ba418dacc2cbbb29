package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
	"github.com/rehop/rehop/topology"
)

// waiting is about messages that wait: in the wait queue of a work queue, in the queues of exact delays, or in a
// store. Meanwhile other messages are published and consumed.
func waiting(where string) experiment {
	e := experiment{
		name: "waiting-" + where, x: "messages that wait", at: []int{0, 100_000, 300_000, 1_000_000},
		columns: []string{"the rest, messages/s", "client heap, MiB", "declare, s", "start to the first message, s"},
		plots: []plotted{
			{file: "waiting-" + where, title: "throughput beside messages that wait: " + where, y: "messages/s", columns: []int{0}},
		},
	}
	e.begin = func(ctx context.Context, g *growth) (func(context.Context, int) ([]float64, error), func(context.Context) error, error) {
		w, err := newWaiting(ctx, g, where)
		if err != nil {
			return nil, nil, err
		}
		return w.measure, w.close, nil
	}
	return e
}

// waiter has the messages that wait. It is a program of its own beside the one that is measured, but for the
// forwarder of a store.
type waiter struct {
	g         *growth
	conn      *connection.Conn
	publisher *producer.Producer
	specs     []topology.Spec
	work      topology.WorkQueue
	wait      string // the wait queue
	where     string
	n         int

	dir   string
	db    *sql.DB
	store *store.Store
	stop  func() error // of the forwarder
}

func newWaiting(ctx context.Context, g *growth, where string) (*waiter, error) {
	w := &waiter{g: g, where: where}
	from, _ := load{}.spec()
	w.work = from.(topology.WorkQueue)
	w.specs = []topology.Spec{w.work}
	if where == "delays" {
		w.specs = append(w.specs, topology.Delays{Max: 24 * time.Hour})
	}
	var err error
	if w.conn, err = connection.Open(ctx, connection.Config{URLs: []string{g.url}}); err != nil {
		return nil, err
	}
	plan, err := topology.DeclarePlan(ctx, w.conn, w.specs...)
	if err != nil {
		return nil, err
	}
	for _, name := range plan.Queues() {
		if strings.HasPrefix(name, w.work.Name+".wait") {
			w.wait = name
		}
	}
	if w.publisher, err = producer.New(w.conn, producer.Config{Window: 10_000}); err != nil {
		return nil, err
	}
	if where == "store" {
		err = w.openStore(ctx)
	}
	return w, err
}

func (w *waiter) openStore(ctx context.Context) (err error) {
	if w.dir, err = os.MkdirTemp("/var/tmp", "rehop-growth-"); err != nil {
		return err
	}
	if w.db, err = sqlite.Open(filepath.Join(w.dir, "letters.db")); err != nil {
		return err
	}
	if w.store, err = store.Open(ctx, w.db, store.SQLite, store.Config{}); err != nil {
		return err
	}
	forwarder, err := w.store.NewForwarder(w.publisher, store.ForwardConfig{})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- forwarder.Run(running) }()
	w.stop = func() error { stop(); return <-ended }
	return nil
}

// fill adds messages until n wait.
func (w *waiter) fill(ctx context.Context, n int) error {
	const batch = 5000
	body := make([]byte, 256)
	for ; w.n < n; w.n += batch {
		messages := make([]producer.Message, batch)
		for i := range messages {
			messages[i] = producer.Message{RoutingKey: w.work.Name, Body: body}
			switch w.where {
			case "waits":
				messages[i].RoutingKey = w.wait
			default: // of different lengths, none of which ends within the run
				messages[i].Delay = 12*time.Hour + time.Duration(w.n+i)*time.Millisecond
			}
		}
		if w.where == "store" {
			tx, err := w.db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if _, err := w.store.PutTx(ctx, tx, messages...); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			if err := tx.Commit(); err != nil {
				return err
			}
			continue
		}
		if _, err := w.publisher.PublishAll(ctx, messages); err != nil {
			return err
		}
	}
	return nil
}

func (w *waiter) measure(ctx context.Context, n int) ([]float64, error) {
	if err := w.fill(ctx, n); err != nil {
		return nil, err
	}
	var rates []float64
	for range w.g.rounds {
		rate, err := w.g.rehop(ctx, load{size: 256})
		if err != nil {
			return nil, err
		}
		rates = append(rates, rate)
	}
	var declares, starts []float64
	for range w.g.rounds {
		declare, start, err := w.start(ctx)
		if err != nil {
			return nil, err
		}
		declares, starts = append(declares, declare.Seconds()), append(starts, start.Seconds())
	}
	return []float64{median(rates), heap(), median(declares), median(starts)}, nil
}

// start is a program that starts beside the messages that wait: it declares what is there, publishes a
// message and handles it.
func (w *waiter) start(ctx context.Context) (declare, first time.Duration, err error) {
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{w.g.url}})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	began := time.Now()
	if err := topology.Declare(ctx, conn, w.specs...); err != nil {
		return 0, 0, err
	}
	declare = time.Since(began)
	if _, err := w.publisher.Publish(ctx, producer.Message{RoutingKey: w.work.Name, Body: []byte("first")}); err != nil {
		return 0, 0, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	began = time.Now()
	worker, err := consumer.New(conn, w.work, func(context.Context, *consumer.Delivery) error {
		first = time.Since(began)
		stop()
		return nil
	}, consumer.Config{})
	if err != nil {
		return 0, 0, err
	}
	return declare, first, worker.Run(running)
}

// heap returns what the client has on its heap, in MiB.
func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what a sync.Pool had
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

func (w *waiter) close(ctx context.Context) error {
	var errs []error
	if w.stop != nil {
		errs = append(errs, w.stop())
	}
	errs = append(errs, w.publisher.Close())
	if w.db != nil {
		errs = append(errs, w.db.Close(), os.RemoveAll(w.dir))
	}
	s, err := w.conn.Session(ctx, connection.Publish)
	if err == nil { // Delete refuses queues with messages
		errs = append(errs, s.Do(ctx, purge(w.specs, w.conn.Server().Version)), s.Close())
	}
	errs = append(errs, err, topology.Delete(ctx, w.conn, w.specs...), w.conn.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	return nil
}
