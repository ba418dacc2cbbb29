package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/topology"
)

// A dead letter goes back to the work queue that gave it up, released or replayed, and
// its handler sees where it was first published to.
func TestADeadLetterGoesToItsQueueOnly(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		collect(t, s, 2)
		letters := find(t, s, store.Query{})
		origin := topology.Address{Exchange: letters[0].Message.Exchange, RoutingKey: letters[0].Message.RoutingKey}
		broker := &peer{}
		_, err := s.Replay(t.Context(), broker, store.Query{Numbers: []int64{letters[0].Number}}, store.ReplayOptions{})
		must(t, err)
		_, err = s.Release(t.Context(), store.Query{Numbers: []int64{letters[1].Number}})
		must(t, err)
		forward(t, s, broker, store.ForwardConfig{})
		empties(t, s, store.Query{}, patience)
		for _, m := range broker.sent {
			if m.Exchange != "" || m.RoutingKey != "orders" || m.Origin != origin || m.Replays != 1 {
				t.Errorf("sent to %q, %q with the origin %v, %d replays; want it at the queue, from %v", m.Exchange, m.RoutingKey, m.Origin, m.Replays, origin)
			}
		}
		collect(t, s, 1)
		_, err = s.Replay(t.Context(), broker, store.Query{Queue: "orders"}, store.ReplayOptions{To: &topology.Address{Exchange: "other", RoutingKey: "k"}})
		must(t, err)
		if m := broker.sent[2]; m.Exchange != "other" || m.Origin != (topology.Address{}) {
			t.Errorf("sent elsewhere: %+v", m)
		}
	})
}

// What an outbox publishes is published for the first time.
func TestAFirstPublishIsNoReplay(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		tx, err := p.open(t).Begin()
		must(t, err)
		_, err = s.PutTx(t.Context(), tx, producer.Message{RoutingKey: "k", ID: "tx", OrderKey: "order 17"})
		must(t, err)
		must(t, tx.Commit())
		_, err = s.PutAt(t.Context(), time.Now(), producer.Message{RoutingKey: "k", ID: "at"})
		must(t, err)
		must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "put"}, errAway))
		broker := &peer{}
		forward(t, s, broker, store.ForwardConfig{})
		empties(t, s, store.Query{}, patience)
		for _, m := range broker.sent {
			if want := map[string]int{"put": 1}[m.ID]; m.Replays != want {
				t.Errorf("%s has %d replays, want %d", m.ID, m.Replays, want)
			}
			if m.ID == "tx" && m.OrderKey != "order 17" {
				t.Errorf("its OrderKey is %q", m.OrderKey)
			}
		}
	})
}

// Names are equal if their bytes are.
func TestNamesAreExact(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		names := []string{"c1", "c1 ", "C1", "ç1", "c1\x00"}
		for _, name := range names {
			_, err := s.PutAt(t.Context(), time.Now().Add(time.Hour), producer.Message{Exchange: name, RoutingKey: name, ID: name})
			must(t, err)
			must(t, s.Put(t.Context(), producer.Message{Exchange: "held", RoutingKey: name, ID: name}, fmt.Errorf("%w", producer.ErrReturned)))
		}
		for _, name := range names {
			for rule, q := range map[string]store.Query{"exchange": {Exchange: name}, "message id": {MessageIDs: []string{name}, Exchange: name}, "routing key": {RoutingKey: name, States: []store.State{store.Held}}} {
				if n, err := s.Count(t.Context(), q); n != 1 || err != nil {
					t.Errorf("%d letters with the %s %q, %v", n, rule, name, err)
				}
			}
			if n, err := s.Cancel(t.Context(), name); n != 1 || err != nil {
				t.Errorf("cancelled %d of %q, %v", n, name, err)
			}
		}
	})
}

