package topology

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/ask"
	"github.com/rehop/rehop/internal/route"
)

// maxArguments bounds how many differences are asked for.
const maxArguments = 24

// argumentsOf returns the arguments that a queue exists with, as far as the
// broker compares them. It has refused those of q with cause, which names one
// that differs; that one is put right and the broker asked again.
func (c *caller) argumentsOf(q plannedQueue, cause *amqp.Error) (amqp.Table, error) {
	args := maps.Clone(q.Args)
	for range maxArguments {
		d, ok := differenceIn(cause)
		if !ok || d.queue != q.Name {
			return nil, refusal("queue", q.Name, cause)
		}
		if d.have == nil {
			delete(args, d.argument)
		} else {
			args[d.argument] = d.have
		}
		look := lookForQueue(q.Name, "it has just been deleted: declare again")
		declare := declareQueue(plannedQueue{Name: q.Name, Args: args})
		refused, err := c.do(func(ch *amqp.Channel) error {
			if err := look.call(ch, true); err != nil { // or it would be made with these arguments
				return err
			}
			return declare.call(ch, false)
		})
		switch {
		case err != nil:
			return nil, fmt.Errorf("topology: look at queue %q: %w", q.Name, err)
		case refused == nil:
			dropIncomparable(args)
			return args, nil
		case refused.Code == amqp.NotFound:
			return nil, look.explain(refused)
		}
		cause = refused
	}
	return nil, refusal("queue", q.Name, cause)
}

// argumentsIfAny returns the arguments that a queue exists with, and whether it
// does. It makes no queue.
func (c *caller) argumentsIfAny(q plannedQueue) (args amqp.Table, exists bool, err error) {
	look, declare := lookForQueue(q.Name, ""), declareQueue(q)
	refused, err := c.do(func(ch *amqp.Channel) error {
		if err := look.call(ch, false); err != nil {
			return err
		}
		return declare.call(ch, false)
	})
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("topology: look at queue %q: %w", q.Name, err)
	case refused == nil:
		return q.Args, true, nil
	case ask.IsGone(refused):
		return nil, false, nil
	case refused.Code == amqp.PreconditionFailed:
		args, err = c.argumentsOf(q, refused)
		return args, err == nil, err
	}
	return nil, false, declare.explain(refused)
}

// dropIncomparable takes away what a queue of its type cannot have, and what the
// broker therefore does not compare.
func dropIncomparable(args amqp.Table) {
	switch args["x-queue-type"] {
	case string(Classic):
		delete(args, "x-delivery-limit")
		delete(args, "x-dead-letter-strategy")
	case string(Quorum):
		delete(args, "x-max-priority")
	}
}

// isCompared reports whether a broker of version v compares an argument when a queue is declared again. It stores any that it does not
// know, such as x-quorum-target-group-size, which it reads later. Measured for classic and quorum queues of 3.10, 4.0 and 4.3.
func isCompared(v connection.Version, argument string) bool {
	switch argument {
	case consumerTimeoutArgument, disconnectedTimeoutArgument, "x-delayed-retry-type", "x-delayed-retry-min", "x-delayed-retry-max":
		return v.AtLeast(4, 3)
	case "x-queue-type", "x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-max-in-memory-length", "x-max-in-memory-bytes", "x-overflow",
		"x-delivery-limit", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy", "x-single-active-consumer", "x-max-priority",
		"x-queue-mode", "x-queue-version", "x-queue-leader-locator", "x-queue-master-locator", "x-quorum-initial-group-size":
		return true
	}
	return false
}

