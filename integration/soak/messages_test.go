package main

import (
	"errors"
	"testing"

	"github.com/rehop/rehop/consumer"
)

func TestAMessageTellsWhichCallItCameFrom(t *testing.T) {
	for _, want := range []uint16{1, 2, 300} {
		m := newMessage("q", 12345, want)
		n, send, err := identify(m.ID, m.Body, m.Headers)
		if n != 12345 || send != want || err != nil {
			t.Errorf("identify = %d, %d, %v, want 12345, %d, nil", n, send, err, want)
		}
	}
	m := newMessage("q", 1, 1)
	if _, _, err := identify("2", m.Body, nil); err == nil {
		t.Error("a body of another message is taken")
	}
	if _, _, err := identify("1", m.Body[1:], nil); err == nil {
		t.Error("a cut body is taken")
	}
}

func TestOneInAHundredFailsOnceAndThreeInAThousandForGood(t *testing.T) {
	var once, exhausted, permanent int
	for n := 1; n <= 1000; n++ {
		first, last := outcome(n, 1), outcome(n, 3)
		switch {
		case consumer.OutcomeOf(first).Action == consumer.ActionDeadLetter:
			permanent++
		case errors.Is(last, errEver):
			exhausted++
		case first != nil && outcome(n, 2) == nil:
			once++
		}
	}
	if once != 10 || exhausted != 1 || permanent != 2 {
		t.Errorf("%d fail once, %d until no attempt is left, %d are dead-lettered at once, want 10, 1, 2", once, exhausted, permanent)
	}
}
