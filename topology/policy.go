package topology

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/management"
	"github.com/rehop/rehop/internal/route"
)

// ruled is a queue as far as policies are judged by it.
type ruled struct {
	name   string
	role   role
	broker management.Queue
	shown  bool // broker is what the management API says

	timeout time.Duration // the consumer timeout of the specification, 0 for none
	asks    bool          // its consumers ask for it

	user, operator management.Policy // by themselves; without Definition where that is not known
}

// faults returns the promises that the policies of the queue break on a broker of
// version v. It judges the effective values: arguments and policies together, in the way that the
// broker combines them.
func (q ruled) faults(v connection.Version) (faults []route.PolicyFault) {
	if q.role == foreignRole {
		if effect := q.lossEffect(v); effect != "" {
			return []route.PolicyFault{{Queue: q.name, Key: letterExchangeKey, Effect: effect}}
		}
		return nil
	}
	for _, key := range policyKeys {
		value, ok := q.broker.Definition[key]
		if !ok {
			continue
		}
		if effect := q.effect(key, v); effect != "" {
			faults = append(faults, route.PolicyFault{Queue: q.name, Policy: q.policyOf(key), Key: key, Value: valueText(key, value), Effect: effect})
		}
	}
	return faults
}

// policyKeys are the entries that can break something. A dead-letter-exchange
// cannot: the arguments of our queues take precedence.
var policyKeys = []string{
	"message-ttl", "expires", "max-length", "max-length-bytes", "overflow", "delivery-limit",
	"dead-letter-routing-key", "dead-letter-strategy", "delayed-retry-type", consumerTimeoutKey,
}

// valueText writes a time as a duration.
func valueText(key string, value any) string {
	if key == "message-ttl" || key == "expires" || key == consumerTimeoutKey {
		return milliseconds(plain(value))
	}
	return plain(value)
}

// effect describes the harm that an entry of the policies does to the queue, "" for none.
func (q ruled) effect(key string, v connection.Version) string {
	switch key {
	case "message-ttl":
		return q.ageEffect()
	case "expires":
		return "the broker deletes the queue, with all messages in it, when it has not been used for that time"
	case "max-length", "max-length-bytes":
		return q.lengthEffect(key)
	case "overflow":
		// With a limit, that is what is at fault.
		if q.atLeastOnce() && q.quorum() && q.policy("overflow") != rejectPublish {
			return "it ends at-least-once dead-lettering: what leaves the queue is moved without a confirm, and may be lost"
		}
	case "delivery-limit":
		return q.returnsEffect()
	case "dead-letter-routing-key":
		switch {
		// The delay exchange reads the number of the wait from the key that a message came with.
		case q.role == workRole && q.atLeastOnce():
			return "every failed attempt waits in the first wait, and none reaches the next one"
		// That key also has the rest of the way through the levels, and the target.
		case q.role == levelRole:
			return "delayed messages that leave the queue do not reach their target, and are stranded"
		}
	case "dead-letter-strategy":
		if !atLeastOnce(v) && q.role != letterRole && q.policy(key) == strategyAtLeastOnce && q.policy("overflow") == rejectPublish {
			return fmt.Sprintf("on broker %s at-least-once dead-lettering comes to a halt under load", v)
		}
	case consumerTimeoutKey:
		return q.timeoutEffect(v, q.number(key))
	case "delayed-retry-type":
		if q.carried() && q.policy(key) != "disabled" {
			return "what a consumer gives back does not return to the head of the queue, and waits longer"
		}
		// Measured on 4.3.6: so does what a killed consumer had.
		if q.role == workRole && q.broker.Arguments["x-single-active-consumer"] == true && q.policy(key) != "disabled" && q.number("delayed-retry-min") > 0 {
			return "what a consumer gives back, or had when it died, does not return to its place, and later messages of its key overtake it"
		}
	}
	return ""
}

