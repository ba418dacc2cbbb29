package topology

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
)

// WorkQueue is a durable queue that handlers read, with the wait queues and
// the dead-letter queue that belong to it. It is a [Spec] to declare and a
// [Source] to consume.
type WorkQueue struct {
	// Name of the queue; 1 to 247 bytes, because the names of its parts
	// derive from it, and not beginning with "amq.".
	Name string

	// Type of the queue and of its wait and dead-letter queues. Defaults to
	// Quorum.
	Type QueueType

	// Bindings that lead messages to the queue. None: it is reached by its
	// name through the default exchange.
	Bindings []Binding

	// Waits between attempts: len(Waits)+1 attempts in all. Empty: one
	// attempt, then the dead-letter queue.
	Waits delay.Schedule

	// Engine that brings a failed attempt to its wait. Defaults to Auto.
	Engine Engine

	// Priority mechanism. Defaults to PriorityNone.
	Priority Priority
}

// DeliveryLimit is the x-delivery-limit of a quorum work queue: how often a
// message may come back unsettled, because its consumer died, before the
// broker moves it to the dead-letter queue. It is the default of broker 4.x,
// set on every version.
const DeliveryLimit = 20

// longestSuffix bounds WorkQueue.Name: the longest name that derives from it
// must still be an AMQP short string.
const longestSuffix = ".wait.16"

// The exchanges of a work queue.
func (w WorkQueue) deadExchange() string   { return w.Name + ".dead" }
func (w WorkQueue) ladderExchange() string { return w.Name + ".ladder" }
func (w WorkQueue) retryExchange() string  { return w.Name + ".retry" }
func (w WorkQueue) restExchange() string   { return w.Name + ".rest" }

// WaitQueue returns the name of the wait queue of a rung, counted from 1. It
// holds the rung and not the duration: a changed wait must meet the old queue
// and fail, not get a second binding beside it.
func (w WorkQueue) WaitQueue(rung int) string { return w.Name + ".wait." + strconv.Itoa(rung) }

// rungKey is the routing key with which a message leaves the wait of a rung.
func (w WorkQueue) rungKey(rung int) string { return w.Name + "@" + strconv.Itoa(rung) }

// DeadLetterQueue returns the queue where this work queue's dead letters end:
// a [Source] for the consumer that looks after them.
func (w WorkQueue) DeadLetterQueue() DeadLetterQueue {
	return DeadLetterQueue{Name: w.Name + ".dlq", Type: w.Type}
}

// Plan returns the plan of this work queue alone for a broker of version v.
// It does no I/O.
func (w WorkQueue) Plan(v connection.Version) (Plan, error) { return NewPlan(v, w) }

func (w WorkQueue) validate() error {
	errs := []error{
		validateName("WorkQueue.Name", w.Name, maxName-len(longestSuffix),
			fmt.Sprintf(" (%d less %q, the longest name derived from it)", maxName, longestSuffix)),
	}
	owner := fmt.Sprintf("WorkQueue %q: ", shorten(w.Name))
	errs = append(errs, w.Type.validate(owner+"Type"))
	for i, b := range w.Bindings {
		errs = append(errs, b.validate(fmt.Sprintf("%sBindings[%d]", owner, i)))
	}
	if err := w.Waits.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("topology: %sWaits: %w", owner, err))
	}
	if w.Engine > Republish {
		errs = append(errs, fmt.Errorf("topology: %sEngine is %d, want topology.Auto, Ladder or Republish", owner, w.Engine))
	}
	if w.Priority > PriorityNative {
		errs = append(errs, fmt.Errorf("topology: %sPriority is %d, want topology.PriorityNone or PriorityNative", owner, w.Priority))
	}
	return errors.Join(errs...)
}

// arguments returns those of the work queue itself: today's form for broker
// v, and the form that a 3.x broker was given.
func (w WorkQueue) arguments(v connection.Version) (today, old amqp.Table) {
	base := amqp.Table{
		"x-queue-type":           string(w.Type.orDefault()),
		"x-dead-letter-exchange": w.deadExchange(),
	}
	if w.Type.orDefault() == Quorum {
		base["x-delivery-limit"] = int64(DeliveryLimit)
	} else if w.Priority == PriorityNative {
		base["x-max-priority"] = int64(MaxPriority)
	}
	return withStrategy(base, w.Type, v)
}

