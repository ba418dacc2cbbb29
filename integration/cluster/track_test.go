package cluster

import (
	"fmt"
	"sync"
	"time"
)

// flow is what happens in a service, and when. It is safe for concurrent use.
type flow struct {
	mu                          sync.Mutex
	handlers, retries, confirms track
}

func (f *flow) handles(instance, attempt int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := event{time.Now(), instance}
	f.handlers = append(f.handlers, e)
	if attempt > 1 {
		f.retries = append(f.retries, e)
	}
}

func (f *flow) confirmed(instance int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.confirms = append(f.confirms, event{time.Now(), instance})
}

// retried returns how many runs of attempt 2 or later have begun.
func (f *flow) retried() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.retries)
}

// progress tells what a fault that took from began to broken did to the flow of
// messages until end.
func (f *flow) progress(began, broken, end time.Time) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprintf("handlers: %s; retries: %s; confirms: %s", f.handlers.after(began, broken, end),
		f.retries.after(began, broken, end), f.confirms.after(began, broken, end))
}

// track is a series of events of one kind, in the order of time.
type track []event

type event struct {
	at       time.Time
	instance int // of the service
}

// after tells when the track goes on after a fault that took from began to
// broken, and its longest pause until end: what is on its way in a client or on
// other nodes can hide a fault at first. The instance that was hit hardest shows
// what those hide that go on.
func (t track) after(began, broken, end time.Time) string {
	next := time.Duration(-1)
	hardest := time.Duration(0)
	for _, e := range t {
		if e.at.After(broken) {
			next = e.at.Sub(broken)
			break
		}
	}
	for i := range instances {
		hardest = max(hardest, t.of(i).pause(began, end))
	}
	ms := time.Millisecond
	return fmt.Sprintf("next after %v, longest pause %v, of one instance %v",
		next.Round(ms), t.pause(began, end).Round(ms), hardest.Round(ms))
}

func (t track) of(instance int) (its track) {
	for _, e := range t {
		if e.instance == instance {
			its = append(its, e)
		}
	}
	return its
}

// pause returns the longest time between two events.
func (t track) pause(from, until time.Time) (longest time.Duration) {
	for _, e := range t {
		if e.at.After(from) && e.at.Before(until) {
			longest = max(longest, e.at.Sub(from))
			from = e.at
		}
	}
	return max(longest, until.Sub(from))
}
