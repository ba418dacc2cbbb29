package connection

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Class tells how an error can go away: by itself, by a change of settings, or never.
type Class uint8

const (
	// Unknown is the class of nil and of errors without a class.
	Unknown Class = iota
	// Transient errors may pass by themselves: a lost connection, a deadline, a
	// broker that is down, blocked or at a limit. Try again.
	Transient
	// Configuration errors pass when somebody changes this program's settings
	// or the broker's: user, password, virtual host, permission, certificate, a
	// queue that is missing or has other arguments.
	Configuration
	// Bug errors never pass: an argument is wrong, or a value is used after its Close.
	Bug
)

func (c Class) String() string {
	return [...]string{"unknown", "transient", "configuration", "bug"}[min(c, Bug)]
}

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
// other errors are [Unknown], such as topology.ErrInUse and the error of an encoder.
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
	var blocked *BlockedError
	var network net.Error
	for _, transient := range []error{ErrSessionLost, errChannelLimit, context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, transient) {
			return Transient
		}
	}
	if errors.As(err, &blocked) || errors.As(err, &network) {
		return Transient
	}
	return Unknown
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
	case amqp.CommandInvalid:
		if strings.Contains(e.Reason, "unknown exchange type") { // 3.x; 4.x says 406
			return Configuration
		}
		return Bug
	case amqp.NotFound:
		if slices.ContainsFunc(away, func(text string) bool { return strings.Contains(e.Reason, text) }) {
			return Transient
		}
		return Configuration
	case amqp.NoRoute, amqp.NoConsumers, amqp.InvalidPath, amqp.AccessRefused:
		return Configuration
	}
	return Bug
}

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
