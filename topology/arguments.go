package topology

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/ctl"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/management"
	"github.com/rehop/rehop/internal/route"
)

// arguments returns the arguments of the work queue itself on a broker of version v.
func (w WorkQueue) arguments(v connection.Version) amqp.Table {
	args := amqp.Table{
		"x-queue-type":           string(w.Type.orDefault()),
		"x-dead-letter-exchange": w.dlxExchange(),
	}
	if w.SingleActiveConsumer {
		args["x-single-active-consumer"] = true
	}
	if timeout, byConsumers := w.consumerTimeoutOn(v); timeout > 0 && !byConsumers {
		args[consumerTimeoutArgument] = timeout.Milliseconds()
	}
	switch {
	case w.Type.orDefault() == Quorum:
		args["x-delivery-limit"] = int64(route.DeliveryLimit)
		if atLeastOnce(v) {
			addStrategy(args)
		}
		if w.SingleActiveConsumer && v.AtLeast(4, 3) {
			args[disconnectedTimeoutArgument] = disconnectedTimeout.Milliseconds()
		}
		if w.shards != "" {
			args["x-queue-leader-locator"] = "balanced" // or all leaders are on the node that the first process is connected to
		}
	case w.NativePriority:
		args["x-max-priority"] = int64(header.MaxPriority)
	}
	return args
}

// addStrategy makes the dead-lettering at-least-once, which takes effect only
// together with reject-publish.
func addStrategy(args amqp.Table) {
	args["x-dead-letter-strategy"] = "at-least-once"
	args["x-overflow"] = "reject-publish"
}

// consumerTimeoutArgument is an argument of queues, and on 4.3 of consumers too.
const consumerTimeoutArgument = "x-consumer-timeout"

// disconnectedTimeoutArgument is how long a quorum queue of 4.3 keeps a consumer whose node is
// gone, with its messages: 60 s without it. A single active consumer keeps the whole queue from all
// others meanwhile. Measured in a cluster of three on 4.3.6 when the node of the active consumer was
// killed: 59 s without it, and 4.4 s with 5 s. On 4.0 the next consumer has the queue at once.
const disconnectedTimeoutArgument = "x-consumer-disconnected-timeout"

// disconnectedTimeoutKey is the same in a policy.
const disconnectedTimeoutKey = "consumer-disconnected-timeout"

// brokersDisconnectedTimeout is that of a queue with neither, unless the broker's configuration has another.
const brokersDisconnectedTimeout = 60 * time.Second

// disconnectedTimeout outlasts a connection between nodes that is lost for a moment and would
// cost a second delivery of all that the consumer has.
const disconnectedTimeout = 5 * time.Second

const (
	minConsumerTimeout = time.Second
	maxConsumerTimeout = 720 * time.Hour // a timer of the broker has 32 bits of milliseconds
)

// validateConsumerTimeout checks the field of a WorkQueue, of Lanes or of Shards.
func validateConsumerTimeout(owner string, t time.Duration) error {
	switch {
	case t == 0:
		return nil
	case t < minConsumerTimeout || t > maxConsumerTimeout:
		return fmt.Errorf("topology: %sConsumerTimeout is %v, want 1s to 720h, or 0 for the broker's own", owner, t)
	case t%time.Millisecond != 0:
		return fmt.Errorf("topology: %sConsumerTimeout is %v, want whole milliseconds", owner, t)
	}
	return nil
}

// planConsumerTimeout returns why the ConsumerTimeout of w is refused on a broker of
// version v.
func planConsumerTimeout(w WorkQueue, v connection.Version) error {
	if w.ConsumerTimeout == 0 || v.AtLeast(3, 12) {
		return nil
	}
	return fmt.Errorf("topology: %sConsumerTimeout is %v, which is refused on broker %s: it has one consumer timeout for all queues; "+
		"set consumer_timeout in its configuration and no ConsumerTimeout, or use broker 3.12", w.owner(), w.ConsumerTimeout, v)
}

// consumerTimeoutOn returns the consumer timeout of the queue on a broker of version
// v, 0 for none that is known, and whether its consumers ask for it. Where they do, the
// queue has no such argument: the broker would refuse another value of it for as long
// as the queue lives.
func (w WorkQueue) consumerTimeoutOn(v connection.Version) (timeout time.Duration, byConsumers bool) {
	switch {
	case !v.AtLeast(3, 12), v.AtLeast(4, 3) && w.Type.orDefault() == Classic:
		return 0, false
	}
	return w.ConsumerTimeout, w.ConsumerTimeout > 0 && v.AtLeast(4, 3)
}

// withTimeoutsOf returns args with the timeouts that a queue exists with. They are accepted,
// whatever they are: consumers ask for another consumer timeout, and a queue that was declared before
// an upgrade of the broker has none for consumers whose node is gone.
func withTimeoutsOf(have, args amqp.Table) amqp.Table {
	args = maps.Clone(args)
	if timeout, ok := have[consumerTimeoutArgument]; ok {
		args[consumerTimeoutArgument] = timeout
	}
	delete(args, disconnectedTimeoutArgument)
	if timeout, ok := have[disconnectedTimeoutArgument]; ok {
		args[disconnectedTimeoutArgument] = timeout
	}
	return args
}

