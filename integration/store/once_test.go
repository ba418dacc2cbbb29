package store_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/child"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/integration/store/database"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/topology"
)

// inTx runs do in a transaction, and commits it if do says so.
func inTx(t *testing.T, db *sql.DB, do func(tx *sql.Tx) (commit bool)) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	if do(tx) {
		must(t, tx.Commit())
	} else {
		must(t, tx.Rollback())
	}
}

func TestOnceIsFirstOnce(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s, db := p.store(t, store.Config{}), p.open(t)
		once := func(queue, id string, commit bool) (first bool) {
			t.Helper()
			inTx(t, db, func(tx *sql.Tx) bool {
				var err error
				first, err = s.Once(t.Context(), tx, queue, id)
				must(t, err)
				return commit
			})
			return first
		}
		long := strings.Repeat("\xff", 255)
		for _, tt := range []struct {
			rule, queue, id string
			commit, want    bool
		}{
			{"of a transaction that is rolled back", "orders", "m1", false, true},
			{"after a rollback", "orders", "m1", true, true},
			{"after a commit", "orders", "m1", true, false},
			{"again", "orders", "m1", true, false},
			{"of another queue", "mails", "m1", true, true},
			{"with a space behind it", "orders", "m1 ", true, true},
			{"with other letters", "orders", "M1", true, true},
			{"with an accent", "orders", "m\u00e9", true, true},
			{"without it", "orders", "me", true, true},
			{"that is no text", "orders", "m\x00\xff", true, true},
			{"that is no text, again", "orders", "m\x00\xff", true, false},
			{"that is as long as AMQP allows", long, long, true, true},
			{"that is as long as AMQP allows, again", long, long, true, false},
		} {
			if got := once(tt.queue, tt.id, tt.commit); got != tt.want {
				t.Errorf("an id %s: first is %v, want %v", tt.rule, got, tt.want)
			}
		}
		inTx(t, db, func(tx *sql.Tx) bool {
			for rule, args := range map[string][2]string{"no id": {"orders", ""}, "no queue": {"", "m"}, "a long id": {"orders", strings.Repeat("m", 256)}} {
				if first, err := s.Once(t.Context(), tx, args[0], args[1]); first || rehop.ClassOf(err) != rehop.ClassBug {
					t.Errorf("%s: %v, %v, want an error", rule, first, err)
				}
			}
			return true
		})
	})
}

// TestTheSecondTransactionWaitsForTheFirst: and is first if that rolls back.
func TestTheSecondTransactionWaitsForTheFirst(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s, db := p.store(t, store.Config{}), p.open(t)
		for _, commit := range []bool{false, true} {
			second := make(chan bool, 1)
			var began sync.WaitGroup
			began.Add(1)
			inTx(t, db, func(tx *sql.Tx) bool {
				first, err := s.Once(t.Context(), tx, "orders", "m")
				if must(t, err); !first {
					t.Error("the first transaction is not first")
				}
				go func() {
					var first bool
					defer func() { second <- first }() // after the commit
					began.Done()
					inTx(t, db, func(tx *sql.Tx) bool {
						var err error
						if first, err = s.Once(t.Context(), tx, "orders", "m"); err != nil {
							t.Error(err)
						}
						return true
					})
				}()
				began.Wait()
				select {
				case <-second:
					t.Error("the second transaction did not wait")
				case <-time.After(200 * time.Millisecond):
				}
				return commit
			})
			if got := <-second; got == commit {
				t.Errorf("the first transaction was committed: %v; the second is first: %v", commit, got)
			}
			inTx(t, db, func(tx *sql.Tx) bool {
				_, err := tx.ExecContext(t.Context(), "DELETE FROM rehop_letters_inbox")
				must(t, err)
				return true
			})
		}
	})
}

// createEffects makes the table of the handlers' own work. Nothing in it keeps an effect
// from happening twice.
func createEffects(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS effects (message VARCHAR(64) NOT NULL, run VARCHAR(64) NOT NULL)")
	return err
}

