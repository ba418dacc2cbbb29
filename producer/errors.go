package producer

import (
	"context"
	"errors"
	"fmt"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/pause"
)

// Errors of Publish, to be found with errors.Is. An error that matches none of them
// says that the message was never sent: it was faulty, the Producer was closed, or
// there was no connection. If an error matches ErrUnconfirmed and another one, the
// message may be in its queue, by an earlier try, or in a sink of the Fallback that did
// not answer; the other error tells how the last try ended. rehop.ClassOf tells
// whether publishing again can help.
var (
	// ErrReturned: the exchange has no queue for the key, or does not exist.
	// The message is in no queue.
	ErrReturned = confirm.ErrReturned

	// ErrNacked: a queue refused the message, because it is full or not available.
	// Other queues of the same exchange may have taken it. Publish does not try
	// again: each try would duplicate the message in the other queues.
	ErrNacked = confirm.ErrNacked

	// ErrRefused: the broker does not allow this message: it is too large, or
	// a property of it is wrong. It is in no queue.
	ErrRefused = confirm.ErrRefused

	// ErrUnconfirmed: no answer came, the connection was lost or the time ran out.
	// The message may be in its queue, or in a sink of the Fallback: the text says
	// which. Publishing it again, with the same ID, may duplicate it.
	ErrUnconfirmed = confirm.ErrUnconfirmed

	// ErrBehind: the message was not sent, because earlier messages of its line wait
	// in a store.Store to be published first, see store.Config.KeepOrder.
	ErrBehind = rehop.WithClass(errors.New("earlier messages of the same line wait to be published first"), rehop.ClassTransient)
)

// sinkError says that a sink was given a message, and that its answer did not
// come.
type sinkError struct {
	sink string
	err  error
}

func (e *sinkError) Error() string {
	return fmt.Sprintf("fallback %q has not answered, the message may be there: %v", e.sink, e.err)
}

// Is reports whether target is ErrUnconfirmed.
func (e *sinkError) Is(target error) bool { return target == ErrUnconfirmed }

// Unwrap returns the sink's error.
func (e *sinkError) Unwrap() error { return e.err }

// Class returns rehop.ClassTransient.
func (e *sinkError) Class() rehop.Class { return rehop.ClassTransient }

// limitError is the error of a sink whose time a limit of ours has ended. It matches whatever the
// sink's error matches, but for the errors of a ctx: they would look like the end of the caller's. A sink may
// return either, whichever of them the limit has given its ctx.
type limitError struct{ err, limit error }

func (e *limitError) Error() string { return fmt.Sprintf("%v: %v", e.err, e.limit) }

// Is reports whether the sink's error matches target.
func (e *limitError) Is(target error) bool { return !isOfCtx(target) && errors.Is(e.err, target) }

func isOfCtx(err error) bool {
	return err == context.Canceled || err == context.DeadlineExceeded //nolint:errorlint // the errors themselves
}

// As finds target in the sink's error.
func (e *limitError) As(target any) bool { return errors.As(e.err, target) }

// Unwrap returns the limit.
func (e *limitError) Unwrap() error { return e.limit }

// errSinkLate is the cause of an end of the time that a sink has.
var errSinkLate = pause.Own(rehop.WithClass(errors.New("no answer within Config.Timeout"), rehop.ClassTransient))

// errShareOver is the cause of an end of the time that a sink may take from the sinks
// after it.
var errShareOver = pause.Own(rehop.WithClass(errors.New("no answer within its share of the time until the deadline of ctx"), rehop.ClassTransient))

var errNoContext = rehop.WithClass(errors.New("producer: ctx is nil"), rehop.ClassBug)

var errClosed = rehop.WithClass(errors.New("the Producer is closed"), rehop.ClassBug)

// CauseOf returns the cause, in the table of [Sink], of an error of Publish or of an
// error that a Sink is given.
func CauseOf(err error) rehop.Cause {
	var blocked *connection.BlockedError
	switch {
	case errors.Is(err, ErrUnconfirmed):
		return rehop.CauseUnconfirmed
	case errors.Is(err, ErrReturned):
		return rehop.CauseUnroutable
	case errors.Is(err, ErrRefused):
		return rehop.CauseRefused
	case errors.Is(err, ErrNacked):
		return rehop.CauseNacked
	case errors.As(err, &blocked):
		return rehop.CauseBlocked
	}
	return rehop.CauseUnreachable
}

// stopped reports whether nothing is to be sent with ctx any more.
func stopped(ctx context.Context) bool {
	select {
	case <-confirm.Stopped(ctx):
		return true
	default:
		return false
	}
}

// cutOff reports whether the answer to a message is missing and there is time for
// another try.
func cutOff(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !stopped(ctx) && errors.Is(err, ErrUnconfirmed) &&
		!errors.Is(err, confirm.ErrLate) && !errors.Is(err, confirm.ErrImpatient) &&
		!errors.Is(err, errShutdown) && !errors.Is(err, confirm.ErrClosed)
}
