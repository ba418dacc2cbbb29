package hand

import (
	"testing"

	"github.com/rehop/rehop/consumer/internal/durations"
)

// A lane that is not consumed begins anew when a worker has nothing else to do.
func TestALaneIsToldThatItsTurnHasCome(t *testing.T) {
	s := newStage(t, Limits{Slots: 1, Share: 1})
	low := s.hand.Lane(Limits{Slots: 1, Share: 1})
	is := func(when string, starved, told bool) {
		t.Helper()
		if got := isSet(low.Changed); got != told {
			t.Errorf("%s: told: %v, want %v", when, got, told)
		}
		if turn := low.Turn(s.now, &s.out); turn.Starved != starved || !turn.Paused.IsZero() {
			t.Errorf("%s: %+v, want starved: %v", when, turn, starved)
		}
		s.do()
	}
	is("nobody has anything to do", false, false)
	s.deliver(2)
	is("a worker is at work", true, false)
	s.ends(s.runs[0])
	is("the worker has the next message", true, false)
	s.lane.Opening(s.now, &s.out)
	s.ends(s.runs[0])
	is("one more is expected", true, false)
	s.pass(durations.LaneOpening - 1)
	is("just before it is not", true, false)
	s.pass(1)
	is("a worker is free", false, true)

	low.SetPaused(true, s.now, &s.out)
	s.do()
	if told, turn := isSet(low.Changed), low.Turn(s.now, &s.out); !told || !turn.Paused.Equal(s.now) || turn.Starved || isSet(low.Changed) {
		t.Errorf("told: %v, %+v, want the pause, and nothing else to be told of", told, turn)
	}
	low.SetPaused(false, s.now, &s.out)
	s.do()
	is("the pause is over", false, true)
}
