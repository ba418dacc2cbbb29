package store

import (
	"testing"
	"time"

	"github.com/rehop/rehop/internal/repeats"
	"github.com/rehop/rehop/producer"
)

func TestParkedLettersLeaveHealthAlone(t *testing.T) {
	s := &Store{cfg: Config{}.withDefaults(), now: time.Now}
	h := &forwardHealth{}
	h.begins(time.Now())
	f := &forwarder{health: h, store: s, publisher: answering{producer.ErrReturned}, cfg: ForwardConfig{Tries: 5}.withDefaults(), again: repeats.New(s.cfg.Logger)}
	one := &sending{forwarder: f, work: t.Context(), lease: leased{until: time.Now().Add(time.Minute)}}
	for _, tt := range []struct {
		rule     string
		tries    []int // that each entry has spent
		degraded bool
	}{
		{"a letter is parked", []int{4}, false},
		{"one is tried again", []int{0}, true},
		{"one of two is tried again", []int{4, 0}, true},
		{"all that failed are parked", []int{4, 4}, false},
	} {
		var entries []Entry
		for _, tries := range tt.tries {
			entries = append(entries, Entry{State: Ready, Tries: tries})
		}
		one.publish(t.Context(), entries, 0, func() {})
		if err := h.check(time.Now().Add(2 * failingLimit)); (err != nil) != tt.degraded {
			t.Errorf("%s: %v", tt.rule, err)
		}
	}
}
