package topology

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/header"
)

// Lanes is a work queue in several classes: a [WorkQueue] for each class. One consumer
// reads them all. A message of a higher lane goes ahead of messages that wait in a
// lower one, on every version of the broker and both types of queue. It is a [Spec] to
// declare and a [Source] to consume.
//
//	sms := topology.Lanes{
//		Name:     "sms",
//		Lanes:    []topology.Lane{{Name: "vip"}, {Name: "normal"}, {Name: "bulk"}},
//		Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}},
//		Waits:    delay.Default(),
//	}
//
// A message reaches a lane in one of three ways: by its priority, through
// [Lanes.Exchange] or an exchange of Bindings; by the lane's own Bindings; or by the name
// of the lane's queue, which is "sms.vip" here. It stays in its lane when it waits,
// comes back and becomes a dead letter.
//
// While a lane handles messages of which consumers may have died, the consumer begins with none of the other
// lanes, the higher ones included, see consumer.Config.KeyLimit.
type Lanes struct {
	// Name of the whole; 1 to 223 bytes, and not "amq". The queue of a lane is named
	// Name + "." + Lane.Name, and that name is bounded as WorkQueue.Name is.
	Name string

	// Lanes, the highest first. 2 to 9.
	Lanes []Lane

	// Bindings that lead messages to the lane of their priority. Without any,
	// such messages are published to [Lanes.Exchange].
	Bindings []Binding

	// Type, Waits, Engine, SingleActiveConsumer and ConsumerTimeout of the work queue of
	// every lane, see [WorkQueue]. With SingleActiveConsumer each lane has an active
	// consumer of its own, which may be in another process.
	Type                 QueueType
	Waits                delay.Schedule
	Engine               Engine
	SingleActiveConsumer bool
	ConsumerTimeout      time.Duration

	// OneDeadLetterQueue says that the dead letters of all lanes end in one queue,
	// Name + ".dlq". Otherwise every lane has a dead-letter queue of its own. Declare
	// refuses a change of this field, as it refuses a change of the Lanes, because
	// each dead letter of the broker would be in both queues.
	OneDeadLetterQueue bool
}

// Lane is one class of [Lanes].
type Lane struct {
	// Name within the Lanes, such as "vip".
	Name string

	// Bindings that lead messages of any priority to this lane. A message that
	// also comes through Lanes.Bindings is in the Lanes twice.
	Bindings []Binding

	// Share is the lane's part of all messages that are handled: with shares 6, 3 and 1
	// a full lane of share 6 has six messages in ten. The part that a lane does not use
	// goes to the other lanes, in proportion, and no lane starves. 1 to 1,000 in every
	// lane, or 0 in every lane.
	//
	// 0 means strict: a message is handled only when no higher lane has one. A lane
	// starves as long as messages arrive in the higher ones as fast as they are
	// handled. On quorum queues before 4.3 a message that a consumer was sent ahead
	// becomes a dead letter if its lane starves for about eleven hours: the broker takes
	// the message back at each consumer timeout, which is 30 minutes by default, and
	// each time counts towards the delivery limit of 20.
	Share int
}

const (
	minLanes = 2
	maxLanes = header.MaxPriority
	maxShare = 1000
)

// Exchange returns the name of the exchange that leads a message to the lane of
// its priority, with any routing key: Name + ".lanes". The exchange looks at
// the header x-rehop-priority, which package producer sets from Message.Priority,
// because no exchange can look at the property. A message without the header goes
// to the lane of priority 4, which is normal.
//
// Messages with a Delay cannot be published to it, because it is of kind headers.
// Publish them to an exchange of Lanes.Bindings that is declared in one call with
// the Lanes and [Delays], or to the queue of a lane by its name.
func (l Lanes) Exchange() string { return l.Name + lanesSuffix }

const lanesSuffix = ".lanes"

// What follows in the names of the other exchanges of lanes.
const (
	restSuffix = ".unrouted."
	dueSuffix  = ".due."
)

// restExchange takes messages without a priority. Other lanes give it another name, and so
// does another place for the dead letters: the broker then refuses to
// declare Exchange again, which has the bindings of these.
func (l Lanes) restExchange() string {
	h := fnv.New32a()
	for _, lane := range l.Lanes {
		_, _ = h.Write([]byte(lane.Name + "\x00")) // never fails
	}
	if l.OneDeadLetterQueue {
		_, _ = h.Write([]byte("one dead-letter queue"))
	}
	return fmt.Sprintf("%s%s%08x", l.Exchange(), restSuffix, h.Sum32())
}

