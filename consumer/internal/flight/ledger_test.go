package flight

import (
	"slices"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestBegunAreTheOpenMessagesThatWorkersHave(t *testing.T) {
	s := NewLedger(NewUnsettled())
	var want []*Message
	for tag := uint64(1); tag <= 5; tag++ {
		m := &Message{Raw: amqp.Delivery{DeliveryTag: tag}}
		s.Arrive(m)
		if tag != 2 {
			m.Begun.Store(true)
		}
		switch tag {
		case 2:
		case 3:
			s.Mark(Told{m, Ack})
		default:
			want = append(want, m)
		}
	}
	if got := s.Begun(); !slices.Equal(got, want) {
		t.Errorf("%d messages are begun, want %d", len(got), len(want))
	}
}

func TestCountsOfASession(t *testing.T) {
	all := NewUnsettled()
	s := NewLedger(all)
	fresh, again := &Message{}, &Message{Raw: amqp.Delivery{Redelivered: true}, Suspect: true}
	s.Arrive(fresh)
	s.Arrive(again)
	is := func(when string, unsettled, suspects, alone, untried int) {
		t.Helper()
		gotSuspects, gotAlone := s.Suspects()
		if s.Unsettled() != unsettled || gotSuspects != suspects || gotAlone != alone || s.Untried() != untried {
			t.Errorf("%s: %d unsettled, %d suspects, %d alone, %d untried; want %d, %d, %d, %d", when,
				s.Unsettled(), gotSuspects, gotAlone, s.Untried(), unsettled, suspects, alone, untried)
		}
	}
	is("both have come", 2, 1, 1, 1)
	again.Returned()
	again.Returned()
	is("a handler has returned from the suspect", 2, 1, 0, 0)
	if len(s.Cleared()) != 1 {
		t.Error("nobody is told that the suspect is cleared")
	}
	s.Settled(again)
	s.Settled(fresh)
	is("both are settled", 0, 0, 0, 0)
	if all.n.Load() != 2 {
		t.Errorf("%d messages of the Run before their end, want 2", all.n.Load())
	}
	s.End(again)
	s.End(fresh)
	if all.n.Load() != 0 {
		t.Errorf("%d messages of the Run after their end, want none", all.n.Load())
	}
}

func TestPlural(t *testing.T) {
	for n, want := range map[int]string{0: "0 messages", 1: "1 message", 2: "2 messages"} {
		if got := Plural(n, "message"); got != want {
			t.Errorf("Plural(%d) = %q, want %q", n, got, want)
		}
	}
}
