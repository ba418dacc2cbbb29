package topology

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/ask"
	"github.com/rehop/rehop/internal/ctl"
)

// ConflictError says that a queue or exchange exists with other arguments than
// those planned. The arguments of a living queue or exchange cannot change.
type ConflictError struct {
	Kind     string // "queue" or "exchange"
	Name     string // of the queue or exchange
	Argument string // that differs, for example "x-queue-type"; of several, the most telling one; "" if the broker did not say
	Want     string // the planned value, "none" without one; a wait as a duration
	Have     string // the broker's value, in the same form
	Advice   string // a remedy

	cause *amqp.Error
}

func (e *ConflictError) Error() string {
	what := "other arguments"
	if e.Argument != "" {
		what = fmt.Sprintf("another %s (wanted %s, found %s)", e.Argument, e.Want, e.Have)
	}
	return fmt.Sprintf("topology: %s %q exists with %s: %s", e.Kind, e.Name, what, e.Advice)
}

// Unwrap returns the broker's own error, an *amqp.Error with code 406.
func (e *ConflictError) Unwrap() error { return e.cause }

// conflict returns the error for a queue whose arguments are known. w is the work
// queue that it is a part of, or nil.
func conflict(vhost string, w *WorkQueue, q plannedQueue, have amqp.Table, cause *amqp.Error) *ConflictError {
	e := &ConflictError{Kind: "queue", Name: q.Name, cause: cause}
	if names := q.refused(have); len(names) > 0 {
		e.Argument = names[0]
		e.Want, e.Have = argumentText(e.Argument, q.Args[e.Argument]), argumentText(e.Argument, have[e.Argument])
	}
	isOther := (q.role == waitRole || q.role == letterRole) && isWorkQueue(q.Name, have)
	emptied := q.emptied(vhost)
	if isOther && q.role == waitRole { // no message of ours is in it
		emptied = plannedQueue{Owner: q.Name, role: workRole}.emptied(vhost)
	}
	again := fmt.Sprintf("%s; then delete it (%s) and declare again", emptied, deleteQueue(vhost, q.Name))
	anew := again + bindAgain
	spec := "WorkQueue"
	if w != nil {
		spec, _ = w.spec()
	}
	switch {
	case isOther:
		e.Advice = fmt.Sprintf("it is a work queue of its own: %s; or, if nothing uses it any more, %s", anotherName(q.Name), again)
	case q.role == waitRole && (!isFormOfWait(q.Owner, q.Name, q.waitNumber, have) || q.Args["x-message-ttl"] != nil && isCarriedForm(have)): // nothing brings back what is in it
		e.Advice = fmt.Sprintf("it does not fit the other waits of work queue %q: stop the consumers of %q; %s%s and declare again",
			q.Owner, q.Owner, takenOut(vhost, q.Owner, q.Name, q.waitNumber, have), deleteQueue(vhost, q.Name))
	case q.role == waitRole:
		e.Advice = fmt.Sprintf("it does not fit the other waits of work queue %q: %s", q.Owner, again)
	case q.role == letterRole: // the names follow from others, and so do its own bindings
		e.Advice = again + ", which makes the bindings of the specifications" + bindAgain
	case q.role == levelRole: // nobody else binds it
		e.Advice = again
	case e.Argument == "x-queue-type" && q.role == workRole && isOfType(q.Args, have):
		e.Advice = fmt.Sprintf("set %s.Type to %q; or, to have type %s, %s; or choose another %s.Name", spec, e.Have, e.Want, anew, spec)
	case e.Argument == "x-dead-letter-exchange" && q.role == workRole && spec == "WorkQueue":
		e.Advice = "others have declared it: set WorkQueue.Existing, which leaves it as it is; or " + anew + "; or choose another WorkQueue.Name"
	case q.role == workRole:
		e.Advice = anew + "; or choose another " + spec + ".Name"
	default:
		e.Advice = anew + "; or choose another name"
	}
	return e
}