const (
	rejectPublish       = "reject-publish"
	strategyAtLeastOnce = "at-least-once"
)

// ageEffect is the effect of a message-ttl: the lower of policy and argument applies.
func (q ruled) ageEffect() string {
	limit, own := q.number("message-ttl"), q.argument("x-message-ttl")
	if q.carried() {
		own = int64(waitOf(q.table()) / time.Millisecond)
	}
	if own > 0 && limit >= own {
		return ""
	}
	switch q.role {
	case workRole:
		return "messages that are not handled within that time go to the dead-letter queue unhandled"
	case letterRole:
		return "the broker deletes dead letters after that time"
	case waitRole:
		after := fmt.Sprintf("messages leave the wait after %s, and not after %s", milliseconds(fmt.Sprint(limit)), milliseconds(fmt.Sprint(own)))
		if q.carried() {
			return after + ", and are sent there again"
		}
		return after
	case levelRole:
		return fmt.Sprintf("delayed messages leave the queue after %s, and not after %s, and come early", milliseconds(fmt.Sprint(limit)), milliseconds(fmt.Sprint(own)))
	}
	return ""
}

// lengthEffect is the effect of a length limit, which is the lower of policy and
// argument too. No queue of ours has one that is ever reached.
func (q ruled) lengthEffect(key string) string {
	if own := q.argument("x-" + key); own > 0 && q.number(key) >= own {
		return ""
	}
	if q.overflow() == rejectPublish || q.overflow() == rejectPublish+"-dlx" {
		switch {
		case q.role == workRole:
			return "when it is full, the queue refuses what is published and what comes back from its waits"
		case q.role == levelRole && q.atLeastOnce():
			return "when it is full, the queue refuses delayed messages, and holds up those that come from queues with a longer TTL"
		case q.role == levelRole:
			return "when it is full, the queue refuses delayed messages, and those that come from queues with a longer TTL are lost"
		}
		return "when it is full, the queue refuses failed messages, which halts the retries"
	}
	switch q.role {
	case workRole:
		return "when it is full, the oldest messages go to the dead-letter queue unhandled"
	case letterRole:
		return "when it is full, the broker deletes the oldest dead letters"
	case waitRole:
		if q.carried() {
			return "when it is full, the oldest messages leave the wait, and are sent there again"
		}
		return "when it is full, the oldest messages leave the wait"
	case levelRole:
		return "when it is full, the oldest delayed messages leave the queue, and come early"
	}
	return ""
}

// returnsEffect is the effect of a delivery-limit: the lower of policy and argument,
// and a limit rather than none.
func (q ruled) returnsEffect() string {
	limit, own := q.number("delivery-limit"), q.argument("x-delivery-limit")
	if !q.quorum() || limit < 0 || own > 0 && limit >= own {
		return ""
	}
	switch {
	case q.role == workRole:
		return "a message whose consumer died that many times is dead-lettered, and rehop expects this to be " + fmt.Sprint(route.DeliveryLimit)
	case q.role == letterRole:
		return "the broker deletes a dead letter that came back unsettled that many times"
	case q.carried():
		return "a message that its consumer gave back that many times leaves the wait, and is sent there again"
	}
	return ""
}

// letterExchangeKey is the entry of a policy that gives a queue dead letters.
const letterExchangeKey = "dead-letter-exchange"

// lossEffect is the effect of a delivery limit on a queue of others that dead-letters to no exchange, "" for
// none, and if its policies are not known. All else that its owner sets is meant, and its consumers rely on nothing of it: they send what
// fails on as copies.
//
// Measured by TestWhatAPolicySets on quorum queues of 3.10, 4.0 and 4.3.
func (q ruled) lossEffect(v connection.Version) string {
	_, byArgument := q.broker.Arguments["x-"+letterExchangeKey]
	_, byPolicy := q.broker.Definition[letterExchangeKey]
	limit, limited := q.deliveryLimit(v)
	if !limited || byArgument || byPolicy || q.broker.Unsure != "" {
		return ""
	}
	return fmt.Sprintf("the broker deletes a message that has come back unsettled more than %d times, because its consumers died or stopped", limit)
}