// waitArguments returns those of the wait queue of a rung, likewise.
func (w WorkQueue) waitArguments(rung int, v connection.Version) (today, old amqp.Table) {
	return withStrategy(amqp.Table{
		"x-queue-type":              string(w.Type.orDefault()),
		"x-message-ttl":             w.Waits[rung-1].Milliseconds(),
		"x-dead-letter-exchange":    w.retryExchange(),
		"x-dead-letter-routing-key": w.rungKey(rung),
	}, w.Type, v)
}

// withStrategy adds at-least-once dead-lettering where it is reliable. The
// strategy takes effect only together with reject-publish.
func withStrategy(base amqp.Table, t QueueType, v connection.Version) (today, old amqp.Table) {
	if !atLeastOnce(t, v) {
		return base, nil
	}
	today = cloneTable(base)
	today["x-dead-letter-strategy"] = "at-least-once"
	today["x-overflow"] = "reject-publish"
	return today, base
}

func (w WorkQueue) addTo(b *builder) {
	note, err := planPriority(w, b.version)
	if err != nil {
		b.fail(err)
	} else if note != "" {
		b.note(w.Name, note)
	}
	old := b.firstOld(w)
	engine, why, err := chooseEngine(w, b.version, old)
	if err != nil {
		b.fail(err)
		return
	}
	b.plan.Engines = append(b.plan.Engines, PlannedEngine{Queue: w.Name, Engine: engine, Why: why})
	if old != "" {
		b.note(w.Name, oldFormAdvice(w))
	}
	if !atLeastOnce(w.Type, b.version) {
		b.note(w.Name, "the broker moves what ends its wait without a confirm: if it is killed, messages that have just come back can be lost; a quorum queue on broker 4.0 or later has no such gap")
	}

	alternate := func(name string) amqp.Table { return amqp.Table{"alternate-exchange": name} }
	b.exchange(PlannedExchange{Name: w.restExchange(), Kind: amqp.ExchangeFanout})
	b.exchange(PlannedExchange{Name: w.retryExchange(), Kind: amqp.ExchangeHeaders, Args: alternate(w.restExchange())})
	b.exchange(PlannedExchange{Name: w.ladderExchange(), Kind: amqp.ExchangeDirect, Args: alternate(w.retryExchange())})
	b.exchange(PlannedExchange{Name: w.deadExchange(), Kind: amqp.ExchangeHeaders, Args: alternate(w.restExchange())})

	// The work queue comes first: if others declared it, nothing else is
	// touched. Its user's bindings come last: then all the rest is there.
	today, oldArgs := w.arguments(b.version)
	b.queue(PlannedQueue{Name: w.Name, Args: today, OldArgs: oldArgs, Owner: w.Name})
	for rung := range w.Waits {
		rung++
		today, oldArgs := w.waitArguments(rung, b.version)
		b.queue(PlannedQueue{Name: w.WaitQueue(rung), Args: today, OldArgs: oldArgs, Owner: w.Name})
	}
	b.implied(w.DeadLetterQueue().planned(b.version))

	b.bind(w.wiring(engine)...)
	for _, own := range w.Bindings {
		b.bind(PlannedBinding{Exchange: own.Exchange, Key: own.Key, Args: own.Headers, Queue: w.Name})
	}
}

// firstOld returns the first part of w that decides about the engine and was
// found in its 3.x form, or "".
func (b *builder) firstOld(w WorkQueue) string {
	if b.oldForm[w.Name] {
		return w.Name
	}
	for rung := range w.Waits {
		if name := w.WaitQueue(rung + 1); b.oldForm[name] {
			return name
		}
	}
	return ""
}

// oldFormAdvice is the policy that gives queues declared on a 3.x broker what
// today's form has.
func oldFormAdvice(w WorkQueue) string {
	return fmt.Sprintf(`declared on a 3.x broker: stays on republish. This policy gives its queues at-least-once dead-lettering while they live: `+
		`rabbitmqctl set_policy --apply-to queues %s '^%s(\.wait\.[0-9]+|\.dlq)?$' '{"dead-letter-strategy":"at-least-once","overflow":"reject-publish","delivery-limit":-1}'`,
		strconv.Quote("rehop "+w.Name), regexp.QuoteMeta(w.Name))
}

func cloneTable(t amqp.Table) amqp.Table {
	c := make(amqp.Table, len(t)+2)
	for k, v := range t {
		c[k] = v
	}
	return c
}

// shorten keeps an over-long name out of an error's other lines.
func shorten(name string) string {
	if len(name) > 40 {
		return name[:37] + "..."
	}
	return name
}
