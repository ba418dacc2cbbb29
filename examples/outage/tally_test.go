package main

import (
	"errors"
	"testing"

	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

func TestReport(t *testing.T) {
	rows := []struct {
		rule    string
		receipt producer.Receipt
		arrives int
		ok      bool
	}{
		{"confirmed and arrived", producer.Receipt{ID: "a", Place: producer.PlaceQueue}, 1, true},
		{"confirmed and lost", producer.Receipt{ID: "a", Place: producer.PlaceQueue}, 0, false},
		{"stored and lost", producer.Receipt{ID: "a", Place: producer.PlaceFallback}, 0, false},
		{"twice, announced", producer.Receipt{ID: "a", Place: producer.PlaceFallback, MaybeDuplicate: true}, 2, true},
		{"twice, not announced", producer.Receipt{ID: "a", Place: producer.PlaceQueue}, 2, false},
	}
	for _, row := range rows {
		tally := newTally()
		tally.take(row.receipt, nil, 0)
		for range row.arrives {
			tally.arrive("a")
		}
		if err := tally.report(); (err == nil) != row.ok {
			t.Errorf("%s: %v", row.rule, err)
		}
	}
	tally := newTally()
	tally.take(producer.Receipt{ID: "a"}, errors.New("not safe"), 0)
	tally.take(producer.Receipt{ID: "b", Place: producer.PlaceFallback}, nil, 0)
	tally.forward(t.Context(), store.Forwarded{Entry: store.Entry{Message: producer.Message{ID: "b"}, Unconfirmed: 1}})
	tally.arrive("b")
	tally.arrive("b")
	if err := tally.report(); err != nil || tally.refused != 1 {
		t.Errorf("%v, %d sent away", err, tally.refused)
	}
}
