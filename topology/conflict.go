package topology

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// ConflictError says that a queue or exchange exists with other arguments than
// the plan's. Arguments cannot be changed while it lives.
type ConflictError struct {
	Kind     string // "queue" or "exchange"
	Name     string // of the queue or exchange
	Argument string // that differs, for example "x-message-ttl"; "" if the broker did not say
	Want     string // the plan's value, "none" without one
	Have     string // the broker's value, "none" without one
	Advice   string // what to do

	cause *amqp.Error
}

func (e *ConflictError) Error() string {
	what := "arguments"
	values := ""
	if e.Argument != "" {
		what = e.Argument
		values = fmt.Sprintf(" (wanted %s, found %s)", e.Want, e.Have)
	}
	return fmt.Sprintf("topology: %s %q exists with other %s%s: %s", e.Kind, e.Name, what, values, e.Advice)
}

// Unwrap returns the broker's own error, an *amqp.Error with code 406.
func (e *ConflictError) Unwrap() error { return e.cause }

// inequivalent reads the text of a 406, which is the same from 3.10 to 4.3.
var inequivalent = regexp.MustCompile(`inequivalent arg '([^']*)' for .*: received (.+?) but current is (.+)$`)

// refusal turns the broker's refusal to declare something into an error that
// says what to do. owner is the work queue a queue belongs to, or "".
func refusal(kind, name, owner string, cause *amqp.Error) error {
	switch cause.Code {
	case amqp.AccessRefused:
		return fmt.Errorf("topology: no permission to declare %s %q: give the user configure, write and read on it: %w", kind, name, cause)
	case amqp.PreconditionFailed:
	default:
		return fmt.Errorf("topology: declare %s %q: %w", kind, name, cause)
	}
	m := inequivalent.FindStringSubmatch(cause.Reason)
	if m == nil {
		return fmt.Errorf("topology: declare %s %q: %w", kind, name, cause)
	}
	e := &ConflictError{Kind: kind, Name: name, Argument: m[1], Want: plainValue(m[2]), Have: plainValue(m[3]), cause: cause}
	switch {
	case e.Argument == "x-message-ttl" && owner != "":
		e.Advice = fmt.Sprintf("the wait was changed; let its messages come back (they do within %s ms), delete the queue, and declare again", e.Have)
	case kind == "queue":
		e.Advice = "empty and delete the queue and declare again, or choose another name"
	default:
		e.Advice = "use the kind it has, delete it and declare again, or choose another name"
	}
	return e
}

// broughtByUpgrade reports whether the conflict is about an argument that
// queues declared on a 3.x broker do not have.
func broughtByUpgrade(cause *amqp.Error) bool {
	m := inequivalent.FindStringSubmatch(cause.Reason)
	return m != nil && slices.Contains([]string{"x-dead-letter-strategy", "x-overflow", "x-delivery-limit"}, m[1])
}

// plainValue takes the value out of "the value '5' of type 'long'".
func plainValue(s string) string {
	if _, rest, ok := strings.Cut(s, "the value '"); ok {
		if v, _, ok := strings.Cut(rest, "' of type"); ok {
			return v
		}
	}
	return strings.Trim(s, "'")
}