// emptied says how a queue becomes empty, so that no message is lost or becomes a dead letter when it is deleted.
//
// A message that ends its wait while the work queue is away goes by the alternates to the dead-letter queue, and waits for
// nothing: on 3.10, 4.0 and 4.3 each of 60 that waited became a letter. With the waits empty, twice and 10 s apart, none of 60 did on
// 4.0 and 4.3. So the waits have to be empty too (TestRemedies in integration/drift).
func (q plannedQueue) emptied(vhost string) string {
	switch q.role {
	case workRole:
		return fmt.Sprintf("stop what publishes to %q%s, %s, when no message is delayed to it by its name any more", q.Owner, byBindings, ctl.Consumed(vhost, q.Owner))
	case waitRole:
		return fmt.Sprintf("stop what publishes to %q%s, %s", q.Owner, byBindings, ctl.Consumed(vhost, q.Owner))
	case letterRole:
		return fmt.Sprintf("stop the consumers whose dead letters come here, and those of this queue; send its letters back (%s), "+
			"or take them out (%s) until %s brings them back; wait until it is empty (%s)", ctl.Rehop("dlq send --all", vhost, q.Name),
			ctl.Rehop("dlq drop --all --copy letters.jsonl", vhost, q.Name), ctl.Rehop("dlq import", vhost, q.Name, "letters.jsonl"), ctl.Empty(vhost, strconv.Quote(q.Name)))
	case levelRole:
		return fmt.Sprintf("stop what publishes with a delay, and wait until no delayed message is left (%s)", ctl.Empty(vhost, "each queue of the delays"))
	}
	return "stop what publishes to it" + byBindings + ", let its consumers empty it, and stop them"
}

// Only the owner of a binding may know it, so remedies name none.
const (
	byBindings = " and to the exchanges that it is bound to"
	bindAgain  = ", then bind it again where others had bound it"
)

// isOfType reports whether a queue is what we declare as one of its type.
func isOfType(want, have amqp.Table) bool {
	if t := have["x-queue-type"]; t != string(Quorum) && t != string(Classic) {
		return false
	}
	return equalTables(amqp.Table{"1": want["x-dead-letter-exchange"], "2": want["x-single-active-consumer"]},
		amqp.Table{"1": have["x-dead-letter-exchange"], "2": have["x-single-active-consumer"]})
}

// difference is what the text of a 406 says: an argument of a queue, and the
// value it exists with; nil: none.
type difference struct {
	queue, argument string
	have            any
}

// The text of a 406, which is the same from 3.10 to 4.3. The name of a queue may
// hold anything.
var (
	inequivalent      = regexp.MustCompile(`(?s)inequivalent arg '([^']*)' for (.*): received (.+?) but current is (.+)$`)
	inequivalentQueue = regexp.MustCompile(`(?s)inequivalent arg '[^']*' for queue '(.*)' in vhost '.*': received `)
)

func differenceIn(cause *amqp.Error) (d difference, ok bool) {
	if cause.Code != amqp.PreconditionFailed {
		return difference{}, false
	}
	queue := inequivalentQueue.FindStringSubmatch(cause.Reason)
	m := inequivalent.FindStringSubmatch(cause.Reason)
	if queue == nil || m == nil {
		return difference{}, false
	}
	d = difference{queue: queue[1], argument: m[1]}
	if m[4] != "none" {
		// Where both sides have the argument the type is not told.
		text := !strings.Contains(m[4], "' of type '") && strings.HasPrefix(d.argument, "x-dead-letter-") || strings.HasSuffix(m[4], "of type 'longstr'")
		d.have = typed(plainValue(m[4]), text)
	}
	return d, true
}

// refusedQueue returns the queue whose arguments the broker has refused.
func refusedQueue(cause *amqp.Error) (name string, ok bool) {
	d, ok := differenceIn(cause)
	return d.queue, ok
}

// refusal turns the broker's refusal to declare something into an error that
// says what to do.
func refusal(kind, name string, cause *amqp.Error) error {
	if cause.Code == amqp.AccessRefused {
		return fmt.Errorf("topology: %w to declare %s %q: give the user %s; Plan.Permissions returns all that a program needs: %w",
			errNoPermission, kind, name, lacking(kind, name, cause), cause)
	}
	m := inequivalent.FindStringSubmatch(cause.Reason)
	switch {
	case kind == "exchange" && m == nil && strings.Contains(cause.Reason, "exchange type"):
		return fmt.Errorf("topology: exchange %q: %w: %w", name, errUnknownKind, cause)
	case cause.Code != amqp.PreconditionFailed || m == nil:
		return fmt.Errorf("topology: declare %s %q: %w", kind, name, cause)
	}
	return differs(vhostIn(kind, name, cause), kind, name, m[1], plainValue(m[3]), plainValue(m[4]), cause)
}

// vhostIn returns the virtual host in the text of a 406 about something.
func vhostIn(kind, name string, cause *amqp.Error) string {
	_, rest, _ := strings.Cut(cause.Reason, fmt.Sprintf(" for %s '%s' in vhost '", kind, name))
	vhost, _, _ := strings.Cut(rest, "': received ")
	return vhost
}

