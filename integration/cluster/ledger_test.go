package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/xdeath"
)

// ledger follows every message of one work queue by its id. It is safe for
// concurrent use.
type ledger struct {
	waits delay.Schedule

	mu      sync.Mutex
	safe    map[string]bool // Publish returned nil
	refused []error         // of the other calls
	runs    map[string][]run
	done    map[string]int
	letters map[string][]xdeath.Cause
	busy    int       // handlers that are running
	last    time.Time // when something was last written here

	handlers, retries, confirms track
}

// run is one run of the handler for a message.
type run struct {
	attempt int
	start   time.Time
	due     time.Time // of a failure: the next attempt must not start before
}

func newLedger(waits delay.Schedule) *ledger {
	return &ledger{
		waits: waits, safe: map[string]bool{}, runs: map[string][]run{},
		done: map[string]int{}, letters: map[string][]xdeath.Cause{}, last: time.Now(),
	}
}

func (l *ledger) published(instance int, id string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = time.Now()
	if err != nil {
		l.refused = append(l.refused, err)
		return
	}
	l.safe[id] = true
	l.confirms = append(l.confirms, event{l.last, instance})
}

// begin returns a function that ends the run; due is zero for a success.
func (l *ledger) begin(instance int, id string, attempt int) (end func(due time.Time)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = time.Now()
	l.busy++
	i := len(l.runs[id])
	l.runs[id] = append(l.runs[id], run{attempt: attempt, start: l.last})
	l.handlers = append(l.handlers, event{l.last, instance})
	if attempt > 1 {
		l.retries = append(l.retries, event{l.last, instance})
	}
	return func(due time.Time) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.last = time.Now()
		l.busy--
		l.runs[id][i].due = due
		if due.IsZero() {
			l.done[id]++
		}
	}
}

func (l *ledger) letter(id string, cause xdeath.Cause) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = time.Now()
	l.letters[id] = append(l.letters[id], cause)
}

// retried returns how many runs of attempt 2 or later have begun.
func (l *ledger) retried() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.retries)
}

// lost returns the messages that are safe and have not ended anywhere.
func (l *ledger) lost() (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.safe {
		if l.places(id) == 0 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// places returns in how many places a message has ended. l.mu must be held.
func (l *ledger) places(id string) int { return l.done[id] + len(l.letters[id]) }

func (l *ledger) idle() (idle bool, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.busy == 0, l.last
}

// progress tells what a fault that took from began to broken did to the flow of
// messages until end.
func (l *ledger) progress(began, broken, end time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("handlers: %s; retries: %s; confirms: %s", l.handlers.after(began, broken, end),
		l.retries.after(began, broken, end), l.confirms.after(began, broken, end))
}

func (l *ledger) String() string {
	lost := len(l.lost())
	l.mu.Lock()
	defer l.mu.Unlock()
	runs, doubled, copies := 0, 0, 0
	for id, of := range l.runs {
		runs += len(of)
		if n := l.places(id); n > 1 {
			doubled, copies = doubled+1, copies+n-1
		}
	}
	var causes []string
	count := map[xdeath.Cause]int{}
	for _, letters := range l.letters {
		for _, cause := range letters {
			count[cause]++
		}
	}
	for _, cause := range slices.Sorted(maps.Keys(count)) {
		causes = append(causes, fmt.Sprintf("%d %s", count[cause], cause))
	}
	return fmt.Sprintf("%d safe, %d publishes failed, %d handler runs; %d handled, dead letters: %s; %d lost, %d doubled (%d copies)",
		len(l.safe), len(l.refused), runs, len(l.done), strings.Join(causes, ", "), lost, doubled, copies)
}

// check returns what is wrong with the attempts: one outside the schedule, one
// left out, or one before the wait ahead of it has ended.
func (l *ledger) check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(l.runs)) {
		for _, r := range l.runs[id] {
			if err := l.checkRun(id, r); err != nil {
				errs = append(errs, fmt.Errorf("message %s: %w\n\t%s", id, err, l.story(id)))
			}
		}
	}
	if n := len(errs); n > 5 {
		errs = append(errs[:5], fmt.Errorf("and %d faults more", n-5))
	}
	return errors.Join(errs...)
}

// checkRun compares a run with those before it. A message and its duplicates
// cannot be told apart: the first failure of all counts. l.mu must be held.
func (l *ledger) checkRun(id string, r run) error {
	if r.attempt < 1 || r.attempt > len(l.waits)+1 {
		return fmt.Errorf("attempt %d, want 1 to %d", r.attempt, len(l.waits)+1)
	}
	if r.attempt == 1 {
		return nil
	}
	var due time.Time
	for _, before := range l.runs[id] {
		if before.attempt == r.attempt-1 && !before.due.IsZero() && (due.IsZero() || before.due.Before(due)) {
			due = before.due
		}
	}
	if due.IsZero() {
		return fmt.Errorf("attempt %d without a failed attempt %d", r.attempt, r.attempt-1)
	}
	if r.start.Before(due) {
		return fmt.Errorf("attempt %d came %v before its wait had ended", r.attempt, due.Sub(r.start))
	}
	return nil
}

// story tells what is known of a message. l.mu must be held.
func (l *ledger) story(id string) string {
	var s []string
	for _, r := range l.runs[id] {
		s = append(s, fmt.Sprintf("%s attempt %d", r.start.Format("05.000"), r.attempt))
	}
	for _, cause := range l.letters[id] {
		s = append(s, fmt.Sprintf("letter %q", cause))
	}
	return strings.Join(append(s, fmt.Sprintf("handled %d times", l.done[id])), "; ")
}

// stories tells of the first few of many messages.
func (l *ledger) stories(ids []string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var s strings.Builder
	for _, id := range ids[:min(len(ids), 8)] {
		fmt.Fprintf(&s, "\n\t%s: %s", id, l.story(id))
	}
	return s.String()
}
