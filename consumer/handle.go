package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// PanicError is the error of a handler that panicked.
type PanicError struct {
	Value any    // passed to panic
	Stack []byte // of the handler
}

// Error prints the value; fmt bears a value whose own methods panic.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

var errGoexit = errors.New("the handler ended its goroutine (runtime.Goexit) without returning")

// holdLimit bounds how long a delivery is held, well below the 30 minutes
// after which a broker takes it away by default.
const holdLimit = 15 * time.Minute

// handle runs the handler for one delivery until there is a verdict.
func (s *session) handle(j job) {
	d, malformed := newDelivery(s.route, j.raw)
	if malformed != nil {
		s.cfg.Logger.Warn("malformed headers count as absent", "queue", d.Queue, "message", d.ID, "error", malformed)
	}
	s.cfg.Trace.received(d)
	if !d.History.NotBefore.IsZero() {
		if v, early := tooEarly(s.route, j.raw, d, time.Now()); early {
			s.settle(j, d, v, ending{})
			return
		}
	}
	returned := false
	defer func() {
		if !returned { // runtime.Goexit: only deferred calls still run
			e := ending{err: errGoexit, text: errGoexit.Error(), outcome: Outcome{Action: ActionRetry}}
			v := decide(s.route, j.raw, d, e.outcome, s.work.Err() != nil, time.Now())
			if v.move == moveHold { // nothing can be handled here again
				s.pause(time.Second)
				v = verdict{move: moveRequeue}
			}
			s.settle(j, d, v, e)
		}
	}()
	var pauses *backoff.ExponentialBackOff
	for {
		e := s.attempt(d)
		v := decide(s.route, j.raw, d, e.outcome, s.work.Err() != nil, time.Now())
		if v.move == moveHold {
			if pauses == nil { // most messages are never held
				pauses = backoff.NewExponentialBackOff(
					backoff.WithInitialInterval(200*time.Millisecond),
					backoff.WithMaxInterval(30*time.Second),
					backoff.WithMaxElapsedTime(holdLimit))
			}
			wait := pauses.NextBackOff()
			if wait != backoff.Stop {
				wait = min(max(wait, e.outcome.After), holdLimit)
			}
			s.cfg.Logger.Warn("message held", "queue", d.Queue, "message", d.ID, "attempt", d.Attempt, "error", e.text, "again_in", wait)
			if s.pause(wait) {
				continue
			}
			v = verdict{move: moveRequeue}
		}
		returned = true
		s.settle(j, d, v, e)
		return
	}
}

// pause waits, and reports whether the delivery may be kept afterwards.
func (s *session) pause(d time.Duration) bool {
	if d == backoff.Stop {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.work.Done():
		return false
	case <-s.stop.Done():
		return false
	}
}

// ending is how one run of the handler ended.
type ending struct {
	err     error
	outcome Outcome
	text    string // of err
}

// attempt runs the handler once and finds out what its error means. Both are
// the user's code, and may panic: a typed nil is an error whose text does.
func (s *session) attempt(d *Delivery) (e ending) {
	ctx := s.work
	if limit := s.cfg.HandlerTimeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, ErrHandlerTimeout)
		defer cancel()
		late := time.AfterFunc(limit+stuckGrace, func() {
			s.cfg.Logger.Error("handler is past its timeout and has not returned: its message stays unsettled",
				"queue", d.Queue, "message", d.ID, "timeout", limit)
		})
		defer late.Stop()
	}
	start := time.Now()
	e.err = errGoexit // unless the handler returns, or panics
	defer func() {
		if v := recover(); v != nil {
			panicked := &PanicError{Value: v, Stack: debug.Stack()}
			e = ending{err: panicked, outcome: Outcome{Action: ActionRetry}, text: panicked.Error()}
		}
		s.cfg.Trace.handled(d, e.err, time.Since(start))
	}()
	e.err = s.handler(ctx, d)
	e.outcome = OutcomeOf(e.err)
	if e.err != nil {
		e.text = e.err.Error()
	}
	return e
}
