package store_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

func TestChange(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		for i := range 6 {
			must(t, s.Put(t.Context(), producer.Message{Exchange: "shop", RoutingKey: "k", ID: fmt.Sprint(i)}, errAway))
		}
		id := func(i int) store.Query { return store.Query{MessageIDs: []string{fmt.Sprint(i)}} }
		for _, change := range []struct {
			name string
			do   func(context.Context, store.Query) (int, error)
			of   int
		}{{"Park", s.Park, 0}, {"Archive", s.Archive, 1}, {"Delete", s.Delete, 2}, {"Park", s.Park, 3}, {"Release", s.Release, 3}} {
			if n, err := change.do(t.Context(), id(change.of)); n != 1 || err != nil {
				t.Errorf("%s: %d, %v", change.name, n, err)
			}
			if n, err := change.do(t.Context(), store.Query{}); n != 0 || rehop.ClassOf(err) != rehop.ClassBug {
				t.Errorf("%s of the empty Query: %d, %v; want a refusal", change.name, n, err)
			}
		}
		var states []store.State
		for _, l := range find(t, s, store.Query{}) {
			states = append(states, l.State)
		}
		if want := []store.State{store.Parked, store.Archived, store.Ready, store.Ready, store.Ready}; !slices.Equal(states, want) {
			t.Errorf("states %v, want %v", states, want)
		}
		four := find(t, s, id(4))[0]
		must(t, s.Edit(t.Context(), four.Number, func(m *producer.Message) error { m.RoutingKey, m.Body = "other", []byte("new"); return nil }))
		if l := find(t, s, id(4))[0]; l.Message.RoutingKey != "other" || string(l.Message.Body) != "new" || l.Number != four.Number {
			t.Errorf("edited: %+v", l)
		}
		if err := s.Edit(t.Context(), four.Number, func(m *producer.Message) error { m.Priority = 200; return nil }); rehop.ClassOf(err) != rehop.ClassBug {
			t.Errorf("Edit to a faulty message: %v", err)
		}
		if err := s.Edit(t.Context(), four.Number+100, func(*producer.Message) error { return nil }); err == nil {
			t.Error("Edit of a letter that is not there: nil")
		}
		if n, err := s.Delete(t.Context(), store.Query{All: true, States: []store.State{store.Archived}, Before: time.Now().Add(time.Minute)}); n != 1 || err != nil {
			t.Errorf("Delete of the archived: %d, %v; want the archived one", n, err)
		}
		if n, err := s.Delete(t.Context(), store.Query{All: true}); n != 4 || err != nil {
			t.Errorf("Delete of all: %d, %v", n, err)
		}
	})
}

func TestALetterThatWasEditedIsReplacedByNoOther(t *testing.T) {
	original := producer.Message{Exchange: "shop", RoutingKey: "order.paid", ID: "order", Body: []byte("A"), Headers: amqp.Table{"v": "1"}}
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		must(t, s.Put(t.Context(), original, producer.ErrReturned))
		err := s.Edit(t.Context(), find(t, s, store.Query{})[0].Number, func(m *producer.Message) error {
			m.Body, m.Headers = []byte("B"), amqp.Table{"v": "2"}
			return nil
		})
		must(t, err)
		must(t, s.Put(t.Context(), original, errAway)) // it is published, and stored, once more
		letters := find(t, s, store.Query{})
		if len(letters) != 2 {
			t.Fatalf("%d letters, want the edited one and the original", len(letters))
		}
		edited, again := letters[0], letters[1]
		if string(edited.Message.Body) != "B" || edited.Message.Headers["v"] != "2" || edited.State != store.Held {
			t.Errorf("the edited letter is %+v", edited)
		}
		if string(again.Message.Body) != "A" || again.Message.Headers["v"] != "1" || again.State != store.Ready {
			t.Errorf("the original is %+v", again)
		}
	})
}
