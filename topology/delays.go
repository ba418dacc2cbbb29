package topology

import (
	"errors"
	"fmt"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/levels"
)

// Delays declare exact delays: delays of any length, which the broker keeps. A producer
// sets producer.Message.Delay, and a handler returns consumer.RetryAfter. Each queue of
// Delays holds messages for a power of two of Grain, and a message visits the queues
// whose times add up to its delay. A virtual host has one set of these queues for each
// Grain, which all services share.
//
//	err := topology.Declare(ctx, conn, topology.Delays{}, topology.Exchange{Name: "shop"}, orders)
//
// Messages can be delayed to every work queue in the same call of Declare, and to every
// exchange of kind topic, direct or fanout in it. A message that is delayed to an
// exchange reaches the queues that the Bindings of a WorkQueue or of Lanes bind to it,
// in a call that has the exchange and Delays too; other bindings of the exchange do not
// count. A message whose routing key has the word * or # cannot be delayed to a direct
// exchange. [Declare] warns about a binding that delayed messages do not take, and a
// producer refuses a message that would take no other, as far as calls on its Conn tell.
//
// A message whose queue is gone when it is due, or whose exchange leads its key to
// no queue then, goes to the queue of [Delays.Stranded]. Its producer is not told.
//
// On broker 4.0 and later the broker confirms every hop: a crash of the broker
// loses no confirmed message, but may duplicate it. A broker of 3.x moves messages
// unconfirmed, and its restart can lose messages that become due meanwhile.
type Delays struct {
	// Grain is the unit of delays, which are rounded up to whole grains; 10ms to
	// 1s in whole milliseconds. Each Grain has its own queues. Defaults to 1s.
	Grain time.Duration

	// Max is the longest delay. Services may declare different values; the queues of
	// the longest one serve all of them. Defaults to 2^28-1 grains, the longest that is
	// possible: 8.5 years with a grain of 1s, 31 days with 10ms. It takes 28 queues, or 56
	// on 4.0 to 4.2; each halving saves one, or two.
	Max time.Duration

	// Queues are further targets: queues that exist already. A queue with a length
	// limit and overflow reject-publish is refused, because a full one would hold up
	// the messages for all other targets.
	Queues []string
}

func (d Delays) workQueues() []WorkQueue { return nil }

// whole returns the delays with the longest Max: another service may have declared
// more levels, and all of a grain share their exchanges.
func (d Delays) whole() Spec {
	if d.validate() == nil {
		d.Max = 0
	}
	return d
}

// Stranded returns the queue of the messages that no queue took when they were
// due: a [Source] for the consumer that looks after them. The History of each has
// the cause "unroutable", and producer.FromDelivery makes it ready to be published once
// more. If the History has a Queue too, only this queue is to get the message again.
func (d Delays) Stranded() DeadLetterQueue {
	return DeadLetterQueue{Name: levels.Of(d.levels().Grain).Stranded()}
}

// levels returns the arithmetic, with the defaults.
func (d Delays) levels() levels.Levels {
	return levels.Levels{Grain: d.Grain, Max: d.Max}.WithDefaults()
}

func (d Delays) validate() error {
	var errs []error
	if err := d.levels().Validate(); err != nil {
		errs = append(errs, fmt.Errorf("topology: Delays: %w", err))
	}
	for i, q := range d.Queues {
		errs = append(errs, validateTarget(fmt.Sprintf("Delays.Queues[%d]", i), levels.Target{RoutingKey: q}))
	}
	return errors.Join(errs...)
}

// validateTarget checks that a binding key can name a target.
func validateTarget(field string, to levels.Target) error {
	name := to.Exchange
	if name == "" {
		name = to.RoutingKey
	}
	switch limit := maxName - (len(levels.DeliverPattern(to)) - len(name)); {
	case name == "":
		return fmt.Errorf("topology: %s is empty", field)
	case levels.HasWildcard(name):
		return fmt.Errorf("topology: %s is %q: nothing can be delayed to a name with the word * or #", field, name)
	case len(name) > limit:
		return fmt.Errorf("topology: %s is %d bytes long (%.20q...), want at most %d for messages to be delayed to it", field, len(name), name, limit)
	}
	return validateLength(field, name)
}

func (d Delays) addTo(b *builder) { b.delays = append(b.delays, d) }

// delayTargets are the parts of a plan that messages can be delayed to.
type delayTargets struct {
	queues    []queueTarget // work queues
	bindings  []boundTarget // of the user, to work queues
	exchanges []levels.Exchange
	lanes     []lanesTarget
}

// queueTarget is a queue, and how an error about its name begins.
type queueTarget struct{ name, field string }

// boundTarget is a binding, and the field that it was written in.
type boundTarget struct {
	plannedBinding
	field string
}

// lanesTarget is one of Lanes.Bindings.
type lanesTarget struct {
	lanes   Lanes
	binding boundTarget
}

// plannedDelays are the exact delays of a plan, of one grain.
type plannedDelays struct {
	levels.Delays

	// others are the queues among the targets that others declare.
	others []string
}

