package connection_test

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rehop/rehop/xdeath"
)

// ledger follows every message by its id. It is safe for concurrent use.
type ledger struct {
	mu      sync.Mutex
	begun   map[string]time.Time // when Publish was called
	safe    map[string]bool      // Publish returned nil
	failed  []error              // of the other calls
	handled map[string]int
	letters map[string]int
	crashes int       // letters whose cause is the delivery limit
	runs    int       // of the handler, begun
	trips   []trip    // of messages that were handled
	last    time.Time // when something was last written here
}

// trip is a message's way from the call of Publish to the end of its handler.
type trip struct{ begun, ended time.Time }

func newLedger() *ledger {
	return &ledger{begun: map[string]time.Time{}, safe: map[string]bool{}, handled: map[string]int{}, letters: map[string]int{}, last: time.Now()}
}

func (l *ledger) write(what func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = time.Now()
	what()
}

func (l *ledger) publishing(id string) {
	l.write(func() { l.begun[id] = time.Now() })
}

func (l *ledger) published(id string, err error) {
	l.write(func() {
		if err != nil {
			l.failed = append(l.failed, err)
			return
		}
		l.safe[id] = true
	})
}

func (l *ledger) begin() { l.write(func() { l.runs++ }) }

func (l *ledger) handle(id string) {
	l.write(func() {
		l.handled[id]++
		l.trips = append(l.trips, trip{l.begun[id], time.Now()})
	})
}

func (l *ledger) letter(id string, cause xdeath.Cause) {
	l.write(func() {
		l.letters[id]++
		if cause == xdeath.CauseCrashLoop {
			l.crashes++
		}
	})
}

// count returns how many runs of the handler have begun and how many messages
// were handled.
func (l *ledger) count() (runs, handled int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runs, len(l.trips)
}

// crashed returns how many letters the delivery limit has made.
func (l *ledger) crashed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.crashes
}

// tripAfter returns when the first message was handled whose Publish was called
// after t.
func (l *ledger) tripAfter(t time.Time) (ended time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.trips, func(trip trip) bool { return trip.begun.After(t) })
	if i < 0 {
		return time.Time{}, false
	}
	return l.trips[i].ended, true
}

// lost returns the messages that are safe and have not ended anywhere.
func (l *ledger) lost() (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.safe {
		if l.handled[id]+l.letters[id] == 0 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// doubled returns how many messages have ended more than once.
func (l *ledger) doubled() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.begun {
		if l.handled[id]+l.letters[id] > 1 {
			n++
		}
	}
	return n
}

func (l *ledger) failures() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.failed)
}

func (l *ledger) quietSince() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *ledger) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("%d safe, %d publishes failed, %d handler runs; %d ended handled, %d as dead letters, %d of them by the delivery limit",
		len(l.safe), len(l.failed), l.runs, len(l.handled), len(l.letters), l.crashes)
}