// effect is a handler that writes one row within the transaction of its ctx.
func effect(dialect store.Dialect) consumer.Handler {
	insert := "INSERT INTO effects (message, run) VALUES (?, ?)"
	if dialect == store.PostgreSQL {
		insert = "INSERT INTO effects (message, run) VALUES ($1, $2)"
	}
	return func(ctx context.Context, d *consumer.Delivery) error {
		_, err := store.TxFrom(ctx).ExecContext(ctx, insert, d.ID, fmt.Sprint(d.Attempt))
		return err
	}
}

// effects returns how many there are, and of how many messages.
func effects(t *testing.T, db *sql.DB) (all, messages int) {
	t.Helper()
	must(t, db.QueryRowContext(context.WithoutCancel(t.Context()), "SELECT COUNT(*), COUNT(DISTINCT message) FROM effects").Scan(&all, &messages))
	return all, messages
}

func TestOnceHandler(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		ctx := t.Context()
		db := p.open(t)
		must(t, createEffects(ctx, db))
		log := &lines{}
		s := p.store(t, store.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
		work := effect(p.dialect)
		d := &consumer.Delivery{Queue: "orders", ID: "m", Attempt: 1}
		handler := func(inner consumer.Handler) consumer.Handler { return consumer.Wrap(inner, s.OnceHandler) }

		broken := errors.New("broken")
		err := handler(func(ctx context.Context, d *consumer.Delivery) error {
			return errors.Join(work(ctx, d), broken)
		})(ctx, d)
		if !errors.Is(err, broken) || consumer.OutcomeOf(err).Action != consumer.ActionRetry {
			t.Errorf("a handler that fails: %v", err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a panic of the handler does not reach its caller")
				}
			}()
			_ = handler(func(ctx context.Context, d *consumer.Delivery) error {
				must(t, work(ctx, d))
				panic("broken")
			})(ctx, d)
		}()
		if all, _ := effects(t, db); all != 0 {
			t.Errorf("%d effects of handlers that failed, want none", all)
		}
		must(t, handler(work)(ctx, d))
		d.Attempt = 2
		must(t, handler(work)(ctx, d))
		if all, messages := effects(t, db); all != 1 || messages != 1 {
			t.Errorf("%d effects of %d messages, want one", all, messages)
		}
		if log.count("a message that was handled before is skipped") != 1 {
			t.Errorf("log: %q, want that the second delivery was skipped", log.all)
		}
		d.History.Redrives = 1
		must(t, handler(work)(ctx, d))
		if log.count("level=WARN") != 1 || log.count("redrives=1") != 1 {
			t.Errorf("log: %q, want a warning that what a person has sent is skipped", log.all)
		}
		err = handler(work)(ctx, &consumer.Delivery{Queue: "orders"})
		if consumer.OutcomeOf(err).Action != consumer.ActionDeadLetter {
			t.Errorf("a message without an id: %v, want a dead letter", err)
		}
		away := p.open(t)
		lost, err := store.Open(ctx, away, p.dialect, store.Config{})
		must(t, err)
		must(t, away.Close())
		if err := consumer.Wrap(work, lost.OnceHandler)(ctx, d); consumer.OutcomeOf(err).Action != consumer.ActionHold {
			t.Errorf("a database that is away: %v, want the message held", err)
		}
	})
}

// lines is a log.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(p))
	return len(p), nil
}

func (l *lines) count(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		n += count(strings.Contains(line, text))
	}
	return n
}

