package confirm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/pause"
)

// ErrReturned says that the message reached no queue. A *ReturnedError matches it,
// and a *RefusedError for an exchange that does not exist.
var ErrReturned error = &outcome{"returned: no queue took the message", rehop.ClassConfiguration}

// ErrRefused says that the broker does not allow the message. A *TooLargeError
// matches it, and every other *RefusedError.
var ErrRefused error = &outcome{"refused by the broker", rehop.ClassBug}

// ErrNacked says that the broker took the message and refused it: a full
// queue with overflow reject-publish, or a queue that was not available.
var ErrNacked error = &outcome{"nacked by the broker: a queue is full, or not available", rehop.ClassTransient}

// ErrUnconfirmed says that the broker's answer is missing: the message may be
// in its queue, or may not.
var ErrUnconfirmed error = &outcome{"unconfirmed: the message may or may not have reached its queue", rehop.ClassTransient}

// ErrLate is the cause of an end at a message's Timeout.
var ErrLate error = &ownLimit{outcome{"no answer in time", rehop.ClassTransient}}

// ErrImpatient is the cause of an end of a message's Patience.
var ErrImpatient error = &ownLimit{outcome{"given up, too long after the outage was noticed", rehop.ClassTransient}}

// ErrClosed is returned for messages that are given to a closed Publisher.
var ErrClosed error = &ownLimit{outcome{"closed by its owner", rehop.ClassBug}}

// errReserved is an ErrImpatient: the message's WriteUntil or AnswerUntil.
var errReserved error = &reservedError{}

type reservedError struct{}

func (*reservedError) Error() string        { return "given up, the rest of the time is for the Fallback" }
func (*reservedError) Class() rehop.Class   { return rehop.ClassTransient }
func (*reservedError) Is(target error) bool { return target == ErrImpatient }
func (*reservedError) OwnLimit()            {}

var (
	errHeldUp error = &outcome{"held up on its channel by a message that the broker does not answer", rehop.ClassTransient}
	errUnread error = &outcome{"the broker does not read what was sent", rehop.ClassTransient}
	errSilent error = &outcome{"the broker has not answered what was sent before", rehop.ClassTransient}
	errNoTime error = &outcome{"no time was left to send it", rehop.ClassTransient}
)

// outcome is an error with a class.
type outcome struct {
	text  string
	class rehop.Class
}

func (o *outcome) Error() string      { return o.text }
func (o *outcome) Class() rehop.Class { return o.class }

// ownLimit is an outcome that ends a ctx of ours. No caller can end a ctx with one: see pause.Ended.
type ownLimit struct{ outcome }

// OwnLimit says that a ctx with this cause has not been ended by the caller.
func (*ownLimit) OwnLimit() {}

// impatientError is an ErrImpatient that says how long the outage has lasted.
type impatientError struct{ lasted time.Duration }

func (e *impatientError) Error() string {
	return fmt.Sprintf("given up %v after the outage was noticed", e.lasted.Round(time.Millisecond))
}

// Class returns rehop.ClassTransient.
func (e *impatientError) Class() rehop.Class { return rehop.ClassTransient }

// Is reports whether target is ErrImpatient.
func (e *impatientError) Is(target error) bool { return target == ErrImpatient }

// OwnLimit is that of ownLimit.
func (e *impatientError) OwnLimit() {}

// UnsentError says that a message was not sent: what it waited for, and what
// ended the waiting.
type UnsentError struct{ Why, Cause error }

// Unsent returns the error of a message whose waiting has ended with ctx.
func Unsent(ctx context.Context, why error) error {
	cause := pause.Ended(ctx)
	if errors.Is(why, context.Cause(ctx)) && errors.Is(why, ctx.Err()) {
		cause = why // which says it already
	}
	return &UnsentError{Why: why, Cause: cause}
}

func (e *UnsentError) Error() string {
	if errors.Is(e.Why, e.Cause) {
		return fmt.Sprintf("not sent: %v", e.Why)
	}
	return fmt.Sprintf("not sent: %v: %v", e.Why, e.Cause)
}

