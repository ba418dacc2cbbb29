package faults

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
	unsafe  int             // Publish returned an error
	runs    map[string][]run
	done    map[string]int
	letters map[string][]letter
	parked  map[string]int // found in a wait queue
	busy    int            // handlers that are running
	last    time.Time      // when something was last written here
	starts  []time.Time
	faults  []error
}

// run is one run of the handler for a message.
type run struct {
	attempt     int
	redelivered bool
	child       bool // in the process that was killed
	start       time.Time
	end         time.Time // zero if it never returned
	due         time.Time // of a failure: the next attempt must not start before
}

// letter is an arrival in the dead-letter queue.
type letter struct {
	cause    xdeath.Cause
	attempts int
}

func newLedger(waits delay.Schedule) *ledger {
	return &ledger{
		waits: waits, safe: map[string]bool{}, runs: map[string][]run{},
		done: map[string]int{}, letters: map[string][]letter{}, parked: map[string]int{}, last: time.Now(),
	}
}

func (l *ledger) write(what func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = time.Now()
	what()
}

func (l *ledger) read(what func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	what()
}

func (l *ledger) published(id string, err error) {
	l.write(func() {
		if err != nil {
			l.unsafe++
			return
		}
		l.safe[id] = true
	})
}

// begin returns a function that ends the run; due is zero for a success.
func (l *ledger) begin(id string, r run) (end func(done bool, due time.Time)) {
	var i int
	l.write(func() {
		r.start = time.Now()
		i = len(l.runs[id])
		l.runs[id] = append(l.runs[id], r)
		l.starts = append(l.starts, r.start)
		l.busy++
	})
	return func(done bool, due time.Time) {
		l.write(func() {
			l.runs[id][i].end, l.runs[id][i].due = time.Now(), due
			l.busy--
			if done {
				l.done[id]++
			}
		})
	}
}

func (l *ledger) letter(id string, x letter) {
	l.write(func() { l.letters[id] = append(l.letters[id], x) })
}

// park notes a message that a wait queue held, with what its headers count.
func (l *ledger) park(id string, attempts int) {
	l.write(func() {
		l.parked[id]++
		highest := 0
		for _, r := range l.runs[id] {
			highest = max(highest, r.attempt)
		}
		if attempts != highest {
			l.faults = append(l.faults, fmt.Errorf("message %s waits after %d attempts, want %d\n\t%s", id, attempts, highest, l.story(id)))
		}
	})
}

// count returns how many messages are safe.
func (l *ledger) count() (n int) {
	l.read(func() { n = len(l.safe) })
	return n
}

// failures returns how many runs have failed.
func (l *ledger) failures() (n int) {
	l.read(func() {
		for _, runs := range l.runs {
			for _, r := range runs {
				if !r.due.IsZero() {
					n++
				}
			}
		}
	})
	return n
}

// started returns how many runs of an attempt have begun.
func (l *ledger) started(attempt int) (n int) {
	l.read(func() {
		for _, runs := range l.runs {
			for _, r := range runs {
				if r.attempt == attempt {
					n++
				}
			}
		}
	})
	return n
}

// firstAfter returns how long after t the next handler ran.
func (l *ledger) firstAfter(t time.Time) (after time.Duration, ok bool) {
	l.read(func() {
		for _, at := range l.starts {
			if at.After(t) && (!ok || at.Sub(t) < after) {
				after, ok = at.Sub(t), true
			}
		}
	})
	return after, ok
}

// places returns in how many places a message has ended. l.mu must be held.
func (l *ledger) places(id string) int { return l.done[id] + len(l.letters[id]) + l.parked[id] }

// lost returns the messages that were safe and have not ended anywhere.
func (l *ledger) lost() (ids []string) {
	l.read(func() {
		for id := range l.safe {
			if l.places(id) == 0 {
				ids = append(ids, id)
			}
		}
	})
	slices.Sort(ids)
	return ids
}

// lastDue returns when the wait ends in which a message was last known to be.
func (l *ledger) lastDue(id string) (due time.Time) {
	l.read(func() {
		for _, r := range l.runs[id] {
			if r.due.After(due) {
				due = r.due
			}
		}
	})
	return due
}

