package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/transport"
	"github.com/rehop/rehop/xdeath"
)

// PanicError is the error of a handler that panicked.
type PanicError struct {
	Value any    // passed to panic
	Stack []byte // of the handler
}

// Error prints the value. A value with methods that panic is printed too.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Class returns connection.Bug.
func (e *PanicError) Class() connection.Class { return connection.Bug }

// unreadableError says why package connection has removed the headers of a message.
type unreadableError struct{ why string }

func (e *unreadableError) Error() string {
	return "the client library cannot read the headers of this message, which are lost: " + e.why
}

// Class returns connection.Bug: the message will not become readable.
func (e *unreadableError) Class() connection.Class { return connection.Bug }

var errGoexit = connection.WithClass(errors.New("the handler ended its goroutine (runtime.Goexit) without returning"), connection.Bug)

// holdLimit bounds how long a delivery is held, well below the 30 minutes
// after which a broker takes it away by default.
const holdLimit = 15 * time.Minute

// result is how one run of the handler ended.
type result struct {
	err     error
	outcome Outcome
	text    string // of err
}

// stack returns the stack of a handler that panicked.
func (r result) stack() string {
	if panicked, ok := r.err.(*PanicError); ok { //nolint:errorlint // only runHandler makes one, unwrapped
		return string(panicked.Stack)
	}
	return ""
}

// handle runs the handler for one message until there is a verdict, and has it
// carried out. It reports whether the message's slot is free again; if not, the
// republisher releases it.
func (r *run) handle(m *message) (free bool) {
	d, malformed := newDelivery(m.from.route, m.raw)
	m.delivery = d
	m.begun.Store(true)
	if malformed != nil {
		r.report.log.Warn("malformed headers count as absent", "queue", d.Queue, "message", d.ID, "error", malformed)
	}
	r.report.received(d)
	if m.ending = r.unhandled(m); m.ending != nil {
		m.clear()
		if wait := m.verdict.holdFor; wait > 0 && !r.keep(m, wait) {
			m.verdict = verdict{move: moveRequeue}
		}
		return r.settle(m)
	}
	returned := false
	defer func() {
		if !returned { // runtime.Goexit: only deferred calls still run
			m.clear()
			m.ending = r.ended(m, result{err: errGoexit, text: errGoexit.Error(), outcome: Outcome{Action: ActionRetry}})
			if m.verdict.move == moveHold { // nothing can be handled here again
				r.pause(m, time.Second)
				m.verdict = verdict{move: moveRequeue}
			}
			if r.settle(m) {
				r.workers.release()
			}
		}
	}()
	var pauses *backoff.ExponentialBackOff
	for {
		m.ending = r.ended(m, r.runHandler(m))
		m.clear()
		if m.verdict.move == moveHold {
			if pauses == nil { // most messages are never held
				pauses = backoff.NewExponentialBackOff(
					backoff.WithInitialInterval(200*time.Millisecond),
					backoff.WithMaxInterval(30*time.Second),
					backoff.WithMaxElapsedTime(0))
			}
			wait := min(max(pauses.NextBackOff(), m.result.outcome.After), holdLimit)
			r.report.again.Warn("message held", errors.New(m.result.text), "queue", d.Queue, "message", d.ID, "attempt", d.Attempt, "again_in", wait)
			if r.keep(m, wait) {
				continue
			}
			m.verdict = verdict{move: moveRequeue}
		}
		returned = true
		return r.settle(m)
	}
}

