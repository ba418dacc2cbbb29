package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/store"
)

// A database of another kind than the dialect says is named.
func TestOpenNamesTheDialectOfTheDatabase(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		for _, wrong := range []store.Dialect{store.SQLite, store.MySQL, store.PostgreSQL} {
			if wrong == p.dialect {
				continue
			}
			_, err := store.Open(t.Context(), p.open(t), wrong, store.Config{})
			if want := fmt.Sprintf("the dialect is %v, and the database is %v", wrong, p.dialect); err == nil || !strings.Contains(err.Error(), want) || rehop.ClassOf(err) != rehop.ClassBug {
				t.Errorf("%v, want %q", err, want)
			}
		}
	})
}

// A transaction of another database than that of the Store is named.
func TestPutTxInATransactionOfAnotherDatabase(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		for rule, do := range map[string]func(store.Tx) error{
			"PutTx": func(tx store.Tx) error {
				_, err := s.PutTx(t.Context(), tx, producer.Message{RoutingKey: "k"})
				return err
			},
			"CancelTx": func(tx store.Tx) error { _, err := s.CancelTx(t.Context(), tx, "k"); return err },
		} {
			tx, err := newPlace(t, p.dialect).open(t).Begin()
			must(t, err)
			if err := do(tx); err == nil || !contains(err, "another database") || rehop.ClassOf(err) != rehop.ClassBug {
				t.Errorf("%s: %v", rule, err)
			}
			must(t, tx.Rollback())
		}
	})
}

// A call that waits for a connection which its caller has, or for a transaction that
// nobody commits, says so at the end of its time.
func TestACallThatWaitsForItsCallerSaysSo(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		db := p.open(t)
		db.SetMaxOpenConns(1)
		s, err := store.Open(t.Context(), db, p.dialect, store.Config{Timeout: 2 * time.Second})
		must(t, err)
		tx, err := db.Begin()
		must(t, err)
		defer tx.Rollback()
		if err := s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "m"}, errAway); err == nil || !contains(err, "SetMaxOpenConns") || !contains(err, "PutTx") {
			t.Errorf("Put within a transaction on the only connection: %v", err)
		}
	})
	t.Run("SQLite, a Commit is forgotten", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t, store.SQLite)
		db := p.open(t)
		s, err := store.Open(t.Context(), db, p.dialect, store.Config{Timeout: time.Minute}) // SQLite itself gives up after 5 s
		must(t, err)
		tx, err := db.Begin()
		must(t, err)
		defer tx.Rollback()
		_, err = s.PutTx(t.Context(), tx, producer.Message{RoutingKey: "k"})
		must(t, err)
		if err := s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "m"}, errAway); err == nil || !contains(err, "Commit is forgotten") {
			t.Errorf("Put beside a transaction that is open: %v", err)
		}
	})
}

// inProcess returns a connection to a broker in the process, with a queue, and what is
// in the queue.
func inProcess(t *testing.T) (b *rehoptest.Broker, conn *connection.Conn, queue string, ids func() []string) {
	t.Helper()
	b, err := rehoptest.NewBroker(rehoptest.Config{})
	must(t, err)
	t.Cleanup(func() { b.Close() })
	conn, err = connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker/"}, Dial: b.Dial})
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	session, err := conn.Session(t.Context(), connection.Consume)
	must(t, err)
	_, err = session.Channel().QueueDeclare("k", true, false, false, false, nil)
	must(t, err)
	return b, conn, "k", func() (ids []string) {
		for _, m := range b.Drain("k") {
			ids = append(ids, m.MessageId)
		}
		return ids
	}
}

