package confirm

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
)

// ErrReturned is what a *ReturnedError is, and a *RefusedError for an exchange
// that does not exist: the message reached no queue.
var ErrReturned error = &outcome{"returned: no queue took the message", connection.Configuration}

// ErrRefused is what every other *RefusedError is.
var ErrRefused error = &outcome{"refused by the broker", connection.Bug}

// ErrNacked says that the broker took the message and refused it: a full
// queue with overflow reject-publish, or a queue that was not available.
var ErrNacked error = &outcome{"nacked by the broker", connection.Transient}

// ErrUnconfirmed says that the broker's answer is missing: the message may be
// in its queue, or may not.
var ErrUnconfirmed error = &outcome{"unconfirmed: the message may or may not have reached its queue", connection.Transient}

// outcome is what became of a message, and its class.
type outcome struct {
	text  string
	class connection.Class
}

func (o *outcome) Error() string           { return o.text }
func (o *outcome) Class() connection.Class { return o.class }

// ReturnedError says that the message reached its exchange and no queue.
type ReturnedError struct {
	Exchange, Key string
	Code          uint16 // 312 for no route
	Text          string
}

func (e *ReturnedError) Error() string {
	return fmt.Sprintf("returned by exchange %q: no queue is bound for key %q (%d %s)", e.Exchange, e.Key, e.Code, e.Text)
}

// Class returns connection.Configuration: a binding is missing.
func (e *ReturnedError) Class() connection.Class { return connection.Configuration }

// Is reports whether target is ErrReturned.
func (e *ReturnedError) Is(target error) bool { return target == ErrReturned }

// RefusedError says that the broker closed the channel because of this very
// message: its exchange does not exist, it is too large, or a property of it
// is not allowed. Sending it again changes nothing.
type RefusedError struct {
	Exchange, Key string
	Cause         *amqp.Error
}

func (e *RefusedError) Error() string {
	if e.Cause.Code == amqp.NotFound {
		return fmt.Sprintf("returned: exchange %q does not exist", e.Exchange)
	}
	return fmt.Sprintf("refused by the broker: %d %s", e.Cause.Code, e.Cause.Reason)
}

// Is reports whether target is ErrReturned, for a missing exchange, or
// ErrRefused, for any other reason.
func (e *RefusedError) Is(target error) bool {
	if e.Cause.Code == amqp.NotFound {
		return target == ErrReturned
	}
	return target == ErrRefused
}

// Unwrap returns the broker's own error.
func (e *RefusedError) Unwrap() error { return e.Cause }
