package consumer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/consumer/internal/fault"
	"github.com/rehop/rehop/consumer/internal/hand"
)

var (
	errNotRunning = errors.New("consumer: Run is not running")
	errStarting   = errors.New("consumer: Run has not begun to consume")
	errStopping   = errors.New("consumer: Run is stopping")
	errPaused     = errors.New("paused by Pause")
	errStarved    = errors.New("its messages have waited for long, and all handlers are at work on others")
)

// Health returns nil while the consumer consumes and settles, and otherwise a
// *rehop.HealthError that says why not and since when. It returns at once,
// sends nothing, and is safe for concurrent use. For a readiness probe see
// rehop.Ready.
//
// A consumer is degraded
//   - in the first 15 s after it has lost its session or the broker has cancelled
//     the consuming,
//   - while it holds messages because their copies are not confirmed,
//   - while it consumes nothing because no copies are confirmed, and its messages have
//     used up half of their delivery limit,
//   - while handlers have not returned 5 s after Config.HandlerTimeout has ended their
//     ctx,
//   - while it is paused, and in an outage, see Config.Outage,
//   - while all handlers are at work on other lanes, and messages of a lane in order have
//     gone back to their queue because they had waited for too long,
//   - while handlers, or messages that are held, have kept messages of other keys waiting
//     for a minute or two, see Config.KeyLimit,
//   - while the messages of another of its shards or lanes are handled, of which consumers may have
//     died, see Config.KeyLimit: at once where the lane is in order and has met such messages too,
//     else after a minute,
//   - when messages that are held, or retried in place, have had all slots for a minute,
//   - under topology.EngineCarry, while it cannot bring back messages that are due in a
//     wait,
//   - while a part of its work queue is missing and cannot be put back: Run looks every
//     two minutes,
//   - while a policy on the broker breaks a promise of its queues, or a queue of others has no
//     dead-letter exchange and the broker deletes what comes back too often, if
//     connection.Config.ManagementURL is set, or while another program consumes from
//     a wait under topology.EngineCarry. Run checks both at the start of each
//     session and every two minutes.
//
// Messages that are held, or wait for their keys, go back to the queue after some time and come
// again. Health says the same meanwhile, since the same time: for up to a minute.
//
// It is unhealthy
//   - while Run is not running, has not begun to consume, or is stopping,
//   - when it has had no session for 15 s,
//   - when its queue has given no sign for 15 s, as on a node that is cut off from
//     its cluster and keeps its clients,
//   - when it has held as many messages as Config.Concurrency allows for 15 s,
//     because their copies are not confirmed,
//   - while no handler is left because all of them ignore Config.HandlerTimeout,
//   - when the broker has ended its connections with internal errors for 15 s (degraded
//     before), as it does if it cannot hand over the message at the head of the queue. The
//     error says what to do.
//
// The broker ends the socket of all consumers of the Conn for such a message (541, measured
// on 4.0.5 and 4.3.6 with messages of AMQP 1.0), and does not name the queue. When internal
// errors of the broker have ended that socket twice within a minute, each of its queues has
// a socket of its own. A queue whose session lives there for 30 s returns to the shared
// socket; its handlers have Config.DrainTimeout to finish, and Health is degraded only if that
// takes 15 s. The queue of the message stays alone, with pauses that grow to a minute after its
// delivery limit, if it has one, is used up. Its Health is nil again 30 s after it could be
// consumed. Run opens and closes these sockets. Closing the Conn closes them too.
//
// It is healthy without a delivery while its queue is empty, while another consumer of
// a queue with a single active consumer is the active one (AMQP does not tell), while
// another process handles its shard, see topology.Shards, and
// while its handlers have as many messages as they may have, or any message if it keeps an
// order (see below). Only Config.HandlerTimeout detects handlers that do not return.
//
// A consumer of topology.Lanes or topology.Shards is degraded while one of its lanes or
// shards is degraded or unhealthy, and unhealthy when all are. The error names the queues of
// those.
//
// A sign is a delivery or an answer of the queue. When neither has come for 10 s,
// Run asks the queue to accept a second consumer of the lowest priority, on a
// channel of its own, and cancels it at once. That needs permission to read, as
// consuming does. A refusal is not a sign; the question is repeated after 10 s, and
// no handler is disturbed. When the question has had no answer for 15 s, Run closes
// the socket, with every session on it, and continues on another node if the Conn
// has its URL. That happens within 30 s of the last delivery. A classic queue on a
// node that is cut off answers, and its consumer stays there. A consumer with
// a Config.KeyLimit of 1, or of a queue with a single active consumer, asks only while it has no
// message, and hands none out until it has the answer.
func (c *Consumer) Health() error {
	now := time.Now()
	checks := make([]*rehop.HealthError, len(c.parts))
	for i, p := range c.parts {
		checks[i] = p.health.check(now)
	}
	if slices.Contains(checks, nil) { // then the error names the queues of the others
		for i, h := range checks {
			if queue := fmt.Sprintf("queue %q", c.parts[i].health.queue); h != nil && !strings.Contains(h.Cause.Error(), queue) {
				checks[i] = &rehop.HealthError{Degraded: h.Degraded, Since: h.Since, Cause: fmt.Errorf("%s: %w", queue, h.Cause)}
			}
		}
	}
	if h := together(checks); h != nil {
		return h
	}
	return nil // not a nil *HealthError
}

