package main

import (
	"errors"
	"testing"

	"github.com/rehop/rehop/consumer"
)

func TestAChangedMessageIsNoticed(t *testing.T) {
	m := newMessage("q", "q/12345", 12345)
	if err := unchanged(m.ID, 12345, m.Body); err != nil {
		t.Error(err)
	}
	if err := unchanged("q/2", 2, m.Body); err == nil {
		t.Error("a body of another message is taken")
	}
	if err := unchanged(m.ID, 12345, m.Body[1:]); err == nil {
		t.Error("a cut body is taken")
	}
	if err := unchanged("none of ours", 0, make([]byte, bodySize)); err == nil {
		t.Error("a stranger is taken")
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