// A list of nothing, or a name that is empty, selects nothing to be changed.
func TestNothingIsSelectedByNothing(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		for i := range 3 {
			must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: fmt.Sprint(i)}, producer.ErrReturned))
		}
		held := []store.State{store.Held}
		var none []string
		for rule, tt := range map[string]struct {
			q       store.Query
			refused bool
		}{
			"a list without ids":        {store.Query{States: held, MessageIDs: []string{}}, false},
			"a list without numbers":    {store.Query{States: held, Numbers: []int64{}}, false},
			"a list without states":     {store.Query{All: true, States: []store.State{}}, false},
			"an empty list, and All":    {store.Query{All: true, MessageIDs: []string{}}, false},
			"a list that is nil":        {store.Query{States: held, MessageIDs: none}, true},
			"names that are empty":      {store.Query{States: held, Queue: "", Cause: ""}, true},
			"a time":                    {store.Query{Before: time.Now().Add(time.Hour)}, true},
			"the end of a page":         {store.Query{After: 1}, true},
			"nothing":                   {store.Query{}, true},
			"more ids than can be told": {store.Query{MessageIDs: make([]string, 70_000)}, true},
		} {
			changed, err := s.Delete(t.Context(), tt.q)
			if changed != 0 || (err != nil) != tt.refused {
				t.Errorf("Delete of %s: %d, %v", rule, changed, err)
			}
			report, err := s.Replay(t.Context(), &peer{}, tt.q, store.ReplayOptions{})
			if report.Matched != 0 || (err != nil) != tt.refused {
				t.Errorf("Replay of %s: %+v, %v", rule, report, err)
			}
		}
		all := find(t, s, store.Query{})
		numbers := make([]int64, 0, 20_000)
		for i := range int64(20_000) {
			numbers = append(numbers, all[0].Number+2*i)
		}
		if n, err := s.Delete(t.Context(), store.Query{Numbers: numbers}); n != 2 || err != nil || len(all) != 3 {
			t.Errorf("of %d letters and 20,000 numbers %d were deleted, %v; want 2", len(all), n, err)
		}
	})
}

// What comes twice is stated, or refused.
func TestWhatComesTwice(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		ctx := t.Context()
		s := p.store(t, store.Config{})
		db := p.open(t)
		tx, err := db.Begin()
		must(t, err)
		m := producer.Message{RoutingKey: "k", ID: "twice"}
		other := m
		other.Headers = map[string]any{"traceparent": "00-2"}
		if _, err := s.PutTx(ctx, tx, m, other); err == nil || !contains(err, "messages[1] is the same as messages[0]") {
			t.Errorf("two messages with one id: %v", err)
		}
		must(t, tx.Rollback())

		late := time.Now().Add(2 * time.Hour).Truncate(time.Millisecond)
		for _, due := range []time.Time{late.Add(-time.Hour), late} {
			_, err = s.PutAt(ctx, due, producer.Message{RoutingKey: "k", ID: "dated"})
			must(t, err)
		}
		if l := find(t, s, store.Query{MessageIDs: []string{"dated"}}); len(l) != 1 || !l[0].Due.Equal(late) {
			t.Errorf("PutAt twice: %+v", l)
		}

		parked := producer.Message{RoutingKey: "k", ID: "parked"}
		must(t, s.Put(ctx, parked, errAway))
		_, err = s.Park(ctx, store.Query{MessageIDs: []string{"parked"}})
		must(t, err)
		must(t, s.Put(ctx, parked, errAway))
		if l := find(t, s, store.Query{MessageIDs: []string{"parked"}}); len(l) != 1 || l[0].State != store.Parked {
			t.Errorf("Put of a parked message: %+v", l)
		}
		must(t, s.Put(ctx, parked, producer.ErrReturned)) // it waits for a person either way
		if l := find(t, s, store.Query{MessageIDs: []string{"parked"}}); len(l) != 1 || l[0].State != store.Held {
			t.Errorf("returned: %+v", l)
		}

		report, err := s.Replay(ctx, &peer{}, store.Query{MessageIDs: []string{"parked"}}, store.ReplayOptions{Edit: func(m *producer.Message) error { m.Priority = 200; return nil }})
		if l := find(t, s, store.Query{MessageIDs: []string{"parked"}})[0]; err != nil || report.Failed != 1 || l.State != store.Held || !contains(errors.New(l.TryError), "Priority") {
			t.Errorf("an Edit that makes a message faulty: %+v, %v, and the letter is %s: %s", report, err, l.State, l.TryError)
		}
	})
}

// Text is bytes.
func TestTextOfAnyBytes(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		must(t, s.Put(t.Context(), producer.Message{RoutingKey: "k", ID: "1", Body: []byte("a\x00b\xffc?'")}, errors.New("grüße")))
		for text, want := range map[string]int{"a\x00b": 1, "\xffc": 1, "\x00\x00": 0, "grü": 1, "?'": 1} {
			if n, err := s.Count(t.Context(), store.Query{Text: text}); n != want || err != nil {
				t.Errorf("%q: %d, %v; want %d", text, n, err, want)
			}
		}
	})
}
