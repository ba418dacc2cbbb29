package sim

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/topology"
)

// The work queues. The first two get each message that is published, and send one each to
// the last.
const (
	single = "single"
	batch  = "batch"
	out    = "out"
)

// trial is one run of a plan, in a bubble.
type trial struct {
	plan
	broker   *rehoptest.Broker
	database *database
	judge    *sql.DB
	began    time.Time
	skipped  atomic.Int64
	kills    atomic.Int64

	mu         sync.Mutex
	violations []string
	outcomes   map[int64]bool // of the runs that have returned: whether without an error
	failures   map[string]int // that are left of a message in a queue
}

// result is what came out of a run.
type result struct {
	violations     []string
	simulated      time.Duration
	effects        int
	skipped, kills int64
	runs           int
}

func newTrial(p plan) *trial {
	return &trial{plan: p, began: time.Now(), outcomes: map[int64]bool{}, failures: map[string]int{}}
}

func (w *trial) violate(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violations = append(w.violations, fmt.Sprintf("%v: ", time.Since(w.began))+fmt.Sprintf(format, args...))
}

// run runs the plan to its end.
func (w *trial) run() (r result, err error) {
	if w.broker, err = rehoptest.NewBroker(rehoptest.Config{Version: w.version}); err != nil {
		return r, err
	}
	defer w.broker.Close()
	if w.database, err = newDatabase(w.seed, w.refuses); err != nil {
		return r, err
	}
	defer w.database.Close()
	w.judge = w.open(0, false, nil).db()
	defer w.judge.Close()
	ctx := context.Background()
	// Nothing in this table keeps an effect from happening twice.
	if _, err := w.judge.ExecContext(ctx, "CREATE TABLE effects (queue TEXT, message TEXT, run INTEGER)"); err != nil {
		return r, err
	}
	if err := w.declare(ctx); err != nil {
		return r, err
	}
	serving, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	for i := range w.processes {
		all.Go(func() { w.process(serving, i) })
	}
	var faults sync.WaitGroup
	for _, f := range w.faults {
		faults.Go(func() { w.breakLater(f) })
	}
	w.publish()
	faults.Wait()
	effects := w.comeToRest(ctx)
	stop()
	all.Wait()
	w.judgeEffects(ctx)
	r = result{simulated: time.Since(w.began), effects: effects, skipped: w.skipped.Load(), kills: w.kills.Load()}
	w.mu.Lock()
	defer w.mu.Unlock()
	r.violations, r.runs = slices.Clone(w.violations), len(w.outcomes)
	return r, nil
}

// spec is a work queue. Handlers fail less often than it has waits.
func (w *trial) spec(name string) topology.WorkQueue {
	return topology.WorkQueue{Name: name, Type: w.kind, Waits: delay.Schedule{time.Second, 5 * time.Second, 10 * time.Second, time.Minute}}
}

func (w *trial) declare(ctx context.Context) error {
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Name: "operator", Dial: w.broker.Dial})
	if err != nil {
		return err
	}
	defer conn.Close()
	return topology.Declare(ctx, conn, w.spec(single), w.spec(batch), w.spec(out))
}

// publish publishes all messages by hand, when the broker is there.
func (w *trial) publish() {
	r := rand.New(rand.NewPCG(w.seed, 2))
	for n := range w.messages {
		id := fmt.Sprintf("m-%d", n)
		failures := 0
		copies := 1
		if r.IntN(1000) < w.twice {
			copies = 2
		}
		for _, queue := range []string{single, batch} {
			if r.IntN(1000) < w.trouble {
				failures = 1 + r.IntN(3)
			}
			w.mu.Lock()
			w.failures[queue+" "+id], w.failures[out+" "+id+"/"+queue] = failures, failures/2
			w.mu.Unlock()
			for range copies {
				m := rehoptest.Message{RoutingKey: queue, Publishing: amqp.Publishing{MessageId: id, DeliveryMode: amqp.Persistent, Body: []byte(id)}}
				for routed := 0; routed == 0; {
					if routed, _ = w.broker.Publish(m); routed == 0 { // the broker is away
						time.Sleep(time.Second)
					}
				}
			}
		}
		time.Sleep(w.every)
	}
}

// breakLater makes a fault come and go.
func (w *trial) breakLater(f fault) {
	time.Sleep(f.at)
	switch f.kind {
	case "cut":
		w.broker.Cut("")
	case "kill":
		w.broker.Kill()
		time.Sleep(f.lasts)
		w.broker.Start()
	case "stall":
		w.broker.Stall()
		time.Sleep(f.lasts)
		w.broker.Resume()
	case "database":
		w.database.fail(true)
		time.Sleep(f.lasts)
		w.database.fail(false)
	}
}

