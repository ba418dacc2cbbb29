package consumer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/intake"
	"github.com/rehop/rehop/internal/route"
)

var (
	errNotRunning = errors.New("consumer: Run is not running")
	errStarting   = errors.New("consumer: Run has not begun to consume")
	errStopping   = errors.New("consumer: Run is stopping")
)

// lostLimit is how long consuming may be interrupted before that counts as more
// than a reconnect.
const lostLimit = 15 * time.Second

// health tells whether a queue is consumed, and why not. Copies, carriers and overdue
// handlers have their own checks, which it asks.
type health struct {
	queue string
	signs intake.Signs

	mu       sync.Mutex
	fault    error     // why nothing is consumed
	passing  bool      // it is likely to pass by itself
	chosen   bool      // it is better than to consume
	since    time.Time // of the fault
	run      *run      // that is running
	policies lasting   // that break promises
	missing  lasting   // parts of the topology
}

// interrupted says that nothing is consumed any more, and returns since when.
func (h *health) interrupted(err error, now time.Time) (since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.passing || h.chosen {
		h.since, h.passing = now, true
	}
	h.fault, h.chosen = fmt.Errorf("consumer: queue %q is not consumed: %w", h.queue, err), false
	return h.since
}

// leaves says that the consumer has chosen to consume nothing for a while, and why.
func (h *health) leaves(why error, now time.Time) {
	h.interrupted(why, now)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.chosen = true
}

// disconnected returns why nothing is consumed if that is not the choice of a consumer that
// has left its queue, because the connection is lost; nil if it is not. It needs mu held.
func (h *health) disconnected() *connection.HealthError {
	var lost *connection.HealthError
	if !h.chosen || !errors.As(h.run.conn.Health(), &lost) || lost.Degraded {
		return nil
	}
	return &connection.HealthError{Since: lost.Since, Cause: fmt.Errorf("consumer: queue %q is not consumed: %w", h.queue, lost.Cause)}
}

// fail says that nothing is consumed, and why.
func (h *health) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault, h.since, h.passing, h.chosen = err, time.Now(), false, false
}

// starts says that Run has been called.
func (h *health) starts(r *run) {
	h.fail(errStarting)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.run, h.policies, h.missing = r, lasting{}, lasting{}
}

// consuming says that a session has begun to consume.
func (h *health) consuming() {
	h.signs.Begin(time.Now())
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault, h.passing, h.chosen = nil, false, false
}

// check returns nil while messages are consumed and settled, and otherwise why
// not.
func (h *health) check(now time.Time) *connection.HealthError {
	h.mu.Lock()
	defer h.mu.Unlock()
	if lost := h.disconnected(); lost != nil {
		return lost
	}
	if h.fault != nil {
		return &connection.HealthError{Degraded: h.chosen || h.passing && now.Sub(h.since) < lostLimit, Since: h.since, Cause: h.fault}
	}
	sign, refusal := h.signs.Last()
	silent := now.Sub(sign)
	switch {
	case silent <= intake.SilentAfter:
		return cmp.Or(h.run.copies.Unconfirmed.Check(h.queue, now), h.run.overdue.check(h.queue), h.run.carriers.Check(), h.run.gateHealth(),
			h.missing.check("consumer: queue %q: a part of its topology is missing: %w", h.queue),
			h.policies.check("consumer: queue %q: policies on the broker break promises: %w", h.queue))
	case refusal != nil:
		return &connection.HealthError{Since: sign, Cause: fmt.Errorf("consumer: queue %q has given no sign for %v: %w", h.queue, silent.Round(time.Second), refusal)}
	}
	return &connection.HealthError{Since: sign, Cause: fmt.Errorf("consumer: queue %q has given no sign for %v: its node may be cut off from its cluster, or the queue be without a majority",
		h.queue, silent.Round(time.Second))}
}

// lasting is a fault that is found by asking the broker now and then.
type lasting struct {
	err   error // nil: none is known
	since time.Time
}

// becomes notes what the last look has found.
func (l *lasting) becomes(err error, now time.Time) {
	if l.err == nil {
		l.since = now
	}
	l.err = err
}

// check returns the fault, nil for none.
func (l lasting) check(format, queue string) *connection.HealthError {
	if l.err == nil {
		return nil
	}
	return &connection.HealthError{Degraded: true, Since: l.since, Cause: fmt.Errorf(format, queue, l.err)}
}

// notePolicies notes which promises policies on the broker break.
func (h *health) notePolicies(faults []route.PolicyFault, now time.Time) {
	var err error
	if len(faults) > 0 {
		texts := make([]string, len(faults))
		for i, f := range faults {
			texts[i] = f.String()
		}
		err = errors.New(strings.Join(texts, "; "))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.policies.becomes(err, now)
}

// noteMissing notes which parts of the topology are missing and could not be put back; nil:
// none.
func (h *health) noteMissing(err error, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.missing.becomes(err, now)
}

// together returns what the health of several lanes means for the whole: degraded
// while one of them is consumed.
func together(lanes []*connection.HealthError) *connection.HealthError {
	var faults []*connection.HealthError
	works := false
	for _, h := range lanes {
		if h != nil {
			faults = append(faults, h)
		}
		works = works || h == nil || h.Degraded
	}
	switch {
	case len(faults) == 0:
		return nil
	case len(lanes) == 1:
		return faults[0]
	}
	all := &connection.HealthError{Degraded: works, Since: faults[0].Since}
	causes := make([]error, len(faults))
	for i, h := range faults {
		if h.Since.Before(all.Since) {
			all.Since = h.Since
		}
		causes[i] = h.Cause
	}
	all.Cause = laneErrors(causes)
	if !slices.ContainsFunc(causes, func(err error) bool { return err.Error() != causes[0].Error() }) {
		all.Cause = causes[0] // the same of all
	}
	return all
}

// laneErrors are the causes of several lanes, in one line.
type laneErrors []error

func (e laneErrors) Error() string {
	texts := make([]string, len(e))
	for i, err := range e {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (e laneErrors) Unwrap() []error { return e }

// gateHealth returns why messages are not handled although they could be, nil if they
// are.
func (r *run) gateHealth() *connection.HealthError {
	if r.lane == nil {
		return nil
	}
	paused, outage, untried := r.lane.ClosedSince(time.Now())
	switch {
	case !paused.IsZero():
		return &connection.HealthError{Degraded: true, Since: paused, Cause: fmt.Errorf("consumer: queue %q: paused by Pause", r.queue)}
	case !outage.IsZero() && !untried:
		text := ""
		if t := r.unavailable.Load(); t != nil {
			text = *t
		}
		return &connection.HealthError{Degraded: true, Since: outage, Cause: fmt.Errorf("consumer: queue %q: outage, one message at a time is tried: %s", r.queue, text)}
	}
	return nil
}
