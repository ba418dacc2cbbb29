package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// A lease that has ended does not belong to anybody: whoever had it deletes nothing
// that was edited since.
func TestEditEndsALease(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "m"}, errAway))
		_, err := p.open(t).Exec("UPDATE rehop_letters SET lease = 'asleep/1', next_try = 1")
		must(t, err)
		must(t, s.Edit(t.Context(), find(t, s, store.Query{})[0].Number, func(m *producer.Message) error { m.Body = []byte("edited"); return nil }))
		if l := find(t, s, store.Query{})[0]; l.Lease != "" || string(l.Message.Body) != "edited" {
			t.Errorf("lease %q, body %q", l.Lease, l.Message.Body)
		}
	})
}

// What change does is the caller's affair: it may use the store, and panic.
func TestEditRunsItsFunctionForTheCaller(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "m"}, errAway))
		number := find(t, s, store.Query{})[0].Number
		calls := 0
		must(t, s.Edit(t.Context(), number, func(m *producer.Message) error {
			if calls++; calls == 1 { // somebody else edits it meanwhile
				must(t, s.Edit(t.Context(), number, func(m *producer.Message) error { m.Type = "other's"; return nil }))
			}
			m.AppID = "mine"
			return nil
		}))
		if m := find(t, s, store.Query{})[0].Message; m.Type != "other's" || m.AppID != "mine" || calls != 2 {
			t.Errorf("after two edits at a time: %+v, %d calls", m, calls)
		}
		defer func() {
			if recover() == nil {
				t.Error("a panic of change did not reach the caller")
			}
			must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "next"}, errAway))
		}()
		_ = s.Edit(t.Context(), number, func(*producer.Message) error { panic("change") })
	})
}

// Replay publishes what is scheduled, if it is told to. What it does not publish keeps
// its date.
func TestWhatReplayLeavesKeepsItsDate(t *testing.T) {
	due := time.Now().Add(24 * time.Hour)
	for rule, replay := range map[string]func(t *testing.T, p place, s *store.Store){
		"Edit refuses": func(t *testing.T, _ place, s *store.Store) {
			report, err := s.Replay(t.Context(), &peer{}, scheduled, store.ReplayOptions{Edit: func(*producer.Message) error { return errors.New("not this one") }})
			if report.Failed != 3 || err != nil {
				t.Errorf("%+v, %v", report, err)
			}
		},
		"the broker refuses": func(t *testing.T, _ place, s *store.Store) {
			report, err := s.Replay(t.Context(), &peer{answer: func(context.Context, producer.Message) error { return producer.ErrNacked }}, scheduled, store.ReplayOptions{})
			if report.Failed != 3 || err != nil {
				t.Errorf("%+v, %v", report, err)
			}
		},
		"its ctx ends": func(t *testing.T, _ place, s *store.Store) {
			ctx, cancel := context.WithCancel(t.Context())
			_, err := s.Replay(ctx, &peer{answer: func(ctx context.Context, _ producer.Message) error { cancel(); <-ctx.Done(); return context.Cause(ctx) }}, scheduled, store.ReplayOptions{})
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		},
		"its process died": func(t *testing.T, p place, s *store.Store) {
			_, err := p.open(t).Exec("UPDATE rehop_letters SET lease = 'dead/1', next_try = 1")
			must(t, err)
		},
	} {
		t.Run(rule, func(t *testing.T) {
			onEach(t, func(t *testing.T, p place) {
				s := p.store(t, store.Config{})
				for i := range 3 {
					_, err := s.PutAt(t.Context(), due, producer.Message{RoutingKey: "k", ID: fmt.Sprint("tomorrow ", i)})
					must(t, err)
				}
				replay(t, p, s)
				_, err := s.PutAt(t.Context(), time.Unix(-1, 0), producer.Message{RoutingKey: "k", ID: "long due"})
				must(t, err)
				broker := &peer{}
				forward(t, s, broker, store.ForwardConfig{})
				empties(t, s, store.Query{MessageIDs: []string{"long due"}}, patience)
				for _, l := range find(t, s, store.Query{}) {
					if !l.NextTry.Equal(l.Due) || l.Lease != "" {
						t.Errorf("%s is due at %v, and next tried at %v, lease %q", l.Message.ID, l.Due, l.NextTry, l.Lease)
					}
				}
				if got := broker.ids(); len(got) != 1 {
					t.Errorf("forwarded %q", got)
				}
			})
		})
	}
}

// A Replay whose process dies while Forward runs leaves the end of its lease where the
// date of a letter was.
func TestALeaseThatEndsIsNoDate(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		_, err := s.PutAt(t.Context(), time.Now().Add(24*time.Hour), producer.Message{RoutingKey: "k", ID: "tomorrow"})
		must(t, err)
		broker := &peer{}
		forward(t, s, broker, store.ForwardConfig{})
		for _, id := range []string{"before", "after"} {
			must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: id}, errAway))
			empties(t, s, store.Query{MessageIDs: []string{id}}, patience)
			_, err := p.open(t).Exec("UPDATE rehop_letters SET lease = 'dead/1', next_try = 1")
			must(t, err)
		}
		if got := broker.ids(); !slices.Equal(got, []string{"before", "after"}) {
			t.Errorf("forwarded %q", got)
		}
	})
}

var scheduled = store.Query{Scheduled: true, States: []store.State{store.Ready}}

// A stop gives back what is leased: nobody has to wait until the lease ends.
func TestAStopLeavesNoLease(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		eachOf(t, 400, func(i int) error {
			return s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: fmt.Sprint(i)}, errAway)
		})
		for round := range 10 {
			published := make(chan struct{}, 5000)
			stop := forward(t, s, &peer{answer: func(context.Context, producer.Message) error { published <- struct{}{}; return nil }}, store.ForwardConfig{Batch: 10})
			for range round {
				<-published
			}
			stop()
			for _, l := range find(t, s, store.Query{Limit: 400}) {
				if l.Lease != "" {
					t.Fatalf("round %d: letter %d is still leased by %s", round, l.Number, l.Lease)
				}
			}
		}
	})
}

// The canary is the letter that was sent, and no other with its message id.
func TestTheCanaryIsNoOtherLetter(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		collect(t, s, 1)
		other := dead(0)
		other.History.Queue = "bills"
		must(t, s.Collect(t.Context(), other))
		report, err := s.Replay(t.Context(), &peer{}, store.Query{Queue: "orders"}, store.ReplayOptions{Canary: 200 * time.Millisecond})
		if report.Sent != 1 || err != nil {
			t.Errorf("%+v, %v", report, err)
		}
	})
}