// learn notes that queue q of w exists with other arguments than those planned,
// or returns a *ConflictError if they are not accepted. It does no I/O.
func (have *found) learn(w *WorkQueue, q plannedQueue, args amqp.Table, cause *amqp.Error) error {
	for _, also := range append([]amqp.Table{q.Args}, q.Also...) {
		if q.role == workRole {
			also = withTimeoutsOf(args, also)
		}
		if equalTables(args, also) {
			have.accept(q, args)
			return nil
		}
	}
	_, wantsTTL := q.Args["x-message-ttl"]
	if q.role == waitRole && !wantsTTL && isOtherCarried(q.Args, args) {
		have.carried = with(have.carried, q.Name, waitOf(args))
		return nil
	}
	isMain := q.role == waitRole && w != nil && q.Name == route.WaitQueue(w.Name, q.waitNumber)
	if !isMain {
		return conflict(have.vhost, w, q, args, cause)
	}
	e := have.queues[w.Name]
	isCarried := isCarriedForm(args)
	_, hasTTL := args["x-message-ttl"]
	switch {
	case wantsTTL && !isCarried:
		have.taken = with(have.taken, q.Name, differences(q.Args, args))
	case q.waitNumber == 1 && e.form == unknown && wantsTTL:
		e.form = carried
		have.queues = with(have.queues, w.Name, e)
	case q.waitNumber == 1 && e.form == unknown && hasTTL:
		e.form = timed
		have.queues = with(have.queues, w.Name, e)
	default:
		return conflict(have.vhost, w, q, args, cause)
	}
	return nil
}

// accept notes that q may stay as it is.
func (have *found) accept(q plannedQueue, args amqp.Table) {
	have.args = with(have.args, q.Name, args)
	_, wanted := q.Args["x-dead-letter-strategy"]
	if _, has := args["x-dead-letter-strategy"]; q.role == workRole && wanted && !has {
		e := have.queues[q.Owner]
		e.old = true
		have.queues = with(have.queues, q.Owner, e)
	}
}

// with returns a copy of m that has the entry too: plans that were made of m
// stay as they are.
func with[K comparable, V any](m map[K]V, key K, value V) map[K]V {
	m = maps.Clone(m)
	if m == nil {
		m = map[K]V{}
	}
	m[key] = value
	return m
}

// isCarriedForm reports whether a wait queue with these arguments keeps messages
// until they are carried.
func isCarriedForm(args amqp.Table) bool {
	_, timed := args["x-message-ttl"]
	return !timed && args["x-single-active-consumer"] == true
}

// isOtherCarried reports whether a wait queue with the arguments have is like one
// with those of want, but for another wait.
func isOtherCarried(want, have amqp.Table) bool {
	if t := have["x-queue-type"]; t != string(Quorum) && t != string(Classic) {
		return false // of a stream the broker compares no other argument
	}
	for _, name := range differing(want, have) {
		if name != "x-max-length" && name != "x-queue-type" && name != "x-delivery-limit" {
			return false
		}
	}
	return isCarriedForm(have)
}

func equalTables(a, b amqp.Table) bool { return maps.EqualFunc(a, b, equalValues) }

// equalValues compares as the broker does: integers by value.
func equalValues(a, b any) bool { return plain(a) == plain(b) }

func plain(v any) string {
	if v == nil {
		return "none"
	}
	return fmt.Sprint(v)
}

// differences names the arguments that differ, with the values that exist.
func differences(want, have amqp.Table) string {
	text := ""
	for _, name := range differing(want, have) {
		if text != "" {
			text += ", "
		}
		text += name + " " + argumentText(name, have[name])
	}
	return text
}

// refused returns the names of the arguments for which a declaration of the queue is a conflict.
func (q plannedQueue) refused(have amqp.Table) []string {
	if q.role == workRole {
		return differing(withTimeoutsOf(have, q.Args), have)
	}
	return differing(q.Args, have)
}

// differing returns the names of the arguments that differ, the type first,
// because the others follow from it.
func differing(want, have amqp.Table) []string {
	all := maps.Clone(want)
	maps.Copy(all, have)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !equalValues(want[name], have[name]) {
			names = append(names, name)
		}
	}
	if i := slices.Index(names, "x-queue-type"); i > 0 {
		names = slices.Insert(slices.Delete(names, i, i+1), 0, "x-queue-type")
	}
	return names
}

// argumentText writes a value as a person would: a TTL as a duration.
func argumentText(name string, v any) string {
	if name == "x-message-ttl" && v != nil {
		return milliseconds(plain(v))
	}
	return plain(v)
}

// typed returns an argument's value for the wire. An integer has any width.
func typed(value string, text bool) any {
	if text {
		return value
	}
	if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		return n
	}
	if b, err := strconv.ParseBool(value); err == nil {
		return b
	}
	return value
}