// deliveryLimit returns how often a message may come back: the lower of argument and policy, and a limit
// rather than none. It returns false if there is no limit.
func (q ruled) deliveryLimit(v connection.Version) (limit int64, limited bool) {
	if !q.quorum() {
		return 0, false
	}
	argument, has := q.broker.Arguments["x-delivery-limit"]
	policy, both := q.broker.Definition["delivery-limit"]
	switch limit, other := integer(argument), integer(policy); {
	case !has && !both:
		return route.DeliveryLimit, v.AtLeast(4, 0) // the broker's own
	case has && (!both || other < 0 || limit >= 0 && limit < other):
		return limit, limit >= 0
	default:
		return other, other >= 0
	}
}

func (q ruled) quorum() bool { return q.broker.Type == string(Quorum) }

// carried reports whether the queue is a wait without a TTL of its own.
func (q ruled) carried() bool { return q.role == waitRole && isCarriedForm(q.table()) }

// atLeastOnce reports whether the queue was declared to dead-letter so. Arguments
// take precedence over policies here.
func (q ruled) atLeastOnce() bool {
	return q.broker.Arguments["x-dead-letter-strategy"] == strategyAtLeastOnce
}

// overflow returns the effective value: for a quorum queue the policy takes precedence,
// for a classic one the argument.
func (q ruled) overflow() string {
	argument, _ := q.broker.Arguments["x-overflow"].(string)
	policy := q.policy("overflow")
	if policy == "" || !q.quorum() && argument != "" {
		return argument
	}
	return policy
}

// consumerTimeoutKey is [consumerTimeoutArgument] in a policy.
const consumerTimeoutKey = "consumer-timeout"

// timeoutEffect is the effect of a timeout in ms, of a policy or an argument, that is shorter than the one that handlers and carriers count on.
//
// Measured with a policy of 5 s. 3.10 refuses such a policy, and 3.10, 4.0 and 4.3 refuse it as an operator policy. On 4.0 it
// counts for both types of queue, and the lower of policy and argument; a timeout that a consumer asks for does not. On quorum
// queues of 4.3 the lower of both counts too, unless the consumer asks for another; classic queues have no timeout at all.
func (q ruled) timeoutEffect(v connection.Version, ms int64) string {
	if q.role != workRole && !q.carried() || !v.AtLeast(3, 12) || v.AtLeast(4, 3) && (q.asks || !q.quorum()) {
		return ""
	}
	limit := time.Duration(ms) * time.Millisecond
	if limit <= 0 || limit >= q.plannedTimeout() {
		return ""
	}
	if q.carried() {
		return fmt.Sprintf("the broker takes messages that wait away from their consumer every %v, and not every %v", limit, q.plannedTimeout())
	}
	return fmt.Sprintf("the broker takes a message away from a handler that has it for %v, and not for %v: it is handled again", limit, q.plannedTimeout())
}

// plannedTimeout is the consumer timeout that the specification counts on: without one that of the broker, unless its configuration has another.
func (q ruled) plannedTimeout() time.Duration { return cmp.Or(q.timeout, brokersConsumerTimeout) }

// brokersConsumerTimeout is that of a queue without one.
const brokersConsumerTimeout = 30 * time.Minute

const operatorPolicy = "operator policy "

// policyOf names the policy that decides an entry. Of two numbers the lower one applies, and else what the operator says.
func (q ruled) policyOf(key string) string {
	user, byUser := q.user.Definition[key]
	operator, byOperator := q.operator.Definition[key]
	switch {
	case byUser && (!byOperator || plain(q.broker.Definition[key]) == plain(user) && plain(user) != plain(operator)):
		return fmt.Sprintf("policy %q", q.user.Name)
	case byOperator:
		return fmt.Sprintf(operatorPolicy+"%q", q.operator.Name)
	}
	return q.policies()
}