// Unwrap returns both errors.
func (e *UnsentError) Unwrap() []error { return []error{e.Why, e.Cause} }

// Class returns the class of Why, or Transient if that has none.
func (e *UnsentError) Class() rehop.Class {
	if class := rehop.ClassOf(e.Why); class != rehop.ClassUnknown {
		return class
	}
	return rehop.ClassTransient
}

// SilentError says that the broker answers and a target does not.
type SilentError struct {
	Exchange, RoutingKey string
	Since                time.Time
}

func (e *SilentError) Error() string {
	silent := time.Since(e.Since).Round(time.Millisecond)
	if e.Exchange == "" {
		return fmt.Sprintf("queue %q has not answered for %v: it may be without a leader", e.RoutingKey, silent)
	}
	return fmt.Sprintf("a queue that exchange %q leads to with key %q has not answered for %v: it may be without a leader", e.Exchange, e.RoutingKey, silent)
}

// Class returns rehop.ClassTransient.
func (e *SilentError) Class() rehop.Class { return rehop.ClassTransient }

// ReturnedError says that the message reached its exchange and no queue.
type ReturnedError struct {
	Exchange, RoutingKey string
	Code                 uint16 // 312 for no route
	Text                 string
}

func (e *ReturnedError) Error() string {
	if e.Exchange == "" {
		return fmt.Sprintf("returned: queue %q does not exist: declare it first", e.RoutingKey)
	}
	return fmt.Sprintf("returned: exchange %q has no queue for key %q: bind one (%d %s)", e.Exchange, e.RoutingKey, e.Code, e.Text)
}

// Class returns rehop.ClassConfiguration: a queue or a binding is missing.
func (e *ReturnedError) Class() rehop.Class { return rehop.ClassConfiguration }

// Is reports whether target is ErrReturned.
func (e *ReturnedError) Is(target error) bool { return target == ErrReturned }

// RefusedError says that the broker closed the channel because of this very
// message: its exchange does not exist, it is too large, or a property of it
// is not allowed. Sending it again changes nothing.
type RefusedError struct {
	Exchange, RoutingKey string
	Cause                *amqp.Error
}

func (e *RefusedError) missing() bool { return e.Cause.Code == amqp.NotFound }

func (e *RefusedError) Error() string {
	switch {
	case e.missing():
		return fmt.Sprintf("returned: exchange %q does not exist: declare it first", e.Exchange)
	case e.Cause.Code == amqp.AccessRefused:
		return fmt.Sprintf("refused by the broker: %d %s: give the user the permission to write there", e.Cause.Code, e.Cause.Reason)
	case e.Cause.Code == amqp.PreconditionFailed && strings.Contains(e.Cause.Reason, "user_id"):
		return fmt.Sprintf("refused by the broker: %d %s: leave out the user-id, or log in as that user", e.Cause.Code, e.Cause.Reason)
	}
	return fmt.Sprintf("refused by the broker: %d %s", e.Cause.Code, e.Cause.Reason)
}

// Is reports whether target is ErrReturned, for a missing exchange, or
// ErrRefused, for any other reason.
func (e *RefusedError) Is(target error) bool {
	if e.missing() {
		return target == ErrReturned
	}
	return target == ErrRefused
}

// Unwrap returns the broker's own error.
func (e *RefusedError) Unwrap() error { return e.Cause }

// TooLargeError says that properties and headers do not fit in a frame of the
// connection. The message was not sent: that would end the connection, here or
// where it is consumed.
type TooLargeError struct{ Size, Limit int }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("refused: properties and headers need %d bytes with what is added to them later, want at most %d on this connection: put large data into the body, or raise frame_max", e.Size, e.Limit)
}

// Class returns rehop.ClassBug.
func (e *TooLargeError) Class() rehop.Class { return rehop.ClassBug }

// Is reports whether target is ErrRefused.
func (e *TooLargeError) Is(target error) bool { return target == ErrRefused }