// planDelays adds the exact delays to the plan, when all else is in it.
func (b *builder) planDelays() {
	byGrain := map[time.Duration]Delays{}
	var grains []time.Duration
	for _, d := range b.delays {
		l := d.levels()
		have, seen := byGrain[l.Grain]
		if !seen {
			grains = append(grains, l.Grain)
		}
		byGrain[l.Grain] = Delays{Grain: l.Grain, Max: max(have.Max, l.Max), Queues: slices.Concat(have.Queues, d.Queues)}
	}
	slices.Sort(grains)
	for _, grain := range grains {
		d := byGrain[grain]
		planned := plannedDelays{Delays: levels.Delays{
			Levels:    d.levels(),
			Confirmed: atLeastOnce(b.version),
			Classes:   b.version.AtLeast(4, 0) && !b.version.AtLeast(4, 3),
		}}
		d.planLevels(b, &planned)
		d.planTargets(b, &planned)
		b.plan.delays = append(b.plan.delays, planned)
	}
}

// planLevels adds the levels with their exchanges and bindings.
func (d Delays) planLevels(b *builder, planned *plannedDelays) {
	names, l := levels.Of(d.Grain), d.levels()
	alternate := amqp.Table{"alternate-exchange": names.Stranded()}
	b.exchange(plannedExchange{Name: names.Stranded(), Kind: amqp.ExchangeFanout})
	b.exchange(plannedExchange{Name: names.Deliver(), Kind: amqp.ExchangeTopic, Args: alternate})
	if !b.planned(names.Stranded()) { // it may be spelt out, with a MaxAge
		b.queue(d.Stranded().planned(b.version))
	}
	b.bind(plannedBinding{Exchange: names.Stranded(), Queue: names.Stranded()})
	var old []string
	for level := range l.Count() {
		next := names.Deliver()
		if level > 0 {
			next = names.Exchange(level - 1)
		}
		b.exchange(plannedExchange{Name: names.Exchange(level), Kind: amqp.ExchangeTopic, Args: alternate})
		for _, high := range []bool{false, true} {
			if high && !planned.Classes {
				continue
			}
			q := levelQueue(names.Queue(level, high), l.Wait(level), next, b.version)
			if args, ok := b.have.args[q.Name]; ok && args["x-dead-letter-strategy"] == nil && atLeastOnce(b.version) {
				old = append(old, q.Name)
			}
			b.queue(q)
			b.bind(plannedBinding{Exchange: names.Exchange(level), RoutingKey: levels.VisitPattern(level, high), Queue: q.Name})
		}
		b.bind(plannedBinding{Exchange: names.Exchange(level), RoutingKey: levels.PassPattern(level), ToExchange: next})
	}
	name := "exact delays of " + d.Grain.String()
	if !atLeastOnce(b.version) {
		b.note(name, fmt.Sprintf("broker %s moves delayed messages from queue to queue and to their target without a confirm: a restart or a crash can lose those that move meanwhile. "+
			"consumer.RetryAfter keeps to the waits of its work queue, which are safe; from 4.0 on these are too", b.version))
	}
	if len(old) > 0 {
		planned.Confirmed = false
		b.note(name, fmt.Sprintf("%d queues of exact delays were declared on a 3.x broker, and messages leave them without a confirm. This policy gives them at-least-once dead-lettering while they live: %s",
			len(old), setPolicy(b.have.vhost, "rehop delays", `^rehop\.delays\.`+d.Grain.String()+`\.[0-9]+$`, `{"dead-letter-strategy":"at-least-once","overflow":"reject-publish"}`)))
	}
}

// levelQueue returns the queue of a level. Nobody consumes it, and all messages in
// it wait equally long, so that none is behind one that is due later.
func levelQueue(name string, wait time.Duration, next string, v connection.Version) plannedQueue {
	form := func(v connection.Version) amqp.Table {
		args := amqp.Table{
			"x-queue-type":           string(Quorum),
			"x-message-ttl":          wait.Milliseconds(),
			"x-dead-letter-exchange": next, // without a key, so that messages keep theirs
		}
		if atLeastOnce(v) {
			addStrategy(args)
		}
		return args
	}
	return plannedQueue{Name: name, Args: form(v), Also: []amqp.Table{form(other(v))}, role: levelRole}
}

// levelQueues returns the names of the queues of all levels.
func levelQueues(d levels.Delays) (queues []string) {
	names := levels.Of(d.Levels.Grain)
	for level := range d.Levels.Count() {
		queues = append(queues, names.Queue(level, false))
		if d.Classes {
			queues = append(queues, names.Queue(level, true))
		}
	}
	return queues
}