// heldAdvice says what a queue does whose active consumer is on a node that is gone, and
// what mends it while the queue lives. It is "" for a queue that needs no advice. The policies of the
// queue, if they are known, are in definition.
func heldAdvice(vhost, queue string, args amqp.Table, definition map[string]any, v connection.Version) (effect, remedy string) {
	held := heldFor(args, definition, v)
	if held < brokersDisconnectedTimeout {
		return "", ""
	}
	effect = fmt.Sprintf("when the node of the broker that its active consumer is connected to dies, the queue delivers nothing for %v", held)
	if _, has := definition[disconnectedTimeoutKey]; has {
		return effect, fmt.Sprintf("set %s to %d in this policy", disconnectedTimeoutKey, disconnectedTimeout.Milliseconds())
	}
	return effect, "while it lives, set a policy: " + lateArguments(vhost, queue, args, v)
}

// heldFor returns how long the broker keeps a queue for a single active consumer whose node is gone, 0 if
// the queue is none of those. Of argument and policy the lower applies (measured on 4.3.6).
func heldFor(args amqp.Table, definition map[string]any, v connection.Version) time.Duration {
	if !v.AtLeast(4, 3) || args["x-queue-type"] != string(Quorum) || args["x-single-active-consumer"] != true {
		return 0
	}
	held, known := args[disconnectedTimeoutArgument].(int64)
	if policy, has := definition[disconnectedTimeoutKey]; has {
		if ms := integer(policy); !known || ms < held {
			held, known = ms, true
		}
	}
	if !known {
		return brokersDisconnectedTimeout
	}
	return time.Duration(held) * time.Millisecond
}

// lateArguments is the command that sets what a work queue lacks that an older broker has declared
// it on. A queue obeys one policy only, so all of it is in one.
func lateArguments(vhost, queue string, args amqp.Table, v connection.Version) string {
	pattern, keys := "", []string{}
	if _, has := args["x-dead-letter-strategy"]; !has {
		pattern = `(\.wait\.[0-9]+|\.dlq)?`
		keys = append(keys, `"dead-letter-strategy":"at-least-once"`, `"overflow":"reject-publish"`, `"delivery-limit":-1`)
	}
	if heldFor(args, nil, v) >= brokersDisconnectedTimeout {
		keys = append(keys, fmt.Sprintf("%q:%d", disconnectedTimeoutKey, disconnectedTimeout.Milliseconds()))
	}
	return setPolicy(vhost, "rehop "+queue, "^"+regexp.QuoteMeta(queue)+pattern+"$", "{"+strings.Join(keys, ",")+"}")
}

// letterAdvice says how the owner of a queue of others gives it dead letters while it lives. A queue obeys one
// policy only, and that may be the policy of other queues too. An exchange of the waits leads each message to the dead-letter queue, with the key that it had.
//
// Measured on 3.10, 4.0 and 4.3 by TestWhatAPolicySets: a quorum queue obeys these entries while it lives, also for
// the messages in it, and dead-letters at-least-once if the policy has overflow too. When the policy goes, the
// broker deletes the letters that it has not delivered yet. A message keeps the TTL that a policy gave it, and not
// the exchange: where both come from a policy that goes, the broker deletes what waits. So no engine relies
// on a policy, and waits have both as arguments. A policy cannot set a single active consumer, a type or
// a maximal priority, and an operator policy no dead letters.
func (w WorkQueue) letterAdvice(vhost string, shown management.Queue, known bool, v connection.Version) string {
	entries := map[string]any{}
	if shown.Policy != "" {
		maps.Copy(entries, shown.Definition)
	}
	entries[letterExchangeKey] = w.unroutedExchange()
	if atLeastOnce(v) {
		entries["dead-letter-strategy"], entries["overflow"] = strategyAtLeastOnce, rejectPublish
	} else if _, limited := (ruled{broker: shown}).deliveryLimit(v); !limited {
		entries["delivery-limit"] = route.DeliveryLimit
	}
	definition, err := json.Marshal(entries)
	if err != nil {
		return "give it a dead-letter exchange" // names and numbers are JSON
	}
	set := func(flags ...string) string {
		return setPolicy(vhost, "rehop "+w.Name, "^"+regexp.QuoteMeta(w.Name)+"$", string(definition), flags...)
	}
	switch {
	case !known:
		return "set a policy; if one applies to it already, take its entries too, and set a higher --priority: " + set()
	case shown.Policy != "":
		return fmt.Sprintf("a queue obeys one policy, and others may obey that one too, so give this queue alone one with the entries of policy %q and these, "+
			"and a higher --priority (1 if that policy has 0): %s", shown.Policy, set("--priority 1"))
	}
	return "set a policy: " + set()
}

// setPolicy is the command that sets a policy for queues.
func setPolicy(vhost, name, pattern, definition string, flags ...string) string {
	return setRule("set_policy", "queues", vhost, name, pattern, definition, flags...)
}

// setRule is the command that sets a policy, or an operator policy by set_operator_policy, for parts of a kind.
func setRule(verb, applyTo, vhost, name, pattern, definition string, flags ...string) string {
	command := strings.Join(append([]string{"rabbitmqctl", verb, "--apply-to", ctl.Quote(applyTo)}, flags...), " ")
	return ctl.Command(command, vhost, name, pattern, definition)
}

// deleteQueue is the command that deletes a queue.
func deleteQueue(vhost, queue string) string {
	return ctl.Command("rabbitmqctl delete_queue", vhost, queue)
}

// deleteExchange is the command that deletes an exchange. Neither rabbitmqctl nor rehop has one.
func deleteExchange(vhost, exchange string) string {
	return ctl.API("DELETE", "", "exchanges", vhost, exchange)
}

// unbinding says how a binding is taken away.
func unbinding(vhost string, b plannedBinding) string {
	to := b.destination()
	return "unbind it: " + ctl.Unbind(vhost, b.Exchange, to.kind, to.name, b.RoutingKey, len(b.Args) > 0)
}
