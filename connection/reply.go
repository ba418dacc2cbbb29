package connection

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// unnested is plain for any error.
func unnested(err error) error {
	if e, ok := err.(*amqp.Error); ok { //nolint:errorlint // an error that wraps it has words of its own
		return plain(e)
	}
	return err
}

// plain returns e without the error that its reason quotes: the library reports
// a failed read as an Exception whose reason is another Exception.
func plain(e *amqp.Error) *amqp.Error {
	var code int
	var reason string
	if n, _ := fmt.Sscanf(e.Reason, "Exception (%d) Reason: %q", &code, &reason); n != 2 {
		return e
	}
	inner := *e
	inner.Code, inner.Reason = code, reason
	return &inner
}

// temporary is an error that may pass, unless a reply of the broker that an error wraps
// beside it says more: see rehop.ClassOf.
type temporary string

func (t temporary) Error() string { return string(t) }

// Temporary returns true.
func (temporary) Temporary() bool { return true }