// WorkQueues returns the work queue of each lane, the highest first. Use one to consume
// one lane alone, or its dead letters, or to publish to a lane by the name of its
// queue. Declare the Lanes and not their work queues.
func (l Lanes) WorkQueues() []WorkQueue {
	list := make([]WorkQueue, len(l.Lanes))
	for i, lane := range l.Lanes {
		list[i] = WorkQueue{
			Name: l.Name + "." + lane.Name, Type: l.Type, Bindings: lane.Bindings, Waits: l.Waits, Engine: l.Engine,
			SingleActiveConsumer: l.SingleActiveConsumer, ConsumerTimeout: l.ConsumerTimeout,
			lane: laneOf{l.Name, l.restExchange(), i},
		}
		if l.OneDeadLetterQueue {
			list[i].letters = l.Name + ".dlq"
		}
	}
	return list
}

// strict reports whether the lanes are consumed strictly, and not by shares.
func (l Lanes) strict() bool {
	return !slices.ContainsFunc(l.Lanes, func(lane Lane) bool { return lane.Share > 0 })
}

func (l Lanes) workQueues() []WorkQueue { return l.WorkQueues() }

func (l Lanes) whole() Spec { return l }

func (l Lanes) validate() error {
	var errs []error
	owner := fmt.Sprintf("Lanes %q: ", shorten(l.Name))
	errs = append(errs, validateName("Lanes.Name", l.Name, maxName-len(".lanes.due.999.999999ms.unrouted"), ""))
	if n := len(l.Lanes); n < minLanes || n > maxLanes {
		errs = append(errs, fmt.Errorf("topology: %sLanes.Lanes has length %d, want %d to %d", owner, n, minLanes, maxLanes))
	}
	if l.Name == "amq" {
		errs = append(errs, errors.New(`topology: Lanes.Name is "amq", want another one: its lanes would have queues whose names begin with "amq.", and those belong to the broker`))
	}
	first := map[string]int{}
	for i, lane := range l.Lanes {
		errs = append(errs, l.validateName(owner, i))
		if j, taken := first[lane.Name]; taken && lane.Name != "" {
			errs = append(errs, fmt.Errorf("topology: %sLanes[%d].Name is %q, want another one: Lanes[%d] has it", owner, i, lane.Name, j))
		} else {
			first[lane.Name] = i
		}
		for j, b := range lane.Bindings {
			errs = append(errs, b.validate(fmt.Sprintf("%sLanes[%d].Bindings[%d]", owner, i, j)))
		}
		switch {
		case lane.Share < 0 || lane.Share > maxShare:
			errs = append(errs, fmt.Errorf("topology: %sLanes[%d].Share is %d, want 1 to %d, or 0 in every lane", owner, i, lane.Share, maxShare))
		case lane.Share == 0 && !l.strict():
			errs = append(errs, fmt.Errorf("topology: %sLanes[%d].Share is 0 and that of another lane is not, want 1 to %d in every lane, or 0 in every lane", owner, i, maxShare))
		}
	}
	for i, b := range l.Bindings {
		errs = append(errs, b.validate(fmt.Sprintf("%sBindings[%d]", owner, i)))
	}
	errs = append(errs, l.Type.validate(owner+"Type"))
	if err := l.Waits.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("topology: %sWaits: %w", owner, err))
	}
	errs = append(errs, l.Engine.validate(owner))
	return errors.Join(append(errs, validateConsumerTimeout(owner, l.ConsumerTimeout))...)
}

// validateName checks the name of a lane, which is a part of its queue's name.
func (l Lanes) validateName(owner string, i int) error {
	name := l.Lanes[i].Name
	prefix := l.Name + "."
	longest := maxName - len(longestSuffix) - len(prefix)
	switch {
	case name == "":
		return fmt.Errorf("topology: %sLanes[%d].Name is empty", owner, i)
	case name == "dlq" && l.OneDeadLetterQueue:
		return fmt.Errorf("topology: %sLanes[%d].Name is %q, want another one: %q is the dead-letter queue of all lanes", owner, i, name, prefix+name)
	case len(name) > longest && longest > 0: // or Lanes.Name alone is too long
		return fmt.Errorf("topology: %sLanes[%d].Name is %d bytes long (%.20q...), want at most %d (%d less %q before it, and %q, the longest that is added to it)",
			owner, i, len(name), name, longest, maxName, shorten(l.Name)+".", longestSuffix)
	case !utf8.ValidString(name):
		return fmt.Errorf("topology: %sLanes[%d].Name is %q, which is not valid UTF-8", owner, i, name)
	}
	return nil
}