// expected says which value of an entry breaks no promise.
func (q ruled) expected(key string) string {
	own := q.argument("x-" + key)
	switch {
	case key == "message-ttl" && q.role == waitRole && q.carried():
		return fmt.Sprintf("no %s below %v", key, waitOf(q.table()))
	case key == "message-ttl" && own > 0:
		return fmt.Sprintf("no %s below %s", key, milliseconds(fmt.Sprint(own)))
	case key == consumerTimeoutKey, key == consumerTimeoutArgument:
		if q.timeout == 0 {
			return fmt.Sprintf("no %s below %v, unless the broker's configuration has less", key, q.plannedTimeout())
		}
		return fmt.Sprintf("no %s below %v", key, q.plannedTimeout())
	case (key == "delivery-limit" || key == "max-length" || key == "max-length-bytes") && own > 0:
		return fmt.Sprintf("no %s below %d", key, own)
	}
	return key + " " + none
}

// policies names the policies that apply.
func (q ruled) policies() string {
	user, operator := fmt.Sprintf("policy %q", q.broker.Policy), fmt.Sprintf(operatorPolicy+"%q", q.broker.OperatorPolicy)
	switch {
	case q.broker.OperatorPolicy == "":
		return user
	case q.broker.Policy == "":
		return operator
	}
	return user + " with " + operator
}

// policy returns an entry that is a text, "" for none.
func (q ruled) policy(key string) string {
	text, _ := q.broker.Definition[key].(string)
	return text
}

func (q ruled) number(key string) int64 { return integer(q.broker.Definition[key]) }

func (q ruled) argument(name string) int64 { return integer(q.broker.Arguments[name]) }

// table returns the arguments as a declaration has them.
func (q ruled) table() amqp.Table {
	args := amqp.Table{}
	for name, v := range q.broker.Arguments {
		if _, ok := v.(json.Number); ok {
			v = integer(v)
		}
		args[name] = v
	}
	return args
}

func integer(v any) int64 {
	n, ok := v.(json.Number)
	if !ok {
		return 0
	}
	i, err := n.Int64()
	if err != nil {
		return 0
	}
	return i
}

// policed returns the queues of a work queue's route that have promises.
func policed(r route.Facts) (queues []ruled) {
	of := workRole
	if r.Existing {
		of = foreignRole
	}
	queues = append(queues, ruled{name: r.Queue, role: of, timeout: r.ConsumerTimeout, asks: r.AsksForTimeout})
	var waits []string
	for _, w := range r.Waits {
		waits = append(waits, w.At.RoutingKey)
	}
	for _, w := range r.Carried {
		waits = append(waits, w.Queue)
	}
	slices.Sort(waits)
	for _, name := range slices.Compact(waits) {
		queues = append(queues, ruled{name: name, role: waitRole})
	}
	queues = append(queues, ruled{name: r.DeadLetter.RoutingKey, role: letterRole})
	for _, d := range r.Delays {
		for _, name := range levelQueues(d) {
			queues = append(queues, ruled{name: name, role: levelRole})
		}
	}
	return queues
}

// policed returns the queues of a plan that have promises.
func (p Plan) policed() (queues []ruled) {
	for _, q := range p.needs {
		if q.role == foreignRole {
			queues = append(queues, ruled{name: q.Name, role: q.role})
		}
	}
	works := map[string]WorkQueue{}
	for _, e := range p.Engines {
		works[e.Queue] = e.work
	}
	for _, q := range p.queues {
		one := ruled{name: q.Name, role: q.role}
		if q.role == workRole {
			one.timeout, one.asks = works[q.Owner].consumerTimeoutOn(p.Version)
		}
		queues = append(queues, one)
	}
	return queues
}