// TestTheAnswerToACommitOfOnceIsLost: the messages are held, and their next run finds out
// whether they were handled.
func TestTheAnswerToACommitOfOnceIsLost(t *testing.T) {
	t.Parallel()
	for _, pass := range []bool{true, false} {
		for _, dialect := range eachServer(t) {
			for _, messages := range []int{1, 5} {
				t.Run(fmt.Sprintf("%v, %d to a transaction, committed %v", dialect, messages, pass), func(t *testing.T) {
					t.Parallel()
					direct := newPlace(t, dialect)
					db := direct.open(t)
					must(t, createEffects(t.Context(), db))
					c := newCutter(t, hostAndPort.FindString(direct.source), pass)
					cut := direct
					cut.source = hostAndPort.ReplaceAllString(direct.source, c.address)
					s := cut.store(t, store.Config{})
					var ids []string
					for n := range messages {
						ids = append(ids, fmt.Sprint("m", n))
					}
					run := func() string {
						if messages == 1 {
							return consumer.OutcomeOf(s.OnceHandler(effect(dialect))(t.Context(), deliveries(ids...)[0])).String()
						}
						return outcomesOf(t.Context(), s.OnceBatch(effect(dialect)), ids...)
					}
					each := func(outcome string) string { return strings.Repeat(outcome+", ", messages-1) + outcome }
					c.cuts.Store(1)
					if got := run(); got != "hold" && got != each("hold*") {
						t.Errorf("%v, want the messages held", got)
					}
					if got := run(); got != each("done") {
						t.Errorf("the second run: %v", got)
					}
					if all, of := effects(t, db); all != messages || of != messages {
						t.Errorf("%d effects of %d messages, want one of each of %d", all, of, messages)
					}
				})
			}
		}
	}
}

// TestManyDeliveriesOfAMessageAtOnce: processes that have the same messages in hand do
// the work once, also where the database has committed the notes of runs that failed.
func TestManyDeliveriesOfAMessageAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		db := p.open(t)
		must(t, createEffects(t.Context(), db))
		const messages, copies = 60, 8
		if s := p.store(t, store.Config{}); p.dialect == store.MySQL {
			for n := range messages / 2 {
				inTx(t, db, func(tx *sql.Tx) bool {
					_, err := s.Once(t.Context(), tx, "orders", fmt.Sprint(n))
					must(t, err)
					_, err = tx.ExecContext(t.Context(), "UPDATE rehop_letters_inbox SET handled = -handled WHERE handled > 0")
					must(t, err)
					return true
				})
			}
		}
		var all sync.WaitGroup
		var held atomic.Int64
		for range copies {
			handler := consumer.Wrap(effect(p.dialect), p.store(t, store.Config{Logger: slog.New(slog.DiscardHandler)}).OnceHandler)
			order := rand.Perm(messages)
			all.Go(func() {
				for _, n := range order {
					for {
						err := handler(t.Context(), &consumer.Delivery{Queue: "orders", ID: fmt.Sprint(n)})
						if err == nil {
							break
						}
						if consumer.OutcomeOf(err).Action != consumer.ActionHold {
							t.Error(err)
							return
						}
						held.Add(1)
					}
				}
			})
		}
		all.Wait()
		if n, of := effects(t, db); n != messages || of != messages {
			t.Errorf("%d effects of %d messages, want one of each of %d", n, of, messages)
		}
		t.Logf("held %d times", held.Load())
	})
}

// The first message of a process has old notes looked for, while its handler has the
// lock of the file.
func TestLookingForOldNotesNeedsNoLock(t *testing.T) {
	t.Parallel()
	log := &lines{}
	s := newPlace(t, store.SQLite).store(t, store.Config{Timeout: 2 * time.Second, Logger: slog.New(slog.NewTextHandler(log, nil))})
	handler := consumer.Wrap(func(context.Context, *consumer.Delivery) error {
		<-time.After(6 * time.Second) // whoever waits for the lock has given up
		return nil
	}, s.OnceHandler)
	must(t, handler(t.Context(), &consumer.Delivery{Queue: "orders", ID: "m"}))
	if n := log.count("handled long ago"); n != 0 {
		t.Errorf("%d warnings that old notes are not forgotten: %q", n, log.all)
	}
}