func (l Lanes) addTo(b *builder) {
	b.plan.lanes = append(b.plan.lanes, l.Name)
	for _, w := range l.WorkQueues() {
		w.addTo(b)
	}
	l.addExchanges(b, l.Exchange(), l.restExchange(), nil)
	for i, own := range l.Bindings { // last: then all the rest is there
		planned := plannedBinding{Exchange: own.Exchange, RoutingKey: own.RoutingKey, Args: own.Headers, ToExchange: l.Exchange(), Owner: l.Name, users: true}
		b.bind(planned)
		b.targets.lanes = append(b.targets.lanes, lanesTarget{l, boundTarget{planned, fmt.Sprintf("Lanes %q: Bindings[%d]", shorten(l.Name), i)}})
	}
	b.note(l.Name, "lanes, highest first: "+l.describe())
}

// addExchanges adds an exchange that leads messages to the lane of their priority,
// and one for those that have none.
func (l Lanes) addExchanges(b *builder, name, rest string, restArgs amqp.Table) {
	b.exchange(plannedExchange{Name: rest, Kind: amqp.ExchangeFanout, Owner: l.Name, Args: restArgs})
	b.exchange(lanesExchange(l.Name, name, rest))
	queues, of := l.WorkQueues(), lanesOf(len(l.Lanes))
	b.bind(plannedBinding{Exchange: rest, Queue: queues[of[normalPriority-1]].Name, Owner: l.Name})
	for p := header.MaxPriority; p >= 1; p-- {
		b.bind(plannedBinding{Exchange: name, Queue: queues[of[p-1]].Name, Owner: l.Name,
			Args: amqp.Table{"x-match": "any-with-x", header.Priority: int64(p)}})
	}
}

// lanesExchange returns an exchange that leads messages to the lane of their priority,
// as far as its own arguments say. They tell which lanes these are.
func lanesExchange(owner, name, rest string) plannedExchange {
	return plannedExchange{Name: name, Kind: amqp.ExchangeHeaders, Owner: owner, Args: amqp.Table{"alternate-exchange": rest}}
}

// dueExchanges returns the names of the exchanges that lead what was delayed to its
// lane, and of those the one for what has no priority, whose alternate exchange
// leads to the stranded queue: what goes from exchange to exchange counts as routed
// even where the last one has no queue.
func (l Lanes) dueExchanges(grain time.Duration) (name, rest string) {
	name = fmt.Sprintf("%s%s%v", l.Exchange(), dueSuffix, grain)
	return name, name + ".unrouted"
}

// describe says which lane a priority leads to, and how the lanes are consumed.
func (l Lanes) describe() string {
	of := lanesOf(len(l.Lanes))
	var parts []string
	for i, w := range l.WorkQueues() {
		low := slices.Index(of[:], i) + 1
		high := low
		for high < header.MaxPriority && of[high] == i {
			high++
		}
		about := fmt.Sprintf("priority %d", low)
		if high > low {
			about += fmt.Sprintf(" to %d", high)
		}
		if i == of[normalPriority-1] {
			about += " and none"
		}
		if !l.strict() {
			about += fmt.Sprintf(", share %d", l.Lanes[i].Share)
		}
		parts = append(parts, fmt.Sprintf("%s (%s)", w.Name, about))
	}
	how := "by shares"
	if l.strict() {
		how = "strictly: a lane starves as long as the higher ones are not empty"
	}
	return strings.Join(parts, ", ") + "; consumed " + how
}

// normalPriority is what a message without a priority counts as.
const normalPriority = 4

// lanesOf returns the lane, counted from 0, of each priority, counted from 1, for n
// lanes. The five priorities above normal are dealt to the upper lanes and the other
// four to the lower lanes, so that no lane has both: a quorum queue of broker 4.0 to
// 4.2 holds back a message of the one kind behind a waiting one of the other.
func lanesOf(n int) (lanes [header.MaxPriority]int) {
	const above = header.MaxPriority - normalPriority
	upper := max(n/2, n-normalPriority)
	deal := func(highest, count, first, lanesThere int) {
		for i := range count {
			lanes[highest-1-i] = first + i*lanesThere/count
		}
	}
	deal(header.MaxPriority, above, 0, upper)
	deal(normalPriority, normalPriority, upper, n-upper)
	return lanes
}

// workQueues returns the work queues among the specifications, those of lanes
// included.
func workQueues(specs []Spec) (all []WorkQueue) {
	for _, s := range specs {
		all = append(all, s.workQueues()...)
	}
	return all
}
