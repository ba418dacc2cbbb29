package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop/delay"
)

var (
	noon  = time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	waits = delay.Schedule{time.Second, 2 * time.Second}
)

// published returns a ledger with messages that are safe.
func published(n int) *ledger {
	l := newLedger(waits, n)
	for range n {
		m := l.begin()
		l.sending(m)
		l.sent(m, false, false, nil, noon)
	}
	return l
}

func TestASafeMessageThatEndedNowhereIsLost(t *testing.T) {
	l := published(4)
	unsafe := l.begin()
	l.sending(unsafe)
	l.sent(unsafe, false, true, errors.New("no answer"), noon)
	l.ended(1, end{handled, 1, 1, false}, noon)
	l.ended(3, end{deadLetter, 3, 1, false}, noon)
	l.run(4, 1, noon)
	l.failed(4, 1, noon)
	if got := l.lost(); !slices.Equal(got, []int{2, 4}) {
		t.Errorf("lost are %v, want 2 and 4", got)
	}
	if counts, _ := l.snapshot(); counts.open != 2 || counts.unconfirmed != 1 || counts.confirmed != 4 {
		t.Errorf("counts are %+v, want 2 open, 1 unconfirmed, 4 confirmed", counts)
	}
	l.ended(2, end{inQueue, 0, 1, false}, noon)
	if got := l.lost(); !slices.Equal(got, []int{4}) {
		t.Errorf("lost are %v, want 4: the other one was found in a queue", got)
	}
}

// A message can be handled before the call that published it has returned.
func TestAMessageThatEndedBeforeItWasConfirmedIsNotOpen(t *testing.T) {
	l := newLedger(waits, 1)
	n := l.begin()
	l.sending(n)
	l.ended(n, end{handled, 1, 1, false}, noon)
	l.sent(n, false, false, nil, noon)
	if counts, _ := l.snapshot(); counts.open != 0 || len(l.lost()) != 0 {
		t.Errorf("open are %d, lost %v", counts.open, l.lost())
	}
}

func TestAttemptsThatShouldNotBeAreWrong(t *testing.T) {
	tests := map[string]struct {
		attempt int
		after   time.Duration // the failure of attempt 1
		want    string        // in what is wrong, empty for nothing
	}{
		"the first again": {1, 0, ""},
		"in time":         {2, time.Second, ""},
		"too early":       {2, time.Second - time.Millisecond, "came 1ms before its wait had ended"},
		"one left out":    {3, time.Minute, "attempt 3 without a failed attempt 2"},
		"too many":        {4, time.Minute, "attempt 4, want 1 to 3"},
		"none":            {0, time.Minute, "attempt 0, want 1 to 3"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := published(1)
			l.run(1, 1, noon)
			l.failed(1, 1, noon)
			l.run(1, tt.attempt, noon.Add(tt.after))
			got := strings.Join(l.wrong, "\n")
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("wrong is %q, want %q", got, tt.want)
			}
		})
	}
}

// On 3.x a wait that ends while the broker goes down may lose its message.
func TestALossIsUnpromisedOnlyIfItsWaitEndedWithTheBrokerDown(t *testing.T) {
	down := outage{fault: fault{kind: kill}, begun: noon, lifted: noon.Add(10 * time.Second)}
	tests := map[string]struct {
		failed time.Time // attempt 1, whose wait is a second
		copied bool
		fault  kind
		want   bool
	}{
		"in the midst":      {noon.Add(5 * time.Second), true, kill, true},
		"never in the wait": {noon.Add(5 * time.Second), false, kill, false},
		"orderly":           {noon.Add(5 * time.Second), true, restart, true},
		"long before":       {noon.Add(-10 * time.Second), true, kill, false},
		"long after":        {noon.Add(20 * time.Second), true, kill, false},
		"by another fault":  {noon.Add(5 * time.Second), true, freeze, false},
		"just before":       {noon.Add(-2 * time.Second), true, kill, true},
		"it never failed":   {time.Time{}, false, kill, false},
		"after it was back": {noon.Add(10 * time.Second), true, kill, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := published(1)
			if !tt.failed.IsZero() {
				l.failed(1, 1, tt.failed)
			}
			if tt.copied {
				l.copied(1, 1)
			}
			o := down
			o.fault.kind = tt.fault
			if got := unpromised(l, 1, []outage{o}); got != tt.want {
				t.Errorf("unpromised = %t, want %t", got, tt.want)
			}
		})
	}
}
