package rehop

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Class tells how an error can go away: by itself, by a change of settings, or never.
type Class string

// The classes.
const (
	// ClassUnknown is the class of nil and of errors without a class.
	ClassUnknown Class = ""
	// ClassTransient errors may pass by themselves: a lost connection, a deadline, a
	// broker that is down, blocked or at a limit. Try again.
	ClassTransient Class = "transient"
	// ClassConfiguration errors pass when somebody changes this program's settings
	// or the broker's: user, password, virtual host, permission, certificate, a
	// queue that is missing or has other arguments.
	ClassConfiguration Class = "configuration"
	// ClassBug errors never pass: an argument is wrong, or a value is used after its
	// Close.
	ClassBug Class = "bug"
)

// String returns the class as a word, "unknown" for ClassUnknown.
func (c Class) String() string { return cmp.Or(string(c), "unknown") }

// WithClass returns err with a class of its own, which replaces the class of any error
// that err wraps. It returns nil if err is nil.
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

// ClassOf returns the class of err. Errors of brokers have a class, and so have the errors
// of this SDK that concern a connection, a publish or a configuration. So have errors of
// [WithClass], errors with a method Class() Class, and errors that wrap any of these. All
// other errors are [ClassUnknown], such as topology.ErrInUse and the error of an encoder.
func ClassOf(err error) Class {
	var own interface{ Class() Class }
	if errors.As(err, &own) {
		return own.Class()
	}
	var reply *amqp.Error
	if errors.As(err, &reply) {
		return classOfReply(reply)
	}
	for _, passes := range []error{context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, passes) {
			return ClassTransient
		}
	}
	// The errors of package connection have this method instead of a Class where the reply
	// of the broker that they wrap says more.
	var temporary interface{ Temporary() bool }
	var network net.Error
	if errors.As(err, &temporary) && temporary.Temporary() || errors.As(err, &network) {
		return ClassTransient
	}
	return ClassUnknown
}

// away are the words of brokers in a 404 for a queue that exists: its node is down, or
// its process.
var away = []string{"down or inaccessible", "stopped by supervisor", "has crashed", "due to timeout"}

// classOfReply judges by the reply code, and by the broker's words where one
// code has several meanings. An error that the library has made is a lost
// connection with any code.
func classOfReply(e *amqp.Error) Class {
	switch {
	case e == amqp.ErrCredentials, e == amqp.ErrSASL, e == amqp.ErrVhost:
		return ClassConfiguration
	case !e.Server:
		return ClassTransient
	}
	switch e.Code {
	case amqp.ConnectionForced, amqp.ResourceLocked, amqp.ResourceError, amqp.InternalError:
		return ClassTransient
	case amqp.NotAllowed:
		if strings.Contains(e.Reason, "limit") {
			return ClassTransient
		}
		return ClassConfiguration
	case amqp.PreconditionFailed:
		switch {
		case strings.Contains(e.Reason, "timed out"): // the consumer timeout
			return ClassTransient
		case strings.Contains(e.Reason, "delivery tag"), strings.Contains(e.Reason, "larger than"):
			return ClassBug
		}
		return ClassConfiguration
	case amqp.CommandInvalid:
		if strings.Contains(e.Reason, "unknown exchange type") { // 3.x; 4.x says 406
			return ClassConfiguration
		}
		return ClassBug
	case amqp.NotFound:
		if slices.ContainsFunc(away, func(text string) bool { return strings.Contains(e.Reason, text) }) {
			return ClassTransient
		}
		return ClassConfiguration
	case amqp.NoRoute, amqp.NoConsumers, amqp.InvalidPath, amqp.AccessRefused:
		return ClassConfiguration
	}
	return ClassBug
}