func newProducer(t *testing.T, conn *connection.Conn, cfg producer.Config) *producer.Producer {
	t.Helper()
	p, err := producer.New(conn, cfg)
	must(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// lines is a log.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) has(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// A Producer that falls back into the Store whose letters it publishes is named, once,
// and the letters stay as they are.
func TestAPublisherThatFallsBackIntoTheStore(t *testing.T) {
	for _, keepOrder := range []bool{false, true} {
		t.Run(fmt.Sprint("KeepOrder ", keepOrder), func(t *testing.T) {
			onEach(t, func(t *testing.T, p place) {
				log := &logged{}
				s := p.store(t, store.Config{KeepOrder: keepOrder, Logger: slog.New(slog.NewTextHandler(log, nil))})
				_, conn, queue, _ := inProcess(t)
				tx, err := p.open(t).Begin()
				must(t, err)
				_, err = s.PutTx(t.Context(), tx, producer.Message{RoutingKey: queue, ID: "good"}, producer.Message{RoutingKey: "missing", ID: "first"})
				must(t, err)
				must(t, tx.Commit())
				must(t, s.Put(t.Context(), producer.Message{RoutingKey: "missing", ID: "m"}, errAway))
				forward(t, s, newProducer(t, conn, producer.Config{Fallback: []producer.Sink{s}}), store.ForwardConfig{})
				poll.Until(t, patience, "tries", func() bool {
					l := find(t, s, store.Query{MessageIDs: []string{"first", "m"}})
					return len(l) == 2 && (l[0].Tries > 1 || l[1].Tries > 1)
				})
				letters := find(t, s, store.Query{})
				if len(letters) != 2 || letters[0].State != store.Ready || letters[1].State != store.Ready {
					t.Errorf("%+v", letters)
				}
				if n := log.has("has the Store itself in its Fallback"); n == 0 || log.has("level=ERROR") != 1 {
					t.Errorf("%d words of it", n)
				}
			})
		})
	}
}

// Two Stores have the same Name unless somebody gives them one. A message that has gone from
// one to the other is in the other only.
func TestAPublisherThatFallsBackIntoAnotherStore(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		from, to := p.store(t, store.Config{Table: "from_letters"}), p.store(t, store.Config{Table: "to_letters"})
		_, conn, _, _ := inProcess(t)
		publisher := newProducer(t, conn, producer.Config{Fallback: []producer.Sink{to}})
		must(t, from.Put(t.Context(), producer.Message{RoutingKey: "missing", ID: "forwarded"}, errAway))
		forward(t, from, publisher, store.ForwardConfig{})
		empties(t, from, store.Query{}, patience)
		must(t, from.Put(t.Context(), producer.Message{RoutingKey: "missing", ID: "replayed"}, producer.ErrReturned))
		report, err := from.Replay(t.Context(), publisher, store.Query{MessageIDs: []string{"replayed"}}, store.ReplayOptions{})
		if err != nil || report.Sent != 1 {
			t.Errorf("replayed: %+v, %v", report, err)
		}
		if left, arrived := find(t, from, store.Query{}), find(t, to, store.Query{}); len(left) != 0 || len(arrived) != 2 {
			t.Errorf("%d letters in the one, %d in the other; want none and both", len(left), len(arrived))
		}
	})
}

// A letter with a Delay that nobody has declared is parked with its reason, and the
// others go on.
func TestALetterWithAnUndeclaredDelayIsParked(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		_, conn, queue, ids := inProcess(t)
		for i := range 20 {
			must(t, s.Put(t.Context(), producer.Message{RoutingKey: queue, ID: fmt.Sprint(i)}, errAway))
		}
		must(t, s.Edit(t.Context(), find(t, s, store.Query{})[3].Number, func(m *producer.Message) error { m.Delay = time.Hour; return nil }))
		publisher := newProducer(t, conn, producer.Config{})
		forward(t, s, publisher, store.ForwardConfig{})
		empties(t, s, store.Query{States: []store.State{store.Ready}}, patience)
		if l := find(t, s, store.Query{}); len(l) != 1 || l[0].State != store.Parked || !contains(errors.New(l[0].TryError), "no exact delays to queue") {
			t.Errorf("%+v", l)
		}
		if n := len(ids()); n != 19 {
			t.Errorf("%d of 19 others are in the queue", n)
		}
		report, err := s.Replay(t.Context(), publisher, store.Query{All: true}, store.ReplayOptions{})
		if report.Failed != 1 || err != nil {
			t.Errorf("replayed: %+v, %v", report, err)
		}
	})
}

// A letter that the broker refuses closes its channel: it goes on one of its own, so that
// no other is doubled at any of its tries. The queue does not answer meanwhile, so all
// letters to it are in flight.
func TestALetterThatIsRefusedDoublesNoOther(t *testing.T) {
	t.Parallel()
	p := newPlace(t, store.SQLite)
	s := p.store(t, store.Config{})
	b, conn, queue, ids := inProcess(t)
	b.Refuse(queue, true)
	const n = 100
	fill(t, s, n, producer.Message{RoutingKey: queue})
	must(t, s.Put(t.Context(), producer.Message{RoutingKey: queue, ID: "refused", UserID: "somebody else"}, errAway)) // nobody knows it yet
	forward(t, s, newProducer(t, conn, producer.Config{}), store.ForwardConfig{Tries: 3})
	poll.Until(t, time.Minute, "the letter that is refused is parked", func() bool {
		return len(find(t, s, store.Query{States: []store.State{store.Parked}})) == 1
	})
	b.Refuse(queue, false)
	empties(t, s, store.Query{States: []store.State{store.Ready}}, time.Minute)
	if all := ids(); len(all) != n {
		t.Errorf("%d messages arrived, want each of %d once", len(all), n)
	}
}

