package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
)

// ledger follows every order of one run through the office. It hears of them by
// the consumer's trace hooks, and knows when all have ended.
type ledger struct {
	keep bool // an order ends as a dead letter, which stays

	run      string // begins the message ids of this run
	waits    delay.Schedule
	allEnded func()

	mu       sync.Mutex
	ids      []string // as in the CSV file
	records  map[string]*record
	open     int // orders that have not ended
	starts   int // first attempts so far
	lateness []time.Duration
	letters  []letter
	causes   map[rehop.Cause]int // of dead letters
	foreign  int                 // messages of former runs
}

// record is the story of one order.
type record struct {
	order      Order
	place      place
	waitNumber int       // of waiting, from 1
	start      int       // 1 if its first attempt was the first of all orders, and so on
	failures   []failure // whose next attempt has not come yet
	endings    []ending  // one, if all is well
}

// failure is a failed attempt.
type failure struct {
	attempt int
	at      time.Time     // when the handler returned it
	wait    time.Duration // that is due after it
}

// place is where an order is now.
type place uint8

const (
	unpublished place = iota
	queued
	inWork
	waiting
	done         // SMS sent, or discarded
	deadLettered // its letter is not sent yet
	letterSent
	unsent // in the producer's fallback
)

// ending is how an order ended: by which means, at which attempt.
type ending struct {
	how     string
	attempt int
}

const (
	bySMS      = "SMS"
	byDiscard  = "discarded"
	byFallback = "producer's fallback"
)

// byLetter is a letter for a dead letter of that reason.
func byLetter(reason string) string { return "letter: " + reason }

// newLedger returns a ledger that calls allEnded once every order has ended.
func newLedger(orders []Order, waits delay.Schedule, allEnded func()) *ledger {
	l := &ledger{
		run:      fmt.Sprintf("%x.", time.Now().UnixMilli()),
		waits:    waits,
		allEnded: allEnded,
		records:  map[string]*record{},
		causes:   map[rehop.Cause]int{},
		open:     len(orders),
	}
	for _, o := range orders {
		l.ids = append(l.ids, o.ID)
		l.records[o.ID] = &record{order: o}
	}
	return l
}

// trace returns the hooks of the consumer that sends SMS.
func (l *ledger) trace() consumer.Trace {
	return consumer.Trace{Received: l.received, Handled: l.handled, Settled: l.settled}
}

// messageID returns the id of an order's message. It names the run, so that
// what an interrupted run left in the queues is not taken for ours.
func (l *ledger) messageID(o Order) string { return l.run + o.ID }

// ofThisRun keeps the messages of former runs from a handler.
func (l *ledger) ofThisRun(handle consumer.Handler) consumer.Handler {
	return func(ctx context.Context, d *consumer.Delivery) error {
		if !strings.HasPrefix(d.ID, l.run) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.foreign++
			return consumer.Discard("left by a former run")
		}
		return handle(ctx, d)
	}
}

// with runs change on the record of a message, if it is of this run.
func (l *ledger) with(messageID string, change func(*record)) {
	id, ok := strings.CutPrefix(messageID, l.run)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, ok := l.records[id]; ok {
		change(r)
	}
}

// end notes an ending. The caller holds the lock.
func (l *ledger) end(r *record, e ending) {
	r.endings = append(r.endings, e)
	if len(r.endings) > 1 {
		return
	}
	l.open--
	if l.open == 0 {
		l.allEnded()
	}
}

func (l *ledger) published(messageID string) {
	l.with(messageID, func(r *record) { r.place = queued })
}

func (l *ledger) fellBack(messageID string) {
	l.with(messageID, func(r *record) {
		r.place = unsent
		l.end(r, ending{how: byFallback})
	})
}

func (l *ledger) received(ctx context.Context, d *consumer.Delivery) context.Context {
	now := time.Now()
	l.with(d.ID, func(r *record) {
		if r.start == 0 {
			l.starts++
			r.start = l.starts
		}
		// The oldest one, if a lost connection has doubled the attempt. Its time
		// is that of the handler, and not of Settled: a copy begins its wait
		// when the broker has it, which is before the consumer knows.
		i := slices.IndexFunc(r.failures, func(f failure) bool { return f.attempt == d.Attempt-1 })
		if i >= 0 {
			l.lateness = append(l.lateness, now.Sub(r.failures[i].at)-r.failures[i].wait)
			r.failures = slices.Delete(r.failures, i, i+1)
		}
		r.place = inWork
	})
	return ctx
}

func (l *ledger) handled(_ context.Context, h consumer.Handled) {
	d := h.Delivery
	now := time.Now()
	l.with(d.ID, func(r *record) {
		outcome := consumer.OutcomeOf(h.Err)
		switch outcome.Action {
		case consumer.ActionDone:
			l.end(r, ending{bySMS, d.Attempt})
		case consumer.ActionDiscard:
			l.end(r, ending{byDiscard, d.Attempt})
		default:
			r.failures = append(r.failures, failure{d.Attempt, now, l.waitAfter(outcome, d.Attempt)})
		}
	})
}

// waitAfter returns the wait that a failed attempt is due.
func (l *ledger) waitAfter(o consumer.Outcome, attempt int) time.Duration {
	if o.Action != consumer.ActionRetryAfter {
		wait, _ := l.waits.After(attempt) // without one there is nothing to wait for
		return wait
	}
	if waitNumber, ok := l.waits.AtLeast(o.After); ok {
		return l.waits[waitNumber-1]
	}
	return o.After
}

func (l *ledger) settled(_ context.Context, s consumer.Settled) {
	d := s.Delivery
	l.with(d.ID, func(r *record) {
		if s.Disposition == consumer.DispositionDeadLetter {
			l.causes[s.Cause]++
			if l.keep {
				l.end(r, ending{byLetter(string(s.Cause)), d.Attempt})
			}
		}
		if r.place != inWork {
			return // its letter was faster than this hook
		}
		switch s.Disposition {
		case consumer.DispositionDone:
			r.place = done
		case consumer.DispositionDeadLetter:
			r.place = deadLettered
		case consumer.DispositionWait:
			if s.WaitNumber > 0 { // 0: in topology.Delays
				r.place, r.waitNumber = waiting, s.WaitNumber
			}
		case consumer.DispositionRequeued:
			r.place = queued
		}
	})
}

func (l *ledger) letterSent(sent letter) {
	l.with(sent.messageID, func(r *record) {
		r.place = letterSent
		l.letters = append(l.letters, sent)
		l.end(r, ending{byLetter(sent.reason), sent.attempts})
	})
}

// summary is a copy of the ledger that nothing changes any more.
type summary struct {
	records  []record // in the order of the CSV file
	lateness []time.Duration
	letters  []letter
	causes   map[rehop.Cause]int
	foreign  int
}

func (l *ledger) summary() summary {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := summary{
		lateness: slices.Clone(l.lateness),
		letters:  slices.Clone(l.letters),
		causes:   maps.Clone(l.causes),
		foreign:  l.foreign,
	}
	for _, id := range l.ids {
		r := *l.records[id]
		r.failures = slices.Clone(r.failures)
		r.endings = slices.Clone(r.endings)
		s.records = append(s.records, r)
	}
	return s
}

// ended returns how many orders have ended.
func (s summary) ended() int {
	n := 0
	for _, r := range s.records {
		if len(r.endings) > 0 {
			n++
		}
	}
	return n
}