// planTargets adds the bindings by which messages reach their targets.
func (d Delays) planTargets(b *builder, planned *plannedDelays) {
	deliver := levels.Of(d.Grain).Deliver()
	kinds := map[string]string{} // of the targets
	for _, x := range b.targets.exchanges {
		if slices.Contains(planned.Exchanges, x) {
			continue
		}
		planned.Exchanges = append(planned.Exchanges, x)
		if why := x.Refuses(""); why != "" {
			b.note(x.Name, why)
		} else if err := validateTarget("Exchange.Name", levels.Target{Exchange: x.Name}); err != nil {
			b.fail(err)
		} else {
			kinds[x.Name] = x.Kind
		}
	}
	queues := slices.Clone(b.targets.queues)
	for _, name := range d.Queues {
		queues = append(queues, queueTarget{name, "Delays.Queues"})
	}
	for _, q := range queues {
		name := q.name
		if slices.Contains(planned.Queues, name) {
			continue
		}
		if err := validateTarget(q.field, levels.Target{RoutingKey: name}); err != nil {
			b.fail(err)
			continue
		}
		planned.Queues = append(planned.Queues, name)
		owner, ours := b.ownerOf(name)
		if !ours {
			planned.others = append(planned.others, name)
		}
		b.bind(plannedBinding{Exchange: deliver, RoutingKey: levels.DeliverPattern(levels.Target{RoutingKey: name}), Queue: name, Owner: owner})
	}
	bindings := slices.Clone(b.targets.bindings)
	var led []string // the lanes that have their exchanges
	for _, t := range b.targets.lanes {
		name, rest := t.lanes.dueExchanges(d.Grain)
		if _, isTarget := kinds[t.binding.Exchange]; isTarget && !slices.Contains(led, name) {
			led = append(led, name)
			t.lanes.addExchanges(b, name, rest, amqp.Table{"alternate-exchange": levels.Of(d.Grain).Stranded()})
		}
		t.binding.ToExchange = name
		bindings = append(bindings, t.binding)
	}
	for _, own := range bindings {
		kind, isTarget := kinds[own.Exchange]
		if !isTarget {
			continue
		}
		if why := (levels.Exchange{Name: own.Exchange, Kind: kind}).Refuses(own.RoutingKey); why != "" {
			b.warn(own.Owner, why)
			continue
		}
		planned.Bound = append(planned.Bound, own.known())
		to := levels.Target{Exchange: own.Exchange, RoutingKey: own.RoutingKey}
		if kind == amqp.ExchangeFanout {
			to.RoutingKey = "#"
		}
		pattern := levels.DeliverPattern(to)
		if len(pattern) > maxName {
			b.fail(fmt.Errorf("topology: %s: Exchange %q and RoutingKey %.20q... are %d bytes too long together for messages to be delayed to them (%d with what is added, want at most %d)",
				own.field, shorten(own.Exchange), own.RoutingKey, len(pattern)-maxName, len(pattern), maxName))
			continue
		}
		b.bind(plannedBinding{Exchange: deliver, RoutingKey: pattern, Queue: own.Queue, ToExchange: own.ToExchange, Owner: own.Owner})
	}
}

// ownerOf returns the owner of a queue, and false for a queue that others declare.
func (b *builder) ownerOf(name string) (owner string, ours bool) {
	for _, q := range b.plan.queues {
		if q.Name == name {
			return q.Owner, true
		}
	}
	for _, q := range b.plan.needs {
		if q.Name == name {
			return q.Owner, false
		}
	}
	return "", false
}

// describe returns the line of a plan.
func (d plannedDelays) describe() string {
	s := fmt.Sprintf("%v to %v, %d hops at most", d.Levels.Grain, d.Levels.Max, d.Levels.Count())
	for _, q := range d.Queues {
		s += ", queue " + q
	}
	for _, x := range d.Exchanges {
		if x.Refuses("") == "" {
			s += ", exchange " + x.Name
		}
	}
	return s
}

// known is a binding of the user as a Conn remembers it.
func (b plannedBinding) known() levels.Binding {
	return levels.Binding{Target: levels.Target{Exchange: b.Exchange, RoutingKey: b.RoutingKey}, To: b.Owner}
}

// seenBindings returns the bindings of the user, which the Conn remembers as it does the
// delays.
func (p Plan) seenBindings() (list []levels.Binding) {
	for _, b := range p.bindings {
		if b.users {
			list = append(list, b.known())
		}
	}
	return list
}

// warnOfApart adds a warning for each binding that delayed messages do not take, and
// that this plan has, or whose exchange and delays it has.
func (p *Plan) warnOfApart(list []levels.Delays) {
	own := p.seenBindings()
	for _, d := range list {
		for _, b := range d.Apart {
			here := slices.ContainsFunc(p.delays, func(planned plannedDelays) bool {
				return planned.Levels.Grain == d.Levels.Grain && slices.ContainsFunc(planned.Exchanges, func(x levels.Exchange) bool { return x.Name == b.Exchange })
			})
			if here || slices.Contains(own, b) {
				p.warn(b.To, fmt.Sprintf("messages that are delayed to exchange %q with key %q, by the grain %v, do not reach it: declare it, topology.Exchange{Name: %q} and the topology.Delays in one call",
					b.Exchange, b.RoutingKey, d.Levels.Grain, b.Exchange))
			}
		}
	}
}

// seenDelays returns the delays of the plan, which the Conn remembers once they are
// declared.
func (p Plan) seenDelays() (list []levels.Delays) {
	for _, d := range p.delays {
		list = append(list, d.Delays)
	}
	return list
}