// open opens the database for a process.
func (w *trial) open(fuse int, after bool, blow func()) *client {
	return &client{database: w.database, latency: w.latency, fuse: fuse, after: after, blow: blow, killed: make(chan struct{}), sessions: map[*session]bool{}}
}

// db returns a pool that the caller closes.
func (c *client) db() *sql.DB {
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(8)
	return db
}

// process runs the lives of a process.
func (w *trial) process(ctx context.Context, i int) {
	for n, l := range w.processes[i].lives {
		living, end := context.WithCancel(ctx)
		if l.stops > 0 {
			living, end = context.WithTimeout(ctx, l.stops)
		}
		w.live(living, end, fmt.Sprintf("process-%d-%d", i, n), w.processes[i].concurrency, l)
		end()
		if ctx.Err() == nil {
			time.Sleep(l.pause)
		}
	}
}

// live runs one life, until ctx ends or it is killed.
func (w *trial) live(ctx context.Context, end func(), name string, concurrency int, l life) {
	net := &network{dial: w.broker.Dial}
	var c *client
	c = w.open(l.fuse, l.after, func() {
		w.kills.Add(1)
		net.end()
		c.kill()
		end()
	})
	db := c.db()
	defer func() {
		c.kill() // what still waits for the database would hold up the clock
		db.Close()
	}()
	log := slog.New(skips{&w.skipped})
	var outbox *store.Store
	for {
		var err error
		if outbox, err = store.Open(ctx, db, store.SQLite, store.Config{KeepOrder: w.keepOrder, Logger: log}); err == nil {
			break
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
	}
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Name: name, Dial: net.Dial, Lazy: true})
	if err != nil {
		if ctx.Err() == nil {
			w.violate("Open of %s: %v", name, err)
		}
		return
	}
	defer conn.Close()
	p, err := producer.New(conn, producer.Config{})
	if err != nil {
		w.violate("New of the Producer of %s: %v", name, err)
		return
	}
	defer p.Close()
	var parts []func(context.Context) error
	add := func(run func(context.Context) error, err error) {
		if err != nil {
			w.violate("%s: %v", name, err)
			return
		}
		parts = append(parts, run)
	}
	cfg := consumer.Config{Concurrency: concurrency, DrainTimeout: 5 * time.Second, Outage: consumer.Outage{MaxPause: 2 * time.Second}}
	one, err := consumer.New(conn, w.spec(single), consumer.Wrap(w.work(outbox, true), outbox.OnceHandler), cfg)
	add(one.Run, err)
	last, err := consumer.New(conn, w.spec(out), consumer.Wrap(w.work(outbox, false), outbox.OnceHandler), cfg)
	add(last.Run, err)
	cfg.Concurrency = 1 + concurrency/3
	many, err := consumer.NewBatch(conn, w.spec(batch), outbox.OnceBatch(w.work(outbox, true)), consumer.Batch{Size: w.batch, Linger: 20 * time.Millisecond}, cfg)
	add(many.Run, err)
	forwarder, err := outbox.NewForwarder(p, store.ForwardConfig{Poll: w.poll, DrainTimeout: 5 * time.Second})
	add(forwarder.Run, err)
	var running sync.WaitGroup
	for _, run := range parts {
		running.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				w.violate("%s: Run: %v", name, err)
			}
		})
	}
	running.Wait()
}

var errHandler = errors.New("the handler fails")

// work is a handler whose effect is a row, and a message if the work sends one on.
func (w *trial) work(outbox *store.Store, sends bool) consumer.Handler {
	return func(ctx context.Context, d *consumer.Delivery) (err error) {
		run := w.runs()
		how := w.trouble1(d)
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.outcomes[run] = err == nil && how != panics
		}()
		if how == failsBefore {
			return errHandler
		}
		tx := store.TxFrom(ctx)
		if _, err := tx.ExecContext(ctx, "INSERT INTO effects (queue, message, run) VALUES (?, ?, ?)", d.Queue, d.ID, run); err != nil {
			return consumer.Hold(err)
		}
		time.Sleep(w.slow)
		if sends {
			if _, err := outbox.PutTx(ctx, tx, producer.Message{RoutingKey: out, ID: d.ID + "/" + d.Queue, OrderKey: d.ID, Body: d.Body}); err != nil {
				return consumer.Hold(err)
			}
		}
		switch how {
		case failsAfter:
			return errHandler
		case unavailable:
			return consumer.Hold(errHandler)
		case panics:
			panic("the handler panics")
		}
		return nil
	}
}

