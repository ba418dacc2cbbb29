package hand

import (
	"fmt"
	"testing"
)

func TestMessagesThatWaitForAKeyAreTakenBackInTheirOrder(t *testing.T) {
	s := newStage(t, Limits{Slots: 2, PerKey: 1})
	for _, key := range []string{"a", "a", "b", "b", "a", "c"} {
		s.deliver(1, func(m *Message) { m.Key = key })
	}
	s.took("one of each key", "[1]", "[3]")
	if tags := s.takeBack(0); fmt.Sprint(tags) != "[2 4 5 6]" {
		t.Errorf("taken back: %v, want all that no worker has, in their order", tags)
	}
	s.endAll()
	s.took("those that went back are handled by others")
	if len(s.lane.keys.of) > 0 || s.lane.keys.waiting > 0 {
		t.Errorf("%d keys are remembered at rest", len(s.lane.keys.of))
	}
}

// TestAMessageGoesBackWithThoseThatWaitForItsKey: else they would be handled here before it.
func TestAMessageGoesBackWithThoseThatWaitForItsKey(t *testing.T) {
	s := newStage(t, Limits{Slots: 1, PerKey: 1})
	for _, key := range []string{"a", "a", "b", "c", "c", "b"} {
		s.deliver(1, func(m *Message) { m.Key = key })
	}
	if tags := s.takeBack(1); fmt.Sprint(tags) != "[4 5]" {
		t.Errorf("taken back: %v, want the one that is queued behind the first, and the one that waits for its key", tags)
	}
	for range 4 {
		s.endAll()
	}
	s.took("all others are handled here", "[1]", "[2]", "[3]", "[6]")
	if len(s.lane.keys.of) > 0 || s.lane.keys.waiting > 0 {
		t.Errorf("%d keys are remembered at rest", len(s.lane.keys.of))
	}
}

// TestAMessageThatWaitsForItsKeyWaits: else an outage would give it back at each try.
func TestAMessageThatWaitsForItsKeyWaits(t *testing.T) {
	s := newStage(t, Limits{Slots: 2, PerKey: 1})
	for range 3 {
		s.deliver(1, func(m *Message) { m.Key = "a" })
	}
	if n := s.in.Room(0).Waiting; n != 2 {
		t.Errorf("%d messages wait, want the two whose key is in hand", n)
	}
}

func TestAMessageThatHasWaitedForItsKeyGoesAheadOfLaterOnes(t *testing.T) {
	s := newStage(t, Limits{Slots: 1, PerKey: 1})
	for _, key := range []string{"a", "b", "a", "c", ""} {
		s.deliver(1, func(m *Message) { m.Key = key })
	}
	for range 5 {
		s.endAll()
	}
	s.took("in the order of their tags", "[1]", "[2]", "[3]", "[4]", "[5]")
}
