package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rehop/rehop/delay"
)

// ledger follows every message by its number, from 1 up. A run has more than a
// million of them: what is ordinary about one fits in a few bytes, which are there
// from the start, and only what is not is kept in maps. It is safe for concurrent
// use.
type ledger struct {
	waits delay.Schedule

	mu       sync.Mutex
	records  []record
	failures map[int][]failure
	more     map[int][]end // after the first end of a message
	counts   counts
	wrong    []string // attempts that should not have been
	last     time.Time
}

// counts are of messages, where they do not say otherwise.
type counts struct {
	published   int // Publish was called for them
	confirmed   int // Publish said that they are safe
	inFlight    int // calls of Publish
	unconfirmed int // calls that ended with an unknown outcome
	failed      int // calls that ended with another error
	open        int // confirmed and not ended
	runs        int // of the handler
	handled     int // for the first time
	letters     int // in the dead-letter queue, for the first time
	left        int // in another queue at the end
}

// record is what is known of one message.
type record struct {
	sends    uint16 // calls of Publish
	safe     bool   // one of them returned nil
	repeated bool   // one of them may have sent it twice
	first    end
}

// end is an arrival of a message at a place where it is not lost.
type end struct {
	place       place
	attempt     uint8
	send        uint16 // the call of Publish that it came from
	redelivered bool
}

type place uint8

const (
	nowhere place = iota
	handled
	deadLetter
	inQueue // neither handled nor dead-lettered when the time was up
)

func (p place) String() string {
	return [...]string{"nowhere", "handled", "dead letter", "left in a queue"}[p]
}

// failure is one failed run of the handler.
type failure struct {
	attempt uint8
	due     time.Time // the next attempt must not come before
	waits   bool      // a copy of the message is confirmed by its wait queue
}

func newLedger(waits delay.Schedule, messages int) *ledger {
	return &ledger{
		waits: waits, records: make([]record, 1, messages+1),
		failures: map[int][]failure{}, more: map[int][]end{},
	}
}

// begin adds a message and returns its number.
func (l *ledger) begin() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.published++
	l.records = append(l.records, record{})
	return len(l.records) - 1
}

// next returns the number that the next message will have.
func (l *ledger) next() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.records)
}

// sending notes that Publish is called and returns which call this is.
func (l *ledger) sending(n int) uint16 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.inFlight++
	l.records[n].sends++
	return l.records[n].sends
}

// sent notes how a call of Publish has ended.
func (l *ledger) sent(n int, repeated, unconfirmed bool, err error, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = now
	l.counts.inFlight--
	r := &l.records[n]
	r.repeated = r.repeated || repeated
	switch {
	case err == nil:
		r.safe = true
		l.counts.confirmed++
		if r.first.place == nowhere {
			l.counts.open++
		}
	case unconfirmed:
		l.counts.unconfirmed++
	default:
		l.counts.failed++
	}
}

// run notes that the handler runs. A later attempt must come after the wait
// that follows a failed one before it.
func (l *ledger) run(n, attempt int, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = now
	l.counts.runs++
	if fault := l.fault(n, attempt, now); fault != "" {
		l.wrong = append(l.wrong, fmt.Sprintf("message %d: %s: %s", n, fault, l.story(n)))
	}
}

// fault needs l.mu held.
func (l *ledger) fault(n, attempt int, now time.Time) string {
	if attempt == 1 {
		return ""
	}
	if attempt < 1 || attempt > len(l.waits)+1 {
		return fmt.Sprintf("attempt %d, want 1 to %d", attempt, len(l.waits)+1)
	}
	var due time.Time
	for _, f := range l.failures[n] {
		if int(f.attempt) == attempt-1 && (due.IsZero() || f.due.Before(due)) {
			due = f.due
		}
	}
	switch {
	case due.IsZero():
		return fmt.Sprintf("attempt %d without a failed attempt %d", attempt, attempt-1)
	case now.Before(due):
		return fmt.Sprintf("attempt %d came %v before its wait had ended", attempt, due.Sub(now))
	}
	return ""
}

// failed notes that the handler returns an error.
func (l *ledger) failed(n, attempt int, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = now
	wait, _ := l.waits.After(attempt)
	l.failures[n] = append(l.failures[n], failure{attempt: uint8(attempt), due: now.Add(wait)})
}

// ended notes that a message is handled or was found.
func (l *ledger) ended(n int, e end, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = now
	r := &l.records[n]
	if r.first.place != nowhere {
		l.more[n] = append(l.more[n], e)
		return
	}
	r.first = e
	if r.safe {
		l.counts.open--
	}
	switch e.place {
	case handled:
		l.counts.handled++
	case deadLetter:
		l.counts.letters++
	case inQueue:
		l.counts.left++
	}
}

// copied notes that the wait queue of a failed attempt has confirmed a copy.
func (l *ledger) copied(n, attempt int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.failures[n]
	for i := len(of) - 1; i >= 0; i-- {
		if int(of[i].attempt) == attempt {
			of[i].waits = true
			return
		}
	}
}

func (l *ledger) snapshot() (c counts, last time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts, l.last
}

// lost returns the messages that are safe and have not ended anywhere.
func (l *ledger) lost() (all []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n, r := range l.records {
		if r.safe && r.first.place == nowhere {
			all = append(all, n)
		}
	}
	return all
}

// dueIn reports whether a wait queue has confirmed a message, last of all that is known of
// it, and its wait ended, or was about to end, between from and to.
func (l *ledger) dueIn(n int, from, to time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.failures[n]
	if len(of) == 0 {
		return false
	}
	last := slices.MaxFunc(of, func(a, b failure) int { return a.due.Compare(b.due) })
	return last.waits && last.due.After(from) && last.due.Before(to)
}

// stories tells of the first few of many messages.
func (l *ledger) stories(numbers []int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var s strings.Builder
	for _, n := range numbers[:min(len(numbers), 8)] {
		fmt.Fprintf(&s, "\n\tmessage %d: %s", n, l.story(n))
	}
	return s.String()
}

// story needs l.mu held.
func (l *ledger) story(n int) string {
	r := l.records[n]
	s := fmt.Sprintf("published %d times, safe %t, perhaps sent twice %t", r.sends, r.safe, r.repeated)
	for _, f := range l.failures[n] {
		s += fmt.Sprintf("; attempt %d failed, the next due at %s, copy confirmed %t", f.attempt, f.due.Format("15:04:05.000"), f.waits)
	}
	for _, e := range append([]end{r.first}, l.more[n]...) {
		if e.place == nowhere {
			return s + "; ended nowhere"
		}
		s += fmt.Sprintf("; %v in attempt %d of publish %d, redelivered %t", e.place, e.attempt, e.send, e.redelivered)
	}
	return s
}
