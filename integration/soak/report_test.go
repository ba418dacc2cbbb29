package main

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestALossAWrongAttemptAndALeakAreFailures(t *testing.T) {
	if err := (report{}).verdict(); err != nil {
		t.Errorf("verdict of nothing wrong: %v", err)
	}
	for want, r := range map[string]report{
		"2 messages are lost":       {lost: []int{4, 5}},
		"1 runs were of a wrong":    {wrong: []string{"attempt 7"}},
		"3 goroutines are left ove": {end: usage{goroutines: 3}},
	} {
		if err := r.verdict(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("verdict is %v, want %q", err, want)
		}
	}
	if err := (report{unpromised: []int{1}, duplicates: map[cause]int{sentAgain: 1}}).verdict(); err != nil {
		t.Errorf("verdict of what is not promised: %v", err)
	}
}

func TestTheTableHasEveryKindThatCameAndEveryCause(t *testing.T) {
	r := report{
		settings: settings{rate: 100},
		took:     10 * time.Second,
		counts:   counts{published: 900, confirmed: 890, unconfirmed: 3, failed: 1, handled: 880, runs: 950, letters: 7},
		outages: []outage{
			{fault: fault{kind: cut}, confirmed: 20 * time.Millisecond, handled: 30 * time.Millisecond},
			{fault: fault{kind: cut}, confirmed: time.Second, handled: 2 * time.Second, overtaken: true},
			{fault: fault{kind: cut}, confirmed: 40 * time.Millisecond, handled: 50 * time.Millisecond},
			{fault: fault{kind: kill}},
		},
		duplicates: map[cause]int{calledAgain: 4, movedAgain: 5},
	}
	var w strings.Builder
	r.print(&w)
	// Columns are aligned; only what they hold matters here.
	got := regexp.MustCompile(` +`).ReplaceAllString(w.String(), " ")
	for _, want := range []string{
		" 40ms 1s 50ms 2s 3 1 cut\n",
		" - - - - 1 0 kill\n",
		"confirmed 890 89/s over all",
		"calls of Publish without success 4 3 unconfirmed, 1 for another reason",
		"handled 880 in 950 runs",
		"dead-lettered 7 ",
		"lost 0 ",
		"duplicates 9 ",
		" 4 " + string(calledAgain),
		" 5 " + string(movedAgain),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the table lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, string(reset)) {
		t.Errorf("the table has a fault that never came:\n%s", got)
	}
}
