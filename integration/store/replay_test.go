package store_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

func dead(i int) *consumer.Delivery {
	return &consumer.Delivery{Exchange: "shop", RoutingKey: "order.paid", ID: fmt.Sprintf("d-%03d", i), Body: []byte("b"),
		History: xdeath.History{Queue: "orders", FinalAttempts: 5, Failure: xdeath.Failure{Cause: rehop.CauseExhausted, Error: fmt.Sprint("order ", i), At: time.Now()}}}
}

func collect(t *testing.T, s *store.Store, n int) {
	t.Helper()
	if n > 100 { // in no order
		eachOf(t, n, func(i int) error { return s.Collect(t.Context(), dead(i)) })
		return
	}
	for i := range n {
		must(t, s.Collect(t.Context(), dead(i)))
	}
}

func TestReplay(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		collect(t, s, 500)
		must(t, s.Put(t.Context(), producer.Message{Exchange: "shop", RoutingKey: "k", ID: "lost"}, producer.ErrReturned))
		must(t, s.Put(t.Context(), producer.Message{Exchange: "shop", RoutingKey: "k", ID: "machine's"}, errAway))
		broker := &peer{answer: func(_ context.Context, m producer.Message) error {
			if m.ID == "d-100" {
				return producer.ErrNacked
			}
			return nil
		}}
		report, err := s.Replay(t.Context(), broker, store.Query{All: true}, store.ReplayOptions{DryRun: true})
		if report.Matched != 501 || err != nil || len(broker.ids()) != 0 {
			t.Errorf("dry run: %+v, %v", report, err)
		}
		calls := 0
		report, err = s.Replay(t.Context(), broker, store.Query{All: true}, store.ReplayOptions{Progress: func(store.ReplayReport) { calls++ }})
		if err != nil || report.Matched != 501 || report.Sent != 500 || report.Failed != 1 || !errors.Is(report.Last, producer.ErrNacked) || calls < 3 {
			t.Errorf("%+v, %v, %d calls of Progress", report, err, calls)
		}
		for _, m := range broker.sent {
			want := topology.Address{RoutingKey: "orders"}
			if m.ID == "lost" {
				want = topology.Address{Exchange: "shop", RoutingKey: "k"}
			}
			if got := (topology.Address{Exchange: m.Exchange, RoutingKey: m.RoutingKey}); got != want || m.Replays != 1 {
				t.Errorf("%s went to %v, replay %d; want %v", m.ID, got, m.Replays, want)
			}
		}
		left := find(t, s, store.Query{})
		if len(left) != 2 || left[0].Message.ID != "d-100" || left[0].State != store.Held || left[0].Tries != 1 || left[0].TryError == "" || left[0].Lease != "" || !left[0].NextTry.IsZero() {
			t.Errorf("left: %+v", left)
		}
	})
}

// TestReplayCountsWhatMayBeThereTwice: by what the Publisher says, and by what is known of
// earlier publishes.
func TestReplayCountsWhatMayBeThereTwice(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		for _, one := range []struct {
			id    string
			cause error
		}{{"by the Publisher", producer.ErrReturned}, {"by its cause", producer.ErrUnconfirmed}, {"once", producer.ErrReturned}, {"by its lease", producer.ErrReturned}} {
			must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: one.id}, one.cause))
		}
		_, err := p.open(t).Exec("UPDATE rehop_letters SET lease = 'dead/1', next_try = 1 WHERE message_id = 'by its lease'")
		must(t, err)
		broker := &peer{receipts: func(m producer.Message) producer.Receipt {
			return producer.Receipt{ID: m.ID, Place: producer.PlaceQueue, MaybeDuplicate: m.ID == "by the Publisher"}
		}}
		report, err := s.Replay(t.Context(), broker, store.Query{States: []store.State{store.Held, store.Ready}, All: true}, store.ReplayOptions{})
		if err != nil || report.Sent != 4 || report.MaybeDuplicate != 3 {
			t.Errorf("%+v, %v; want 4 sent, 3 of them perhaps twice", report, err)
		}
	})
}

func TestReplaySome(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		collect(t, s, 30)
		broker := &peer{}
		errEdit := errors.New("not this one")
		began := time.Now()
		report, err := s.Replay(t.Context(), broker, store.Query{Queue: "orders"}, store.ReplayOptions{
			Limit: 20, Rate: 20, To: &topology.Address{Exchange: "x", RoutingKey: "y"},
			Edit: func(m *producer.Message) error {
				if m.ID == "d-003" {
					return errEdit
				}
				m.Type = "edited"
				return nil
			},
		})
		if err != nil || report.Sent != 19 || report.Failed != 1 || !errors.Is(report.Last, errEdit) && report.Last == nil || time.Since(began) < 600*time.Millisecond {
			t.Errorf("%+v, %v", report, err)
		}
		if m := broker.sent[0]; m.Exchange != "x" || m.RoutingKey != "y" || m.Type != "edited" {
			t.Errorf("sent %+v", m)
		}
		if left := find(t, s, store.Query{}); len(left) != 11 || left[0].Message.ID != "d-003" || left[0].Message.RoutingKey != "order.paid" {
			t.Errorf("left %d", len(left))
		}
	})
}

