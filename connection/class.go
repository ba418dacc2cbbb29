package connection

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Class says what can be done about an error.
type Class uint8

const (
	// Unknown is the class of nil and of errors from elsewhere.
	Unknown Class = iota
	// Transient errors may pass by themselves: a lost connection, a deadline, a
	// broker that is down, blocked or at a limit. Try again.
	Transient
	// Configuration errors pass when somebody changes this program's settings
	// or the broker's: user, password, virtual host, permission, certificate, a
	// queue that is missing or has other arguments.
	Configuration
	// Bug errors never pass: what was asked is wrong, or what was used is closed.
	Bug
)

func (c Class) String() string {
	return [...]string{"unknown", "transient", "configuration", "bug"}[min(c, Bug)]
}

// WithClass returns err with a class, whatever it wraps; nil if err is nil.
func WithClass(err error, c Class) error {
	if err == nil {
		return nil
	}
	return &classified{err, c}
}

type classified struct {
	error
	class Class
}

func (c *classified) Unwrap() error { return c.error }
func (c *classified) Class() Class  { return c.class }

// ClassOf returns the class of an error of this SDK or of a broker, and of any
// error that has one by [WithClass] or by a method Class() of its own, or wraps
// such an error.
func ClassOf(err error) Class {
	var own interface{ Class() Class }
	if errors.As(err, &own) {
		return own.Class()
	}
	if errors.Is(err, ErrClosed) {
		return Bug
	}
	var reply *amqp.Error
	if errors.As(err, &reply) {
		return classOfReply(reply)
	}
	var network net.Error
	for _, transient := range []error{ErrSessionLost, errChannelLimit, context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, transient) {
			return Transient
		}
	}
	if errors.As(err, &network) {
		return Transient
	}
	return Unknown
}

// classOfReply judges by the reply code, and by the broker's words where one
// code has several meanings. What the library reports of itself is a lost
// connection, whatever its code.
func classOfReply(e *amqp.Error) Class {
	switch {
	case e == amqp.ErrCredentials, e == amqp.ErrSASL, e == amqp.ErrVhost:
		return Configuration
	case !e.Server:
		return Transient
	}
	switch e.Code {
	case amqp.ConnectionForced, amqp.ResourceLocked, amqp.ResourceError, amqp.InternalError:
		return Transient
	case amqp.NotAllowed:
		if strings.Contains(e.Reason, "limit") {
			return Transient
		}
		return Configuration
	case amqp.PreconditionFailed:
		switch {
		case strings.Contains(e.Reason, "timed out"): // the consumer timeout
			return Transient
		case strings.Contains(e.Reason, "delivery tag"), strings.Contains(e.Reason, "larger than"):
			return Bug
		}
		return Configuration
	case amqp.NoRoute, amqp.NoConsumers, amqp.InvalidPath, amqp.AccessRefused, amqp.NotFound:
		return Configuration
	}
	return Bug
}