// trouble of a run.
type trouble int

const (
	works trouble = iota
	failsBefore
	failsAfter
	unavailable
	panics
)

// runs numbers a run.
func (w *trial) runs() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	run := int64(len(w.outcomes)) + 1
	w.outcomes[run] = false
	return run
}

// trouble1 returns what befalls a run of a message.
func (w *trial) trouble1(d *consumer.Delivery) trouble {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := d.Queue + " " + d.ID
	left := w.failures[key]
	if left == 0 {
		return works
	}
	w.failures[key] = left - 1
	return trouble(1 + (len(d.ID)+int(d.ID[len(d.ID)-1])+left)%4)
}

// patience is how long after the faults all messages have their effects.
const patience = 4 * time.Hour

// comeToRest waits until nothing moves, and returns the number of effects.
func (w *trial) comeToRest(ctx context.Context) (effects int) {
	until := time.Now().Add(patience)
	for calm := 0; calm < 3; {
		time.Sleep(5 * time.Second)
		var left string
		effects, left = w.left(ctx)
		if left == "" {
			calm++
			continue
		}
		calm = 0
		if time.Now().After(until) {
			w.violate("not at rest %v after the faults: %s", patience, left)
			return effects
		}
	}
	return effects
}

// left says which messages are on their way, or have no effect yet.
func (w *trial) left(ctx context.Context) (effects int, left string) {
	var all []string
	for _, name := range w.broker.Queues() {
		q, _ := w.broker.Queue(name)
		n := len(q.Ready) + len(q.Unacked) + len(q.Delayed) + len(q.Dead)
		if n > 0 && strings.HasSuffix(name, ".dlq") {
			m := w.broker.Drain(name)[0]
			w.violate("%d dead letters in %s: %s, %v", n, name, m.MessageId, m.Headers)
		} else if n > 0 {
			all = append(all, fmt.Sprintf("%d messages in %s", n, name))
		}
	}
	var letters int
	err := w.judge.QueryRowContext(ctx, "SELECT (SELECT COUNT(*) FROM effects), (SELECT COUNT(*) FROM rehop_letters)").Scan(&effects, &letters)
	if err != nil {
		all = append(all, err.Error())
	}
	if letters > 0 {
		all = append(all, fmt.Sprintf("%d letters", letters))
	}
	return effects, strings.Join(all, "; ")
}

// judgeEffects compares the effects with the messages.
func (w *trial) judgeEffects(ctx context.Context) {
	found, err := w.judge.QueryContext(ctx, "SELECT queue, message, run FROM effects")
	if err != nil {
		w.violate("reading the effects: %v", err)
		return
	}
	defer found.Close()
	times := map[string]int{}
	for found.Next() {
		var queue, message string
		var run int64
		if err := found.Scan(&queue, &message, &run); err != nil {
			w.violate("reading the effects: %v", err)
			return
		}
		times[queue+" "+message]++
		w.mu.Lock()
		good := w.outcomes[run]
		w.mu.Unlock()
		if !good {
			w.violate("an effect of message %s in queue %s is that of run %d, which has failed", message, queue, run)
		}
	}
	for n := range w.messages {
		id := fmt.Sprintf("m-%d", n)
		for _, key := range []string{single + " " + id, batch + " " + id, out + " " + id + "/" + single, out + " " + id + "/" + batch} {
			if times[key] != 1 {
				queue, message, _ := strings.Cut(key, " ")
				w.violate("message %s of queue %s has %d effects, want 1\n%s", message, queue, times[key], w.broker.Story(message))
			}
			delete(times, key)
		}
	}
	if len(times) > 0 {
		w.violate("effects of messages that were never sent: %v", times)
	}
}

// skips counts the messages that Once has skipped.
type skips struct{ n *atomic.Int64 }

func (s skips) Enabled(context.Context, slog.Level) bool { return true }

func (s skips) Handle(_ context.Context, r slog.Record) error {
	if strings.HasSuffix(r.Message, "is skipped") {
		s.n.Add(1)
	}
	return nil
}

func (s skips) WithAttrs([]slog.Attr) slog.Handler { return s }

func (s skips) WithGroup(string) slog.Handler { return s }