// health tells whether a queue is consumed, and why not. Copies, carriers and late
// handlers have their own checks, which it asks.
type health struct {
	queue string

	mu       sync.Mutex
	idle     idleness
	why      error       // unless idle is none: why nothing is consumed
	since    time.Time   // and since when
	run      *run        // that is running
	policies fault.Fault // that break promises
	missing  fault.Fault // parts of the topology
	stuck    fault.Fault // the message at the head of the queue, see place.go
	sign     time.Time   // when the queue last gave a sign that it delivers
	refusal  error       // the latest answer to the question for a sign, if it was a refusal
}

// idleness says how bad it is that nothing is consumed.
type idleness uint8

const (
	none    idleness = iota // the queue is consumed
	lasts                   // Run is not running, has not begun to consume, or is stopping
	passing                 // it is likely to pass by itself
	chosen                  // it is better than to consume
	other                   // another process consumes
)

// consumesNothing says that nothing is consumed, and why, and returns since when. What lasts goes on
// through interruptions.
func (h *health) consumesNothing(idle idleness, why error, now time.Time) (since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if idle == lasts || h.idle == none || h.idle >= chosen {
		h.since = now
	}
	if idle != passing || h.idle != lasts {
		h.idle = idle
	}
	if h.why = why; idle != lasts {
		h.why = fmt.Errorf("consumer: queue %q is not consumed: %w", h.queue, why)
	}
	return h.since
}

// leavesSoon is for a consumer that is about to consume again, and not for long: a move to
// another socket is no fault unless handlers hold it up, until it is over.
func (h *health) leavesSoon(why error) (over func()) {
	began := time.Now()
	if !moves(why) {
		h.consumesNothing(chosen, why, began)
		return func() {}
	}
	h.Alive(began)
	late := time.AfterFunc(durations.Lost, func() { h.consumesNothing(chosen, why, began) })
	return func() { late.Stop() }
}

// disconnected returns the fault of the Conn if the consumer has left its queue by choice
// and the Conn is unhealthy too. Otherwise it returns nil. It needs mu held.
func (h *health) disconnected() *rehop.HealthError {
	var lost *rehop.HealthError
	if h.idle < chosen || !errors.As(h.run.conn.Health(), &lost) || lost.Degraded {
		return nil
	}
	return &rehop.HealthError{Since: lost.Since, Cause: fmt.Errorf("consumer: queue %q is not consumed: %w", h.queue, lost.Cause)}
}

// starts says that Run has been called.
func (h *health) starts(r *run) {
	h.consumesNothing(lasts, errStarting, time.Now())
	h.mu.Lock()
	defer h.mu.Unlock()
	h.run, h.policies, h.missing, h.stuck = r, fault.Fault{}, fault.Fault{}, fault.Fault{}
}

// consuming says that a session has begun to consume.
func (h *health) consuming() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.idle = none
	h.sign, h.refusal = time.Now(), nil
}

// Alive is called by package intake.
func (h *health) Alive(at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at.After(h.sign) {
		h.sign, h.refusal = at, nil
	}
}

// Refused is called by package intake.
func (h *health) Refused(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refusal = err
}

