package main

import (
	"context"
	"testing"
)

func TestRunsAreOfOneSessionUntilItEnds(t *testing.T) {
	var s sessions
	first, end := context.WithCancel(t.Context())
	one, another := context.WithValue(first, key{}, 1), context.WithValue(first, key{}, 2)
	if a, b := s.of(one), s.of(another); a != 1 || b != 1 {
		t.Errorf("two runs of the first session are of %d and %d", a, b)
	}
	end()
	if late := s.of(another); late != 0 {
		t.Errorf("a run of a session that has ended is of %d", late)
	}
	if next := s.of(t.Context()); next != 2 || s.sum() != 2 {
		t.Errorf("a run of the second session is of %d, %d in all", next, s.sum())
	}
}

type key struct{}
