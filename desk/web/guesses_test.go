package web

import (
	"fmt"
	"testing"
	"time"
)

func TestGuessesAreBounded(t *testing.T) {
	const mallory, ada = "10.0.0.66:5000", "10.0.0.1:5000"
	type step struct {
		at    time.Duration
		times int
		from  string // %d: the number of the time
		right bool
		wait  time.Duration // of the last time
		count int           // of the times that count
	}
	for _, tt := range []struct {
		rule  string
		steps []step
	}{
		{"ten guesses, and then one every ten seconds", []step{
			{0, 10, mallory, false, 0, 10}, {0, 2000, mallory, false, 10 * time.Second, 0}, {4 * time.Second, 1, mallory, false, 6 * time.Second, 0},
			{10 * time.Second, 2, mallory, false, 10 * time.Second, 1}, {time.Hour, 12, mallory, false, 10 * time.Second, 10},
		}},
		{"a right answer waits too: else it could be told", []step{{0, 10, mallory, false, 0, 10}, {0, 1, mallory, true, 10 * time.Second, 0}, {10 * time.Second, 1, mallory, true, 0, 1}}},
		{"right answers cost nothing", []step{{0, 5000, ada, true, 0, 5000}}},
		{"a stranger's guesses lock nobody else out", []step{{0, 5000, mallory, false, 10 * time.Second, 10}, {0, 1, ada, true, 0, 1}}},
		{"another port is no other address", []step{{0, 300, "10.0.0.66:%d", false, 10 * time.Second, 10}}},
		{"a network of version 6 is one address", []step{{0, 300, "[2001:db8:1:2::%d]:5000", false, 10 * time.Second, 10}, {0, 1, "[2001:db8:1:3::1]:5000", false, 0, 1}}},
		{"an address of version 4 is the same in version 6", []step{{0, 10, "[::ffff:10.0.0.66]:5000", false, 0, 10}, {0, 1, mallory, false, 10 * time.Second, 0}}},
		{"what is no address is one", []step{{0, 300, "@%d", false, 10 * time.Second, 10}}},
		{"all together have a hundred, and then one a second", []step{{0, 200, "10.1.0.%d:5000", false, time.Second, 100}, {3 * time.Second, 200, "10.2.0.%d:5000", false, time.Second, 3}}},
		{"who was right does not wait for all", []step{
			{0, 1, ada, true, 0, 1}, {time.Hour, 200, "10.1.0.%d:5000", false, time.Second, 100}, {time.Hour, 1, ada, true, 0, 1}, {time.Hour, 1, "10.0.0.2:1", true, time.Second, 0},
		}},
		{"and has ten wrong ones", []step{{0, 1, ada, true, 0, 1}, {0, 200, "10.1.0.%d:5000", false, time.Second, 100}, {0, 11, ada, false, 10 * time.Second, 10}}},
		{"for as long as a login", []step{{0, 1, ada, true, 0, 1}, {sessionFor, 200, "10.1.0.%d:5000", false, time.Second, 100}, {sessionFor, 1, ada, true, time.Second, 0}}},
	} {
		var g guesses
		began := time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)
		for i, s := range tt.steps {
			var wait time.Duration
			count := 0
			for n := range s.times {
				from := s.from
				if wantsNumber(from) {
					from = fmt.Sprintf(from, n+1)
				}
				if wait = g.try(guesserOf(from), s.right, began.Add(s.at)); wait == 0 {
					count++
				}
			}
			if wait != s.wait || count != s.count {
				t.Errorf("%s, step %d: %d of %d count, and the last waits %v; want %d and %v", tt.rule, i+1, count, s.times, wait, s.count, s.wait)
			}
		}
	}
}

func wantsNumber(s string) bool { return fmt.Sprintf(s, 1) != fmt.Sprintf("%s%%!(EXTRA int=1)", s) }

// The addresses that are kept in mind are few, however many ask.
func TestFewGuessersAreKeptInMind(t *testing.T) {
	var g guesses
	now := time.Now()
	for i := range 5 * maxGuessers {
		if i%500 == 0 {
			g.try(guesserOf("10.9.9.9:1"), true, now)
		}
		now = now.Add(time.Second)
		g.try(guesserOf(fmt.Sprintf("10.%d.%d.1:1", i/250, i%250)), i%2 == 0, now)
		if len(g.of) > maxGuessers {
			t.Fatalf("%d are kept", len(g.of))
		}
	}
	if g.of[guesserOf("10.9.9.9:1")].right.IsZero() {
		t.Error("somebody who comes often is forgotten")
	}
}
