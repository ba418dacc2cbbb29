package main

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop/integration/account"
)

func TestALossAWrongAttemptAndALeakAreFailures(t *testing.T) {
	if err := (report{}).verdict(); err != nil {
		t.Errorf("verdict of nothing wrong: %v", err)
	}
	for want, r := range map[string]report{
		"2 messages are lost":       {lost: []string{"q/4", "q/5"}},
		"attempt 7, want 1 to 3":    {wrong: errors.New("attempt 7, want 1 to 3")},
		"3 goroutines are left ove": {end: usage{goroutines: 3}},
	} {
		if err := r.verdict(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("verdict is %v, want %q", err, want)
		}
	}
	if err := (report{doubles: account.Doubles{Messages: 1, Ends: 1}}).verdict(); err != nil {
		t.Errorf("verdict of a duplicate: %v", err)
	}
}

func TestTheTableHasEveryKindThatCameAndEveryCause(t *testing.T) {
	r := report{
		settings: settings{rate: 100},
		took:     10 * time.Second,
		counts:   account.Counts{Numbered: 900, Safe: 890, Unknown: 3, Failed: 4, Handled: 880, Runs: 950, Letters: 7},
		outages: []outage{
			{fault: fault{kind: cut}, confirmed: 20 * time.Millisecond, handled: 30 * time.Millisecond},
			{fault: fault{kind: cut}, confirmed: time.Second, handled: 2 * time.Second, overtaken: true},
			{fault: fault{kind: cut}, confirmed: 40 * time.Millisecond, handled: 50 * time.Millisecond},
			{fault: fault{kind: kill}},
		},
		doubles: account.Doubles{Messages: 8, Ends: 9, By: map[account.Cause]int{account.CalledAgain: 4, account.MovedAgain: 5}},
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
		"duplicates 9 of 8 messages",
		" 4 " + string(account.CalledAgain),
		" 5 " + string(account.MovedAgain),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the table lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, string(reset)) {
		t.Errorf("the table has a fault that never came:\n%s", got)
	}
}