// check returns nil while messages are consumed and settled, and otherwise why
// not.
func (h *health) check(now time.Time) *rehop.HealthError {
	h.mu.Lock()
	defer h.mu.Unlock()
	if lost := h.disconnected(); lost != nil {
		return lost
	}
	switch {
	case h.idle == other: // which tells what it meets there
		return nil
	case h.stuck.Err != nil && h.idle != lasts: // consumed for a moment, or lost again
		return &rehop.HealthError{Degraded: now.Sub(h.stuck.Since) < durations.Lost, Since: h.stuck.Since, Cause: h.stuck.Err}
	case h.idle != none:
		return &rehop.HealthError{Degraded: h.idle == chosen || h.idle == passing && now.Sub(h.since) < durations.Lost, Since: h.since, Cause: h.why}
	}
	silent := now.Sub(h.sign)
	switch {
	case silent <= durations.SilentAfter:
		r := h.run
		lane := r.lane.State(now)
		return worst(r.copies.Unconfirmed.Check(h.queue, lane.Copying, lane.Copies, now), r.lateHealth(now), r.carriers.Check(), r.gateHealth(lane, now),
			h.missing.Degrades("consumer: queue %q: a part of its topology is missing: %w", h.queue),
			h.policies.Degrades("consumer: queue %q: policies on the broker break promises: %w", h.queue))
	case h.refusal != nil:
		return &rehop.HealthError{Since: h.sign, Cause: fmt.Errorf("consumer: queue %q has given no sign for %v: %w", h.queue, silent.Round(time.Second), h.refusal)}
	}
	return &rehop.HealthError{Since: h.sign, Cause: fmt.Errorf("consumer: queue %q has given no sign for %v: its node may be cut off from its cluster, or the queue be without a majority",
		h.queue, silent.Round(time.Second))}
}

// worst returns the first fault that leaves nothing to work, else the first one, and nil
// if there is none.
func worst(faults ...*rehop.HealthError) *rehop.HealthError {
	for _, f := range faults {
		if f != nil && !f.Degraded {
			return f
		}
	}
	return cmp.Or(faults...)
}

// note notes what the latest look at one of the faults has found; nil: it is none.
func (h *health) note(f *fault.Fault, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f.Becomes(err, time.Now())
}

// together returns what the health of several lanes means for the whole: degraded
// while one of them is consumed.
func together(lanes []*rehop.HealthError) *rehop.HealthError {
	var faults []*rehop.HealthError
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
	all := &rehop.HealthError{Degraded: works, Since: faults[0].Since}
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
func (r *run) gateHealth(lane hand.State, now time.Time) *rehop.HealthError {
	switch {
	case !lane.Paused.IsZero():
		return &rehop.HealthError{Degraded: true, Since: lane.Paused, Cause: fmt.Errorf("consumer: queue %q: %w", r.queue, errPaused)}
	case !lane.NoneBegins.IsZero() && now.Sub(lane.NoneBegins) >= durations.StandsStill:
		return &rehop.HealthError{Degraded: true, Since: lane.NoneBegins, Cause: fmt.Errorf("consumer: queue %q: consuming is to begin anew, and handlers have not returned%s: until then no other message is handled: %w", r.queue, inBrackets(r.running()), lane.Why)}
	case !lane.Kept.IsZero() && now.Sub(lane.Kept) >= durations.StandsStill:
		return &rehop.HealthError{Degraded: true, Since: lane.Kept, Cause: fmt.Errorf("consumer: queue %q: %w", r.queue, r.suspectsOf(lane.By))}
	case !lane.Full.IsZero() && now.Sub(lane.Full) >= durations.StandsStill && (lane.Outage.IsZero() || lane.Untried):
		return &rehop.HealthError{Degraded: true, Since: lane.Full, Cause: fmt.Errorf("consumer: queue %q: every slot has a message that is held or retried in place: until one of them is done no other message is handled", r.queue)}
	case !lane.Blocked.IsZero() && now.Sub(lane.Blocked) >= durations.StandsStill:
		return &rehop.HealthError{Degraded: true, Since: lane.Blocked, Cause: fmt.Errorf("consumer: queue %q: %s: until one of them is handled no message of another key is", r.queue, blocked(lane))}
	case !lane.Outage.IsZero() && !lane.Untried:
		return &rehop.HealthError{Degraded: true, Since: lane.Outage, Cause: fmt.Errorf("consumer: queue %q: outage, one message at a time is tried: %s", r.queue, r.holdText())}
	}
	return nil
}
