package topology

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// ConflictError says that a queue or exchange exists with other arguments than
// the plan's. Arguments cannot be changed while it lives.
type ConflictError struct {
	Kind     string // "queue" or "exchange"
	Name     string // of the queue or exchange
	Argument string // that differs, for example "x-message-ttl"; "" if the broker did not say
	Want     string // the plan's value, "none" without one; a wait as a duration
	Have     string // the broker's value, likewise
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

var errNoPermission = errors.New("no permission")

// refusal turns the broker's refusal to declare something into an error that
// says what to do. owner is the work queue a queue belongs to, or "".
func refusal(kind, name, owner string, cause *amqp.Error) error {
	switch cause.Code {
	case amqp.AccessRefused:
		return fmt.Errorf("topology: %w to declare %s %q: give the user configure, write and read on it: %w", errNoPermission, kind, name, cause)
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
		e.Want, e.Have = milliseconds(e.Want), milliseconds(e.Have)
		e.Advice = fmt.Sprintf("the wait was changed; stop the consumers of %q, let its messages come back (they do within %s), then rabbitmqctl delete_queue %q, and declare again", owner, e.Have, name)
	case kind == "queue":
		e.Advice = fmt.Sprintf("stop its consumers, empty it, rabbitmqctl delete_queue %q, and declare again, or choose another name (the broker names one difference, there may be more, such as its type)", name)
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

// milliseconds writes a TTL as a duration, such as the schedule has.
func milliseconds(value string) string {
	ms, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return value
	}
	return (time.Duration(ms) * time.Millisecond).String()
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
