package store_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
	"github.com/rehop/rehop/topology"
)

// TestADelayRunsOnInTheStore: a message with a Delay that is published during an
// outage comes when it would have come without, or when the broker is back.
func TestADelayRunsOnInTheStore(t *testing.T) {
	for rule, tt := range map[string]struct{ delay, outage, want time.Duration }{
		"the broker is back before": {time.Hour, 20 * time.Minute, time.Hour},
		"the broker is back later":  {20 * time.Minute, time.Hour, time.Hour},
	} {
		t.Run(rule, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "letters.db")
			synctest.Test(t, func(t *testing.T) { testDelayInOutage(t, path, tt.delay, tt.outage, tt.want) })
		})
	}
}

func testDelayInOutage(t *testing.T, path string, delay, outage, want time.Duration) {
	db, err := sqlite.Open(path)
	must(t, err)
	defer db.Close()
	letters, err := store.Open(t.Context(), db, store.SQLite, store.Config{KeepOrder: true})
	must(t, err)
	broker, err := rehoptest.NewBroker(rehoptest.Config{})
	must(t, err)
	defer broker.Close()
	conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: broker.Dial})
	must(t, err)
	defer conn.Close()
	must(t, topology.Declare(t.Context(), conn, topology.Delays{}, topology.WorkQueue{Name: "orders"}))
	publisher, err := producer.New(conn, producer.Config{Fallback: []producer.Sink{letters}})
	must(t, err)
	defer publisher.Close()
	forwarder, err := producer.New(conn, producer.Config{})
	must(t, err)
	defer forwarder.Close()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- runForwarder(ctx, letters, forwarder, store.ForwardConfig{}) }()

	broker.Stop()
	began := time.Now()
	receipt, err := publisher.Publish(t.Context(), producer.Message{RoutingKey: "orders", ID: "late", Delay: delay})
	must(t, err)
	if receipt.Place != producer.PlaceFallback {
		t.Fatalf("the message is in %v, want the store", receipt.Place)
	}
	stored := time.Now()
	// The next message has no place behind it.
	if _, err := publisher.Publish(t.Context(), producer.Message{RoutingKey: "orders", ID: "at once"}); err != nil {
		t.Error(err)
	}
	<-time.After(outage - time.Since(began))
	broker.Start()
	ready := func() (ids []string) {
		q, _ := broker.Queue("orders")
		for _, m := range q.Ready {
			ids = append(ids, m.MessageId)
		}
		return ids
	}
	if earliest := delay - time.Since(began); earliest > 0 {
		<-time.After(earliest - time.Millisecond)
		if ids := ready(); len(ids) != 1 || ids[0] != "at once" {
			t.Errorf("%v before it is due there is %q, want the other one", time.Until(stored.Add(delay)), ids)
		}
	}
	limit := stored.Add(want).Add(15 * time.Second) // a Conn's pause between two tries to connect is up to 10 s
	for len(ready()) < 2 && time.Now().Before(limit) {
		<-time.After(10 * time.Millisecond)
	}
	took := time.Since(stored)
	if ids := ready(); len(ids) != 2 || took < delay {
		t.Errorf("%v after it was published with a Delay of %v there is %q:\n%s", took, delay, ids, broker.Story("late"))
	}
	t.Logf("delay %v, outage %v: it came after %v", delay, outage, took)
	cancel()
	must(t, <-ended)
}