// TestOldNotesAreForgotten: without holding up the handlers.
func TestOldNotesAreForgotten(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s, db := p.store(t, store.Config{KeepInbox: time.Hour}), p.open(t)
		const old, young = 20_000, 10
		var rows []string
		for n := range old + young {
			handled := time.Now().Add(-2 * time.Hour)
			if n < young {
				handled = time.Now().Add(-30 * time.Minute)
			}
			sign := 1 - 2*int64(n%2) // half of them were begun, and never ended
			rows = append(rows, fmt.Sprintf("('orders', 'old-%d', %d)", n, sign*handled.UnixMilli()))
			if len(rows) == 1000 || n == old+young-1 {
				_, err := db.ExecContext(t.Context(), "INSERT INTO rehop_letters_inbox (queue, message_id, handled) VALUES "+strings.Join(rows, ", "))
				must(t, err)
				rows = nil
			}
		}
		left := func() (n int) {
			must(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM rehop_letters_inbox WHERE message_id LIKE 'old-%'").Scan(&n))
			return n
		}
		handler := consumer.Wrap(func(context.Context, *consumer.Delivery) error { return nil }, s.OnceHandler)
		var slowest time.Duration
		n := 0
		for began := time.Now(); left() > young; n++ {
			if time.Since(began) > 3*time.Minute {
				t.Fatalf("%d old notes are left", left()-young)
			}
			at := time.Now()
			if err := handler(t.Context(), &consumer.Delivery{Queue: "orders", ID: fmt.Sprintf("new-%d", n)}); err != nil {
				t.Fatal(err)
			}
			slowest = max(slowest, time.Since(at))
		}
		if left() != young {
			t.Errorf("%d notes are left, want the %d that are young", left(), young)
		}
		if slowest > 10*time.Second { // the disk of a busy machine takes seconds
			t.Errorf("a message was handled in %v beside the cleaning", slowest)
		}
		t.Logf("%d messages handled beside the cleaning, the slowest in %v", n, slowest)
	})
}

var onceMessages = flag.Int("once.messages", 2000, "messages of TestFaultsUnderOnce, of each database")

// onceQueue is the work queue of TestFaultsUnderOnce.
func onceQueue(name string) topology.WorkQueue {
	return topology.WorkQueue{Name: name, Type: topology.Quorum, Waits: delay.Schedule{100 * time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond}}
}

// workOnce is what a child does: it handles the messages of a queue, each in a
// transaction. Of some the handler fails after its work.
func workOnce(job task) error {
	ctx := context.Background()
	db, err := place{job.Dialect, job.Driver, job.Source}.connect()
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(20)
	s, err := store.Open(ctx, db, job.Dialect, store.Config{})
	if err != nil {
		return err
	}
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{job.URL}})
	if err != nil {
		return err
	}
	work := effect(job.Dialect)
	handler := func(ctx context.Context, d *consumer.Delivery) error {
		if err := work(ctx, d); err != nil {
			return consumer.Hold(err) // the database is away
		}
		if d.Attempt == 1 && strings.HasSuffix(d.ID, "7") {
			return errors.New("the handler fails after its work")
		}
		return nil
	}
	c, err := consumer.New(conn, onceQueue(job.Queue), consumer.Wrap(handler, s.OnceHandler), consumer.Config{
		Concurrency: 16,
		Traces: []consumer.Trace{{Settled: func(_ context.Context, s consumer.Settled) {
			child.Say(string(s.Disposition))
		}}},
	})
	if err != nil {
		return err
	}
	child.Say("begun")
	return c.Run(ctx)
}

// TestFaultsUnderOnce: every message has its effect once, through kills of the process,
// the database and the broker.
func TestFaultsUnderOnce(t *testing.T) {
	t.Parallel()
	all, err := versions()
	must(t, err)
	for _, dialect := range each(t) {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			own, err := broker.Start(t.Context(), broker.Options{Version: all[len(all)-1], Name: "rehop-once"})
			must(t, err)
			defer own.Close(context.WithoutCancel(t.Context()))
			onceThroughKills(t, realBroker{own}, dialect)
		})
	}
}