// unhandled returns the ending of a message that the handler does not get, and nil
// for all others.
func (r *run) unhandled(m *message) *ending {
	if why, ok := m.raw.Headers[transport.HeaderUnreadable].(string); ok && !m.from.route.DeadLetter.IsZero() {
		err := &unreadableError{why}
		return &ending{
			result:  result{err: err, text: err.Error(), outcome: Outcome{Action: ActionDeadLetter}},
			verdict: verdict{move: moveDeadLetter, cause: xdeath.CauseUnreadable},
		}
	}
	if h := m.delivery.History; !h.NotBefore.IsZero() || !h.Due.IsZero() || len(h.Deaths) > 0 {
		if v, early := tooEarly(m.from.route, m.raw, m.delivery, time.Now()); early {
			return &ending{verdict: v}
		}
	}
	if m.raw.Redelivered && r.timeouts.tookAway(m.raw) {
		// Run again it would be taken away again. It is run all the same where there is
		// no other place for it.
		res := result{err: ErrConsumerTimeout, text: ErrConsumerTimeout.Error(), outcome: Outcome{Action: ActionRetry}}
		if v := decide(m.from.route, m.from.frame, m.raw, m.delivery, res.outcome, false, time.Now()); v.move != moveHold {
			return &ending{res, v}
		}
	}
	return nil
}

// ended returns the ending of a message after its handler has returned.
func (r *run) ended(m *message, res result) *ending {
	if res.err == nil {
		return succeeded
	}
	interrupted := m.from.work.Err() != nil
	return &ending{res, decide(m.from.route, m.from.frame, m.raw, m.delivery, res.outcome, interrupted, time.Now())}
}

// settle carries out the verdict on a message, and reports whether its slot is
// free. If not, the republisher releases it.
func (r *run) settle(m *message) (free bool) {
	switch m.verdict.move {
	case moveAck:
		m.end = Settlement{Place: PlaceDone}
		m.from.acks.ack(m)
	case moveNack:
		m.end = Settlement{Place: PlaceWait, Rung: m.verdict.rung}
		m.from.acks.nack(m)
	case moveRequeue:
		m.end = Settlement{Place: PlaceQueue}
		m.from.acks.requeue(m)
	case moveWait, moveDeadLetter:
		r.republisher.move(m)
		return false
	default:
		panic(fmt.Sprintf("consumer: verdict without a move for message %q", m.raw.MessageId))
	}
	return true
}

// settled is called by the acker, once for each message: the broker has been
// told, or cannot be (err) and has the message back.
func (r *run) settled(m *message, err error) {
	defer r.unsettled.Done()
	r.workers.settles(&m.from.unsettled)
	m.from.settled(m)
	if m.delivery == nil {
		return // no worker had it
	}
	if err != nil {
		m.end = Settlement{Place: PlaceQueue}
	}
	r.report.settled(m)
}

// keep is pause, for no longer than a message may be held.
func (r *run) keep(m *message, d time.Duration) bool {
	return time.Since(m.received)+d < r.timeouts.holdLimit() && r.pause(m, d)
}

// pause waits, and reports whether the message may be kept afterwards.
func (r *run) pause(m *message, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-m.from.work.Done():
		return false
	case <-r.stop.Done():
		return false
	}
}

// runHandler runs the handler once and finds out what its error means. The handler
// and the error's methods are the user's code and may panic; those of a typed nil
// often do.
func (r *run) runHandler(m *message) (res result) {
	d := m.delivery
	ctx := m.from.work
	if limit := r.cfg.HandlerTimeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, ErrHandlerTimeout)
		defer cancel()
		late := time.AfterFunc(limit+stuckGrace, func() {
			r.report.log.Error("handler is past its timeout and has not returned: its message stays unsettled",
				"queue", d.Queue, "message", d.ID, "timeout", limit)
		})
		defer late.Stop()
	}
	if limit := r.timeouts.handlerLimit(); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, m.received.Add(limit), ErrConsumerTimeout)
		defer cancel()
	}
	m.running.Store(true)
	defer m.running.Store(false)
	start := time.Now()
	res.err = errGoexit // unless the handler returns, or panics
	defer func() {
		if v := recover(); v != nil {
			panicked := &PanicError{Value: v, Stack: debug.Stack()}
			res = result{err: panicked, outcome: Outcome{Action: ActionRetry}, text: panicked.Error()}
		}
		r.handled.Add(1)
		r.report.handled(d, res.err, time.Since(start))
	}()
	res.err = r.handler(ctx, d)
	res.outcome = OutcomeOf(res.err)
	if res.err != nil {
		res.text = res.err.Error()
	}
	return res
}
