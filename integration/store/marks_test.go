package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// Package desk deletes the letters that it has copied, unless they have changed since.
func TestMarksTellWhatHasChanged(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		s := p.store(t, store.Config{})
		const n = 230 // more than one statement deletes
		message := func(i int) producer.Message {
			return producer.Message{RoutingKey: "orders", ID: fmt.Sprint("m-", i)}
		}
		for i := range n {
			if err := s.Put(t.Context(), message(i), errors.New("no stock")); err != nil {
				t.Fatal(err)
			}
		}
		letters, _, err := s.Find(t.Context(), store.Query{Limit: n})
		if err != nil || len(letters) != n {
			t.Fatalf("%d letters: %v", len(letters), err)
		}
		var numbers []int64
		for _, l := range letters {
			numbers = append(numbers, l.Number)
		}
		marks, err := letter.Marked(t.Context(), s, numbers)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Edit(t.Context(), numbers[7], func(m *producer.Message) error { m.Body = []byte("mended"); return nil }); err != nil {
			t.Fatal(err)
		}
		<-time.After(5 * time.Millisecond) // the time of a failure is in whole milliseconds
		if err := s.Put(t.Context(), message(150), errors.New("no customer")); err != nil {
			t.Fatal(err)
		}
		if deleted, err := marks.Delete(t.Context(), numbers); err != nil || deleted != n-2 {
			t.Errorf("%d deleted: %v, want %d", deleted, err, n-2)
		}
		left, _, err := s.Find(t.Context(), store.Query{})
		if err != nil || len(left) != 2 || left[0].Number != numbers[7] || left[1].Message.ID != "m-150" {
			t.Errorf("left: %v: %+v", err, left)
		}
	})
}