// What comes back while a Replay runs is for the next one: otherwise a handler that
// still fails at once would keep it going for ever.
func TestReplayTriesEachLetterOnce(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		collect(t, s, 30)
		broker := &peer{}
		broker.answer = func(ctx context.Context, m producer.Message) error {
			d := dead(0)
			d.ID, d.Exchange, d.RoutingKey = m.ID, m.Exchange, m.RoutingKey+"'" // another row, as by another way
			return s.Collect(ctx, d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		report, err := s.Replay(ctx, broker, store.Query{Queue: "orders"}, store.ReplayOptions{Rate: 100})
		if err != nil || report.Matched != 30 || report.Sent != 30 || len(broker.ids()) != 30 {
			t.Errorf("%+v, %v; %d messages, want 30", report, err, len(broker.ids()))
		}
		if n, _ := s.Count(t.Context(), store.Query{}); n != 30 {
			t.Errorf("%d letters have come back, want 30", n)
		}
	})
}

func TestReplayStopsAndGoesOn(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		collect(t, s, 50)
		broker := &peer{}
		ctx, cancel := context.WithCancel(t.Context())
		report, err := s.Replay(ctx, broker, store.Query{Queue: "orders"}, store.ReplayOptions{Rate: 100, Progress: func(store.ReplayReport) { cancel() }})
		if !errors.Is(err, context.Canceled) || report.Sent == 0 || report.Sent == 50 {
			t.Errorf("stopped: %+v, %v", report, err)
		}
		report, err = s.Replay(t.Context(), broker, store.Query{Queue: "orders"}, store.ReplayOptions{})
		ids := broker.ids()
		slices.Sort(ids)
		if err != nil || len(ids) != 50 || len(slices.Compact(ids)) != 50 {
			t.Errorf("gone on: %+v, %v, %d sent", report, err, len(ids))
		}
	})
}

// TestASlowEditPublishesNothingAfterTheLease: another Replay may have the letters then.
func TestASlowEditPublishesNothingAfterTheLease(t *testing.T) {
	for rule, tt := range map[string]struct {
		edit          time.Duration // of one letter
		letters, sent int
		err           string
	}{
		"each letter takes longer than the lease":  {65 * time.Second, 3, 0, "was not published: when ReplayOptions.Edit returned, after 1m5s"},
		"each letter takes longer than its half":   {31 * time.Second, 3, 0, "29s of the lease of 1m0s were left, want 30s"},
		"a batch takes longer than several leases": {2 * time.Second, 100, 100, ""},
	} {
		t.Run(rule, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "letters.db")
			synctest.Test(t, func(t *testing.T) {
				db, err := sqlite.Open(path)
				must(t, err)
				defer db.Close()
				s, err := store.Open(t.Context(), db, store.SQLite, store.Config{})
				must(t, err)
				collect(t, s, tt.letters)
				broker := &peer{}
				over := make(chan struct{})
				go func() { // the other Replay takes what no lease keeps from it
					defer close(over)
					<-time.After(62 * time.Second)
					_, err := s.Replay(t.Context(), broker, store.Query{All: true}, store.ReplayOptions{Limit: 1})
					if err != nil {
						t.Error(err)
					}
				}()
				report, err := s.Replay(t.Context(), broker, store.Query{All: true}, store.ReplayOptions{Edit: func(*producer.Message) error {
					<-time.After(tt.edit)
					return nil
				}})
				if (err != nil) != (tt.err != "") || err != nil && !contains(err, tt.err) {
					t.Errorf("%+v, %v; want %q", report, err, tt.err)
				}
				<-over
				ids := broker.ids()
				slices.Sort(ids)
				if n := len(slices.Compact(slices.Clone(ids))); n != len(ids) || report.Failed != 0 {
					t.Errorf("%d messages, %d different ones: %+v", len(ids), n, report)
				}
				left := find(t, s, store.Query{})
				if len(left)+len(ids) != tt.letters || len(ids) < tt.sent {
					t.Errorf("%d sent and %d left of %d", len(ids), len(left), tt.letters)
				}
				for _, l := range left {
					if l.Lease != "" || l.Tries != 0 || l.State != store.Held {
						t.Errorf("left: %+v", l)
					}
				}
			})
		})
	}
}

func TestCanary(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		collect(t, s, 10)
		returns := true
		broker := &peer{answer: func(_ context.Context, m producer.Message) error {
			if returns {
				go func() { _ = s.Collect(context.Background(), dead(0)) }() // the handler failed again
			}
			return nil
		}}
		report, err := s.Replay(t.Context(), broker, store.Query{All: true}, store.ReplayOptions{Canary: 10 * time.Second})
		if !errors.Is(err, store.ErrCanary) || report.Sent != 1 {
			t.Errorf("the canary dies: %+v, %v", report, err)
		}
		returns = false
		report, err = s.Replay(t.Context(), broker, store.Query{All: true}, store.ReplayOptions{Canary: 200 * time.Millisecond})
		if err != nil || report.Sent != 10 {
			t.Errorf("the canary lives: %+v, %v", report, err)
		}
		collect(t, s, 2)
		broker.answer = func(context.Context, producer.Message) error { return connection.ErrSessionLost }
		report, err = s.Replay(t.Context(), broker, store.Query{All: true}, store.ReplayOptions{Canary: time.Minute})
		if !errors.Is(err, connection.ErrSessionLost) || report.Failed != 1 {
			t.Errorf("the canary cannot leave: %+v, %v", report, err)
		}
	})
}