func (l *ledger) idle() (idle bool, since time.Time) {
	l.read(func() { idle, since = l.busy == 0, l.last })
	return idle, since
}

// duplicates returns how many messages ended more than once, and how often.
func (l *ledger) duplicates() (ids, extra int) {
	l.read(func() {
		for id := range l.runs {
			if n := l.places(id); n > 1 {
				ids++
				extra += n - 1
			}
		}
	})
	return ids, extra
}

func (l *ledger) String() string {
	lost := l.lost()
	ids, extra := l.duplicates()
	var s string
	l.read(func() {
		letters, runs := 0, 0
		for _, x := range l.letters {
			letters += len(x)
		}
		for _, r := range l.runs {
			runs += len(r)
		}
		s = fmt.Sprintf("%d safe, %d publishes failed, %d handler runs; %d ended handled, %d in a wait, %d as dead letters; %d lost, %d doubled (%d copies)",
			len(l.safe), l.unsafe, runs, len(l.done), len(l.parked), letters, len(lost), ids, extra)
	})
	return s
}

// check returns what is wrong with the attempts, for every message:
//   - they are within the schedule, and none is left out;
//   - none comes before its wait has ended;
//   - they never decrease. A message and its duplicate each have a count of
//     their own, so there it holds only that nothing runs more often than what
//     came before it.
func (l *ledger) check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	errs := slices.Clone(l.faults)
	fault := func(id, format string, args ...any) {
		errs = append(errs, fmt.Errorf("message %s: %s\n\t%s", id, fmt.Sprintf(format, args...), l.story(id)))
	}
	for _, id := range slices.Sorted(maps.Keys(l.runs)) {
		runs := l.runs[id]
		first := map[int]time.Time{}    // when an attempt first started
		earliest := map[int]time.Time{} // when the next attempt was first due
		highest := 0
		for _, r := range runs {
			if r.attempt < 1 || r.attempt > len(l.waits)+1 {
				fault(id, "attempt %d, want 1 to %d", r.attempt, len(l.waits)+1)
			}
			if r.attempt < highest && l.places(id) == 1 {
				fault(id, "attempt %d after attempt %d, and there is only one of it", r.attempt, highest)
			}
			highest = max(highest, r.attempt)
			if at, ok := first[r.attempt]; !ok || r.start.Before(at) {
				first[r.attempt] = r.start
			}
			if at, ok := earliest[r.attempt]; !r.due.IsZero() && (!ok || r.due.Before(at)) {
				earliest[r.attempt] = r.due
			}
		}
		for attempt, at := range first {
			if attempt == 1 {
				continue
			}
			due, ok := earliest[attempt-1]
			if !ok {
				fault(id, "attempt %d without a failed attempt %d", attempt, attempt-1)
			} else if at.Before(due) {
				fault(id, "attempt %d came %v before its wait had ended", attempt, due.Sub(at))
			}
		}
	}
	if n := len(errs); n > 5 {
		errs = append(errs[:5], fmt.Errorf("and %d faults more", n-5))
	}
	return errors.Join(errs...)
}

// story tells what is known of a message. l.mu must be held.
func (l *ledger) story(id string) string {
	var s []string
	for _, r := range l.runs[id] {
		who := ""
		if r.child {
			who = " in the child"
		}
		if r.redelivered {
			who += " redelivered"
		}
		s = append(s, fmt.Sprintf("%s attempt %d%s", r.start.Format("05.000"), r.attempt, who))
	}
	for _, x := range l.letters[id] {
		s = append(s, fmt.Sprintf("letter %q after %d attempts", x.cause, x.attempts))
	}
	return strings.Join(append(s, fmt.Sprintf("handled %d times", l.done[id])), "; ")
}

// few keeps a list of ids readable.
func few(ids []string) string {
	if len(ids) > 8 {
		return fmt.Sprintf("%s and %d more", strings.Join(ids[:8], " "), len(ids)-8)
	}
	return strings.Join(ids, " ")
}