// accessRefused is the text of a 403. A broker of 3.10 does not say which permission is missing.
var accessRefused = regexp.MustCompile(`(?s)(?:(configure|write|read) )?access to (queue|exchange) '(.*)' in vhost '`)

// lacking says which permission is missing to declare something, as far as the broker tells. A part that
// it names beside it is the exchange that it leads to.
func lacking(kind, name string, cause *amqp.Error) string {
	m := accessRefused.FindStringSubmatch(cause.Reason)
	switch {
	case m == nil:
		return "configure and read on it, and write on the exchange that it leads to"
	case m[1] != "":
		return fmt.Sprintf("%s on %s %q", m[1], m[2], m[3])
	case m[2] == kind && m[3] == name:
		return fmt.Sprintf("configure and read on %s %q", kind, name)
	}
	return fmt.Sprintf("write on %s %q", m[2], m[3])
}

// differs returns the error for a queue or exchange that exists with another value of an
// argument, with nothing else known of it.
func differs(vhost, kind, name, argument, want, have string, cause *amqp.Error) *ConflictError {
	e := &ConflictError{Kind: kind, Name: name, Argument: argument, Want: want, Have: have, cause: cause}
	switch {
	case kind == "exchange" && argument == "alternate-exchange" && want != none && strings.HasSuffix(name, lanesSuffix): // one of the user wants none
		e.Advice = fmt.Sprintf("its Lanes have other names, another order or another OneDeadLetterQueue now: with the bindings of both, messages would be in two places; "+
			"choose another Lanes.Name; or stop what publishes to it%s, let the lanes and their waits run empty, delete it (%s) and declare again%s", byBindings, deleteExchange(vhost, name), bindAgain)
	case kind == "exchange" && isWiring(name): // what ends its wait meanwhile would become a dead letter
		owner, _ := wiringOf(name)
		e.Advice = fmt.Sprintf("%s; then delete it (%s) and declare again", plannedQueue{Owner: owner, role: workRole}.emptied(vhost), deleteExchange(vhost, name))
	case kind == "exchange":
		e.Advice = fmt.Sprintf("stop what publishes to it%s, delete it (%s) and declare again%s, and bind to it again what others had bound to it; or choose another name",
			byBindings, deleteExchange(vhost, name), bindAgain)
		if argument == "type" {
			e.Advice = "use the kind it has; or " + e.Advice
		}
	default:
		e.Advice = fmt.Sprintf("stop what publishes to it%s, let its consumers empty it, and its waits if it has some, stop them, delete it (%s) and declare again%s; or choose another name", byBindings, deleteQueue(vhost, name), bindAgain)
	}
	return e
}

// bindingRefusal is refusal for a binding.
func bindingRefusal(b plannedBinding, cause *amqp.Error) error {
	if cause.Code != amqp.AccessRefused {
		return fmt.Errorf("topology: bind %s: %w", b.describe(), cause)
	}
	to := "queue " + strconv.Quote(b.Queue)
	if b.ToExchange != "" {
		to = "exchange " + strconv.Quote(b.ToExchange)
	}
	return fmt.Errorf("topology: %w to bind %s: give the user read on exchange %q and write on %s: %w", errNoPermission, b.describe(), b.Exchange, to, cause)
}

// missing is refusal for a look at something that others declare.
func missing(kind, name, advice string, cause *amqp.Error) error {
	if ask.IsAway(cause) {
		return fmt.Errorf("topology: %s %q is not available: its node or its process is down: %w", kind, name, cause)
	}
	if ask.IsGone(cause) {
		return fmt.Errorf("topology: %s %q does not exist: %s: %w", kind, name, advice, cause)
	}
	if cause.Code == amqp.AccessRefused { // by 4.3, which answers users with any permission on it
		return fmt.Errorf("topology: %w to look at %s %q: give the user read on %s %q (read is enough, although the broker may name configure): %w",
			errNoPermission, kind, name, kind, name, cause)
	}
	return fmt.Errorf("topology: look at %s %q: %w", kind, name, cause)
}

var errUnknownKind = rehop.WithClass(fmt.Errorf("its Exchange.Kind is one that this broker does not have, want %q, %q, %q, %q or that of a plugin",
	amqp.ExchangeTopic, amqp.ExchangeDirect, amqp.ExchangeFanout, amqp.ExchangeHeaders), rehop.ClassConfiguration)

var errNoPermission = errors.New("no permission")

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