// TestWhenDelayedLettersAreDue: a Delay becomes a Due, which Replay and Edit keep.
func TestWhenDelayedLettersAreDue(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{KeepOrder: true})
		began := time.Now()
		m := func(id string) producer.Message { return producer.Message{RoutingKey: "k", ID: id, Delay: time.Hour} }
		must(t, s.Put(t.Context(), m("away"), errAway))
		must(t, s.Put(t.Context(), m("returned"), producer.ErrReturned))
		tomorrow := began.Add(24 * time.Hour)
		_, err := s.PutAt(t.Context(), tomorrow, m("at"))
		must(t, err)
		_, err = s.PutAt(t.Context(), began.Add(-24*time.Hour), m("at, past"))
		must(t, err)
		db := p.open(t)
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		_, err = s.PutTx(t.Context(), tx, m("tx"))
		must(t, err)
		must(t, tx.Commit())
		took := time.Since(began)
		of := func(id string) store.Entry {
			t.Helper()
			letters := find(t, s, store.Query{MessageIDs: []string{id}})
			if len(letters) != 1 {
				t.Fatalf("%d letters %q", len(letters), id)
			}
			return letters[0]
		}
		within := func(rule string, due, from time.Time) {
			t.Helper()
			if due.Before(from) || due.After(from.Add(took+time.Millisecond)) {
				t.Errorf("%s is due %v after %v", rule, due.Sub(from), from)
			}
		}
		for id, from := range map[string]time.Time{"away": began, "returned": began, "at": tomorrow, "at, past": began, "tx": began} {
			l := of(id)
			within(id, l.Due, from.Add(time.Hour))
			if !l.NextTry.Equal(l.Due) || l.Message.Delay != time.Hour {
				t.Errorf("%s: %+v", id, l)
			}
		}
		if n := len(find(t, s, store.Query{Scheduled: true})); n != 4 {
			t.Errorf("%d letters are not due, want 4", n)
		}

		// Neither waits for the other.
		if stored, err := s.PutBehind(t.Context(), producer.Message{RoutingKey: "k", ID: "undelayed"}); stored || err != nil {
			t.Errorf("a message without a Delay is behind those with one: %v", err)
		}
		must(t, s.Put(t.Context(), producer.Message{RoutingKey: "other", ID: "undelayed"}, errAway))
		if stored, err := s.PutBehind(t.Context(), producer.Message{RoutingKey: "other", ID: "delayed", Delay: time.Hour}); stored || err != nil {
			t.Errorf("a message with a Delay is behind one without: %v", err)
		}

		due := of("away").Due
		err = s.Edit(t.Context(), of("away").Number, func(m *producer.Message) error { m.Delay = 3 * time.Hour; return nil })
		must(t, err)
		if l := of("away"); !l.Due.Equal(due.Add(2*time.Hour)) || !l.NextTry.Equal(l.Due) {
			t.Errorf("a Delay that is 2h longer makes it due %v later", l.Due.Sub(due))
		}

		broker := &peer{}
		replay := func(id string, o store.ReplayOptions) producer.Message {
			t.Helper()
			broker.sent = nil
			if _, err := s.Replay(t.Context(), broker, store.Query{States: []store.State{store.Ready, store.Held}, MessageIDs: []string{id}}, o); err != nil || len(broker.sent) != 1 {
				t.Fatalf("%d sent, %v", len(broker.sent), err)
			}
			return broker.sent[0]
		}
		due = of("returned").Due
		before := time.Now()
		left := replay("returned", store.ReplayOptions{}).Delay
		if left > due.Sub(before) || left < time.Until(due) {
			t.Errorf("replayed with a Delay of %v, want what is left of it, %v", left, time.Until(due))
		}
		if left := replay("tx", store.ReplayOptions{Edit: func(m *producer.Message) error { m.Delay = 0; return nil }}).Delay; left != 0 {
			t.Errorf("replayed with a Delay of %v, want that of Edit, none", left)
		}

		// What is due is published without.
		must(t, s.Put(t.Context(), producer.Message{RoutingKey: "soon", ID: "soon", Delay: 300 * time.Millisecond}, errAway))
		due = of("soon").Due
		var early time.Duration
		broker = &peer{answer: func(_ context.Context, m producer.Message) error {
			if m.ID == "soon" {
				early = time.Until(due)
			}
			return nil
		}}
		stop := forward(t, s, broker, store.ForwardConfig{})
		empties(t, s, store.Query{RoutingKey: "soon"}, patience)
		stop()
		for _, m := range broker.sent {
			if m.Delay != 0 {
				t.Errorf("%q was forwarded with a Delay of %v", m.ID, m.Delay)
			}
		}
		if early > 0 {
			t.Errorf("forwarded %v too early", early)
		}
	})
}