// A letter that the broker has refused, whoever learned of it, is published on a channel of
// its own from then on, with a line or without, and so is one with a user id until the
// broker has taken one.
func TestALetterThatMayBeRefusedGoesAlone(t *testing.T) {
	for _, keepOrder := range []bool{false, true} {
		t.Run(fmt.Sprint("KeepOrder ", keepOrder), func(t *testing.T) {
			onEach(t, func(t *testing.T, p place) {
				var mu sync.Mutex
				alone, tries := map[string]bool{}, map[string]int{}
				broker := &peer{answer: func(ctx context.Context, m producer.Message) error {
					mu.Lock()
					defer mu.Unlock()
					tries[m.ID]++
					alone[fmt.Sprint(m.ID, ", try ", tries[m.ID])] = confirm.IsAlone(ctx)
					if m.ID == "learned" && tries[m.ID] == 1 {
						return producer.ErrRefused
					}
					return nil
				}}
				s := p.store(t, store.Config{KeepOrder: keepOrder})
				put := func(id, user string, cause error) {
					must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: id, UserID: user}, cause))
				}
				put("known", "", producer.ErrRefused)
				put("replayed", "", producer.ErrRefused)
				_, err := s.Release(t.Context(), store.Query{MessageIDs: []string{"known"}})
				must(t, err)
				put("good", "", errAway)
				put("learned", "", errAway)
				put("foreign", "somebody", errAway)
				forward(t, s, broker, store.ForwardConfig{})
				empties(t, s, store.Query{States: []store.State{store.Ready}}, patience)
				put("trusted", "somebody", errAway)
				empties(t, s, store.Query{States: []store.State{store.Ready}}, patience)
				_, err = s.Replay(t.Context(), broker, store.Query{All: true}, store.ReplayOptions{})
				must(t, err)
				mu.Lock()
				defer mu.Unlock()
				for what, want := range map[string]bool{
					"known, try 1": true, "replayed, try 1": true, "learned, try 1": false, "learned, try 2": true,
					"good, try 1": false, "foreign, try 1": true, "trusted, try 1": false,
				} {
					if is, there := alone[what]; !there || is != want {
						t.Errorf("%s: there %v, alone %v, want %v", what, there, is, want)
					}
				}
			})
		})
	}
}

// Hooks of several Traces are called in their order, and one that panics is logged and
// stops nothing.
func TestHooksOfForward(t *testing.T) {
	t.Parallel()
	log := &logged{}
	s := newPlace(t, store.SQLite).store(t, store.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
	must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "good"}, errAway))
	must(t, s.Put(t.Context(), producer.Message{RoutingKey: "missing", ID: "bad"}, errAway))
	var mu sync.Mutex
	var calls []string
	note := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, text)
	}
	broker := &peer{answer: func(_ context.Context, m producer.Message) error {
		if m.RoutingKey == "missing" {
			return producer.ErrReturned
		}
		return nil
	}}
	stop := forward(t, s, broker, store.ForwardConfig{Tries: 1, Traces: []store.ForwardTrace{
		{Forwarded: func(_ context.Context, f store.Forwarded) {
			note("first " + f.Entry.Message.ID)
			panic("Forwarded")
		}},
		{},
		{
			Forwarded: func(_ context.Context, f store.Forwarded) { note("second " + f.Entry.Message.ID) },
			Failed:    func(context.Context, store.ForwardFailure) { note("failed"); panic("Failed") },
		},
	}})
	empties(t, s, store.Query{States: []store.State{store.Ready}}, patience)
	stop()
	if text := strings.Join(calls, ", "); !strings.Contains(text, "first good, second good") && !strings.Contains(text, "first good, failed, second good") || !strings.Contains(text, "failed") {
		t.Errorf("called: %s", text)
	}
	if log.has("a hook of store.ForwardTrace panicked") != 2 {
		t.Error("a panic of a hook is not logged")
	}
}
