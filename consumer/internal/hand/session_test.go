package hand

import (
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestBegunAreTheOpenMessagesThatWorkersHave(t *testing.T) {
	s := newStage(t, Limits{Slots: 6, PerKey: 1})
	var ms []*Message
	for _, key := range []string{"a", "a", "b", "c", "d", "e"} { // the second waits for the first
		s.deliver(1, func(m *Message) {
			m.Key = key
			ms = append(ms, m)
		})
	}
	for _, r := range slices.Clone(s.runs) {
		switch r.grant.Of[0] {
		case ms[2]:
			s.ends(r)
		case ms[3]:
			r.end = func() *Hold { return &Hold{Kind: ForAnother, For: time.Minute, Until: s.now.Add(time.Hour)} }
			s.ends(r)
		case ms[4]:
			s.hand.Settle(s.now, &s.out, Told{ms[4], Copy})
			s.ends(r)
		}
	}
	want := []*Message{ms[0], ms[3], ms[4], ms[5]}
	var got []*Message
	for _, m := range s.in.Taken() {
		got = append(got, m.Message)
		if atWork := m.Message == ms[0] || m.Message == ms[5]; m.IsHandled() != atWork {
			t.Errorf("message %d, which is %v: a handler is at work on it: %v", m.Raw.DeliveryTag, m.Phase, m.IsHandled())
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d messages are begun, want %d", len(got), len(want))
	}
}

func TestCountsOfASession(t *testing.T) {
	s := newStage(t, Limits{Slots: 2})
	s.handle = func(g *Grant) (time.Duration, func() *Hold) {
		if g.Of[0].IsSuspect() && g.Why == First {
			return time.Second, func() *Hold { return &Hold{Kind: ForAnother, For: time.Second, Until: s.now.Add(time.Hour)} }
		}
		return 3 * time.Second, nil
	}
	is := func(when string, unsettled, suspects, uncleared, untried int) {
		t.Helper()
		want := Counts{Unsettled: unsettled, Suspects: suspects, Uncleared: uncleared, Untried: untried}
		got := s.in.Counts()
		if want.Bytes, want.Recent, want.Retained = got.Bytes, got.Recent, got.Retained; got != want {
			t.Errorf("%s: %+v; want %+v", when, got, want)
		}
	}
	s.deliver(1)
	s.deliver(1, func(m *Message) { m.Deaths, m.Raw = 10, amqp.Delivery{DeliveryTag: s.tag, Redelivered: true} })
	is("both have come", 2, 1, 1, 1)
	s.pass(time.Second - 1)
	is("before a handler has returned", 2, 1, 1, 1)
	if isSet(s.lane.Changed) {
		t.Error("the session is told that a suspect is cleared, and none is")
	}
	s.pass(1)
	is("a handler has returned from the suspect", 2, 1, 0, 0)
	if !isSet(s.lane.Changed) {
		t.Error("nobody is told that the suspect is cleared")
	}
	s.pass(time.Second)
	is("the suspect is handled again", 2, 1, 0, 0)
	s.pass(3 * time.Second)
	is("both are marked, and the broker has not been told", 2, 1, 0, 0)
	told, _, _ := s.in.Take(nil)
	if len(told) != 2 {
		t.Fatalf("%d messages are marked, want 2", len(told))
	}
	s.hand.Settled(told, s.now, &s.out)
	is("both are settled", 0, 0, 0, 0)
	if s.lane.Unsettled() != 2 || isSet(s.lane.None) {
		t.Errorf("%d messages of the lane before their end, want 2", s.lane.Unsettled())
	}
	s.hand.Hooked(told[0].Message)
	if s.lane.Unsettled() != 1 || isSet(s.lane.None) {
		t.Errorf("%d messages of the lane after the end of one, want 1", s.lane.Unsettled())
	}
	s.hand.Hooked(told[1].Message)
	if s.lane.Unsettled() != 0 || !isSet(s.lane.None) {
		t.Errorf("%d messages of the lane after their end, want none, and somebody to be told", s.lane.Unsettled())
	}
}
