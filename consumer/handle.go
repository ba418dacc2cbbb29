package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/cenkalti/backoff/v4"
	amqp "github.com/rabbitmq/amqp091-go"
)

// PanicError is the error of a handler that panicked.
type PanicError struct {
	Value any    // passed to panic
	Stack []byte // of the handler
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value passed to panic if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

var errGoexit = errors.New("the handler ended its goroutine (runtime.Goexit) without returning")

// holdLimit bounds how long a delivery is held, well below the 30 minutes
// after which a broker takes it away by default.
const holdLimit = 15 * time.Minute

// handle brings one delivery to its end.
func (s *session) handle(raw amqp.Delivery, u *unsettled) {
	d, malformed := newDelivery(s.route, raw)
	if malformed != nil {
		s.cfg.Logger.Warn("malformed headers count as absent", "queue", d.Queue, "message", d.ID, "error", malformed)
	}
	s.cfg.Trace.received(d)
	if v, early := tooEarly(s.route, raw, d, time.Now()); early {
		s.settle(raw, u, d, v, nil)
		return
	}
	returned := false
	defer func() {
		if !returned { // runtime.Goexit: only deferred calls still run
			s.settle(raw, u, d, decide(s.route, raw, d, OutcomeOf(errGoexit), s.work.Err() != nil, time.Now()), errGoexit)
		}
	}()
	pause := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(200*time.Millisecond),
		backoff.WithMaxInterval(30*time.Second),
		backoff.WithMaxElapsedTime(holdLimit))
	for {
		err := s.attempt(d)
		v := decide(s.route, raw, d, OutcomeOf(err), s.work.Err() != nil, time.Now())
		if v.move == moveHold {
			s.cfg.Logger.Warn("message held", "queue", d.Queue, "message", d.ID, "error", err)
			if s.pause(pause.NextBackOff()) {
				continue
			}
			v = verdict{move: moveRequeue}
		}
		returned = true
		s.settle(raw, u, d, v, err)
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

// attempt runs the handler once.
func (s *session) attempt(d *Delivery) (err error) {
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
	err = errGoexit // unless the handler returns, or panics
	start := time.Now()
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
		s.cfg.Trace.handled(d, err, time.Since(start))
	}()
	return s.handler(ctx, d)
}