func onceThroughKills(t *testing.T, b realBroker, dialect store.Dialect) {
	ctx := t.Context()
	p, restart := ownPlace(t, dialect)
	db := p.open(t)
	must(t, createEffects(ctx, db))
	queue := fmt.Sprintf("once-%d", queues.Add(1))
	conn := b.connect(t, connection.Config{})
	must(t, topology.Declare(ctx, conn, onceQueue(queue)))
	declared := time.Now()
	publisher, err := producer.New(conn, producer.Config{})
	must(t, err)
	batch := make([]producer.Message, *onceMessages)
	for i := range batch {
		batch[i] = producer.Message{RoutingKey: queue, ID: fmt.Sprintf("m-%06d", i)}
	}
	began := time.Now()
	_, err = publisher.PublishAll(ctx, batch)
	must(t, err)
	must(t, publisher.Close())
	t.Logf("published %d in %v", len(batch), time.Since(began))

	job := p.task("once", b.AMQPURL())
	job.Queue = queue
	var settled, kills atomic.Int64
	done := make(chan struct{})
	var process atomic.Pointer[child.Process]
	var running sync.WaitGroup
	running.Go(func() { // one process after the other
		for {
			select {
			case <-done:
				return
			default:
			}
			c := child.Start(t, job, func(_ *child.Process, event string) {
				if event != "begun" {
					settled.Add(1)
				}
			})
			process.Store(c)
			_ = c.Wait() // it was killed, or could not reach what is away
		}
	})
	defer func() {
		close(done)
		process.Load().Kill()
		running.Wait()
	}()
	faults := []struct {
		name string
		do   func() error
	}{
		{"process", func() error { process.Load().Kill(); return nil }},
		{"database", restart},
		{"process", func() error { process.Load().Kill(); return nil }},
		{"broker", func() error {
			// The broker may wipe a quorum queue that was declared shortly before a kill.
			<-time.After(time.Until(declared.Add(15 * time.Second)))
			if err := b.Kill(ctx); err != nil {
				return err
			}
			return b.Start(ctx)
		}},
	}
	began = time.Now()
	const rounds = 8
	for i := range rounds {
		// At even distances of the whole.
		poll.Until(t, 10*time.Minute, "more is settled", func() bool {
			return settled.Load() >= int64(*onceMessages*(i+1)/(rounds+2))
		})
		f := faults[i%len(faults)]
		if err := f.do(); err != nil {
			t.Fatalf("kill of the %s: %v", f.name, err)
		}
		kills.Add(1)
	}
	var waiting int
	poll.Until(t, 10*time.Minute, "the queue and its waits are empty", func() bool {
		all := 0
		for _, q := range append([]string{queue}, waitsOf(queue)...) {
			state, err := b.channel(t).QueueDeclarePassive(q, true, false, false, false, nil)
			if err != nil {
				return false
			}
			all += state.Messages
		}
		waiting = all
		return all == 0
	})
	if letters := b.drain(t, onceQueue(queue).DeadLetterQueue().Name, 0); len(letters) > 0 {
		t.Errorf("%d dead letters, want none: %v", len(letters), letters)
	}
	n, messages := effects(t, db)
	if n != *onceMessages || messages != *onceMessages {
		t.Errorf("%d effects of %d messages, want one of each of %d; %d wait", n, messages, *onceMessages, waiting)
	}
	t.Logf("%d messages, %d kills, %d settlements, %d effects, in %v", *onceMessages, kills.Load(), settled.Load(), n, time.Since(began))
}

// ownPlace is an empty database of a server that the test may restart. SQLite has none.
func ownPlace(t *testing.T, dialect store.Dialect) (p place, restart func() error) {
	t.Helper()
	if dialect == store.SQLite {
		return newPlace(t, dialect), func() error { return nil }
	}
	server, err := database.Start(t.Context(), kinds[dialect])
	must(t, err)
	t.Cleanup(func() { must(t, server.Close()) })
	driver, source, err := server.Create(t.Context(), "once")
	must(t, err)
	return place{dialect, driver, source}, func() error { return errors.Join(server.Kill(), server.Start(t.Context())) }
}

func waitsOf(queue string) (names []string) {
	w := onceQueue(queue)
	for i := range w.Waits {
		names = append(names, route.WaitQueue(queue, i+1))
	}
	return names
}
