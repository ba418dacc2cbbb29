package topology

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/route"
)

// WorkQueue is a durable queue that handlers read, with the wait queues and
// the dead-letter queue that belong to it. It is a [Spec] to declare and a
// [Source] to consume.
//
// Processes with different versions of one WorkQueue may run, and declare, at
// the same time. The Waits of the process in which an attempt failed then decide
// how long the message waits.
type WorkQueue struct {
	// Name of the queue; 1 to 230 bytes, because the names of its parts
	// derive from it, and not beginning with "amq.".
	Name string

	// Type of the queue. On a broker of 3.x the wait and dead-letter queues have
	// the same type. On 4.0 and later they are quorum queues, because the broker moves
	// messages out of a quorum queue at-least-once. Defaults to Quorum.
	Type QueueType

	// Bindings that lead messages to the queue. Without any, the queue is
	// reached by its name through the default exchange. A binding that is no
	// longer listed here stays on the broker.
	Bindings []Binding

	// Waits between attempts. There are len(Waits)+1 attempts. If Waits is
	// empty, a message that fails goes to the dead-letter queue at once.
	Waits delay.Schedule

	// Engine that brings a failed attempt to its wait and back. Defaults to
	// EngineAuto.
	Engine Engine

	// NativePriority makes the queue honour the priority of messages by the mechanism
	// of its type: 1 is low, 4 is normal, 9 is high. A quorum queue of broker 4.3 or
	// later has strict levels, and so has a classic queue, by x-max-priority. A quorum
	// queue of 4.0 to 4.2 has two classes only (5 to 9 before 1 to 4, two to one) and
	// is refused together with Waits. A quorum queue of 3.x ignores priorities and is
	// refused.
	//
	// If false, there is no order by priority. Every copy keeps the priority of its
	// message all the same, and a quorum queue of broker 4.0 or later still looks at it.
	// On 4.0 to 4.2 a waiting message of priority 5 or more holds back expired messages
	// of lower priority.
	NativePriority bool

	// SingleActiveConsumer makes the broker deliver the queue to one consumer at a
	// time, and to the next one when that consumer has gone. It is an argument of the
	// queue and cannot change while the queue lives. With Existing it says how others
	// have declared the queue.
	//
	// A consumer keeps such a queue in an outage and while it is paused, and at a stop
	// until its handlers have returned. Its prefetch does not follow its handlers. When its
	// connection is lost, the broker delivers to the next consumer at once: the handlers of
	// both run until the old ones obey their ctx. When the broker's node that the active
	// consumer is connected to dies, a quorum queue of broker 4.3 delivers nothing for 5
	// seconds. One that was declared before 4.3 delivers nothing for 60 seconds, and Declare logs
	// the policy that makes it 5.
	SingleActiveConsumer bool

	// ConsumerTimeout is how long a handler may have a message before the broker takes
	// it away; the ctx of the handler ends at four fifths of it. 1 s to 720 h in whole
	// milliseconds, accurate to a minute before broker 4.3; defaults to the broker's own, which is
	// 30 minutes unless its administrator has set another. It is refused with
	// Existing, and on brokers before 3.12, which have one timeout for all queues.
	//
	// On 3.12 to 4.2 it is an argument of the queue. A queue that exists keeps its own
	// timeout, and the broker does not report the difference. On 4.3 consumers ask for
	// it each time they begin to consume. A classic queue of 4.3 has no timeout.
	ConsumerTimeout time.Duration

	// Existing says that others declare the queue. Declare then only makes sure that the
	// queue exists, and adds the waits, the dead-letter queue and the one binding through
	// which messages come back from their waits. The queue's arguments and its other
	// bindings stay as they are. The engine defaults to EngineRepublish, or to
	// EngineCarry on a broker of 3.x. Bindings, NativePriority and EngineNack are refused.
	//
	// So a queue whose dead letters come from a policy is one of these. Its messages need no
	// dead-letter exchange to be retried. A quorum queue needs one for messages that come back too
	// often because their consumers die: 4.0 and later delete them otherwise. The plan has
	// the policy that gives it one, and Verify and Health say when it has none.
	Existing bool

	// letters is the dead-letter queue of a lane or a shard; "": one of its own.
	letters string

	// anyLetters says that the dead-letter queue exists and keeps its form.
	anyLetters bool

	// lane says which lane the queue is; zero: none.
	lane laneOf

	// shards is Shards.Name of a shard; "": it is none.
	shards string
}

// laneOf is a place in Lanes.Lanes.
type laneOf struct {
	lanes string // Lanes.Name
	rest  string // Lanes.restExchange
	index int
}

func (w WorkQueue) ofLanes() bool { return w.lane.lanes != "" }

// lanesAsDeclared returns the steps that find out whether the lanes that w is one of
// are those that were declared; none if it is no lane.
func (w WorkQueue) lanesAsDeclared() []step {
	if !w.ofLanes() {
		return nil
	}
	x := lanesExchange(w.lane.lanes, Lanes{Name: w.lane.lanes}.Exchange(), w.lane.rest)
	declare := declareExchange(x)
	return []step{lookForExchange(x.Name, fmt.Sprintf("declare Lanes %q first", w.lane.lanes)).before(declare), declare}
}

// spec is the kind of the specification that the user wrote, and its name.
func (w WorkQueue) spec() (kind, name string) {
	switch {
	case w.ofLanes():
		return "Lanes", w.lane.lanes
	case w.shards != "":
		return "Shards", w.shards
	}
	return "WorkQueue", w.Name
}

// declareFirst is what to do if a part of w is missing.
func (w WorkQueue) declareFirst() string {
	kind, name := w.spec()
	if kind == "WorkQueue" {
		kind = "work queue"
	}
	return fmt.Sprintf("declare %s %q first", kind, name)
}

// owner begins errors about what all lanes or shards have in common, if w is one, or about w.
func (w WorkQueue) owner() string {
	kind, name := w.spec()
	return fmt.Sprintf("%s %q: ", kind, shorten(name))
}

// nameField begins an error about the name of w, of which a lane has only a part.
func (w WorkQueue) nameField() string {
	if w.shards != "" {
		return w.ownField("Name") + ": a shard's queue"
	}
	if w.ofLanes() {
		return fmt.Sprintf("%s is %q: its queue", w.ownField("Name"), shorten(strings.TrimPrefix(w.Name, w.lane.lanes+".")))
	}
	return w.ownField("Name")
}

// ownField is the field that the user wrote for this lane, or for w.
func (w WorkQueue) ownField(name string) string {
	if w.ofLanes() {
		return fmt.Sprintf("%sLanes[%d].%s", w.owner(), w.lane.index, name)
	}
	return w.owner() + name
}

// DeadLetterQueue returns the queue where this work queue's dead letters end:
// a [Source] for the consumer that looks after them.
func (w WorkQueue) DeadLetterQueue() DeadLetterQueue {
	return DeadLetterQueue{Name: cmp.Or(w.letters, w.Name+".dlq"), Type: w.Type, implied: true}
}

func (w WorkQueue) workQueues() []WorkQueue { return []WorkQueue{w} }

func (w WorkQueue) whole() Spec { return w }

func (w WorkQueue) validate() error {
	errs := []error{
		validateName("WorkQueue.Name", w.Name, maxName-len(longestSuffix),
			fmt.Sprintf(" (%d less %q, the longest name derived from it)", maxName, longestSuffix)),
	}
	owner := w.owner()
	errs = append(errs, w.Type.validate(owner+"Type"))
	for i, b := range w.Bindings {
		errs = append(errs, b.validate(w.ownField(fmt.Sprintf("Bindings[%d]", i))))
	}
	if err := w.Waits.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("topology: %sWaits: %w", owner, err))
	}
	errs = append(errs, w.Engine.validate(owner))
	if w.Existing && len(w.Bindings) > 0 {
		errs = append(errs, fmt.Errorf("topology: %sBindings has %d bindings, want none with Existing: others bind the queue", owner, len(w.Bindings)))
	}
	if w.Existing && w.NativePriority {
		errs = append(errs, fmt.Errorf("topology: %sNativePriority is true, want false with Existing: others declare the queue", owner))
	}
	if w.Existing && w.ConsumerTimeout != 0 {
		errs = append(errs, fmt.Errorf("topology: %sConsumerTimeout is %v, want 0 with Existing: others declare the queue", owner, w.ConsumerTimeout))
	}
	return errors.Join(append(errs, validateConsumerTimeout(owner, w.ConsumerTimeout))...)
}

func (e Engine) validate(owner string) error {
	switch e {
	case EngineAuto, EngineNack, EngineRepublish, EngineCarry:
		return nil
	}
	return fmt.Errorf("topology: %sEngine is %q, want topology.EngineAuto, EngineNack, EngineRepublish or EngineCarry", owner, string(e))
}

// The versions that stand for all with one form of the arguments.
var (
	version3 = connection.Version{Major: 3}
	version4 = connection.Version{Major: 4}
)

// other returns the version whose form of the arguments v does not have.
func other(v connection.Version) connection.Version {
	if atLeastOnce(v) {
		return version3
	}
	return version4
}

// planned returns the work queue itself.
func (w WorkQueue) planned(v connection.Version) plannedQueue {
	q := plannedQueue{Name: w.Name, Args: w.arguments(v), Owner: w.Name, role: workRole}
	if also := w.arguments(other(v)); w.Type.orDefault() == Quorum {
		q.Also = []amqp.Table{also}
	}
	return q
}

// partType is the type of the queues that belong to w.
func (w WorkQueue) partType(v connection.Version) QueueType {
	if atLeastOnce(v) {
		return Quorum
	}
	return w.Type.orDefault()
}

func (w WorkQueue) addTo(b *builder) {
	note, err := planPriority(w, b.version)
	if err != nil {
		b.fail(err)
	} else if note != "" {
		b.note(w.Name, note)
	}
	have := b.have.queues[w.Name]
	if err := planConsumerTimeout(w, b.version); err != nil {
		b.fail(err)
	}
	engine, why, err := engineFor(w, b.version, have)
	if err != nil {
		b.fail(err)
		return
	}
	nacks := engine != EngineCarry && len(w.Waits) > 0 && !have.old &&
		!w.Existing && w.Type.orDefault() == Quorum && atLeastOnce(b.version)

	// The work queue comes first: if others declared it, nothing else is touched.
	if w.Existing {
		b.look(plannedQueue{Name: w.Name, Owner: w.Name})
		w.noteLetters(b)
	} else {
		b.queue(w.planned(b.version))
	}
	planned := PlannedEngine{Queue: w.Name, Engine: engine, Why: why, work: w}
	for i := range w.Waits {
		var q plannedQueue
		nack := false
		if engine == EngineCarry {
			var others []route.CarriedWait
			q, others = w.planCarried(b, i+1)
			planned.carried = append(append(planned.carried, others...), route.CarriedWait{Queue: q.Name, Number: i + 1, For: w.Waits[i]})
		} else {
			q, nack = w.planWait(b, i+1, nacks)
		}
		b.queue(q)
		planned.Waits, planned.nacks = append(planned.Waits, q.Name), append(planned.nacks, nack)
	}
	letters := w.DeadLetterQueue().planned(b.version)
	letters.Owner = w.Name
	if w.anyLetters {
		b.look(letters)
	} else {
		b.implied(letters)
	}
	b.plan.Engines = append(b.plan.Engines, planned)
	w.wiring(b, nacks, planned)
	for i, own := range w.Bindings { // last: then all the rest is there
		bound := plannedBinding{Exchange: own.Exchange, RoutingKey: own.RoutingKey, Args: own.Headers, Queue: w.Name, Owner: w.Name, users: true}
		b.bind(bound)
		b.targets.bindings = append(b.targets.bindings, boundTarget{bound, w.ownField(fmt.Sprintf("Bindings[%d]", i))})
	}
	b.targets.queues = append(b.targets.queues, queueTarget{w.Name, w.nameField()})
	w.noteEngine(b, engine, have)
}

// noteEngine says what is left to do about the engine.
func (w WorkQueue) noteEngine(b *builder, engine Engine, have existing) {
	if len(w.Waits) == 0 {
		return
	}
	wanted, _ := preferred(w, b.version, "")
	again := fmt.Sprintf("to change that, stop the consumers when nothing waits, %s and the same for the other waits, and declare again", deleteQueue(b.have.vhost, route.WaitQueue(w.Name, 1)))
	switch {
	case have.form == timed && wanted == EngineCarry:
		b.note(w.Name, "its wait queues exist with a TTL and go on as they are, by the engine republish; "+again)
	case have.form == carried && wanted != EngineCarry:
		b.note(w.Name, "its wait queues exist without a TTL and go on as they are, by the engine carry; "+again)
	}
	if shown := (ruled{broker: b.have.shown[w.Name]}); have.old && (shown.policy("dead-letter-strategy") != strategyAtLeastOnce || shown.policy("overflow") != rejectPublish) {
		b.note(w.Name, oldFormAdvice(b.have.vhost, w.Name, b.have.args[w.Name], b.version))
	}
	if engine == EngineRepublish && !atLeastOnce(b.version) {
		b.note(w.Name, "the broker moves what ends its wait without a confirm: a restart of the broker can lose messages that wait; the engine carry, and quorum waits on broker 4.0 or later, have no such gap")
	}
}

// noteLetters says which policy gives a queue of others dead letters, unless it is known that there is one,
// or need for none.
func (w WorkQueue) noteLetters(b *builder) {
	shown, known := b.have.shown[w.Name]
	effect := (ruled{broker: shown}).lossEffect(b.version)
	switch {
	case w.Type.orDefault() == Classic, known && effect == "":
		return
	case known:
	case atLeastOnce(b.version):
		effect = fmt.Sprintf("if it is a quorum queue, the broker deletes it when it has come back more than %d times", route.DeliveryLimit)
	default:
		effect = "it comes back for ever, or the broker deletes it if the queue has a delivery limit"
	}
	b.note(w.Name, fmt.Sprintf("others declare it, and a message that fails goes on as a confirmed copy. A message whose consumers die goes to %q "+
		"by a policy alone; without one, and without an argument for dead letters, %s. %s", w.DeadLetterQueue().Name, effect, w.letterAdvice(b.have.vhost, shown, known, b.version)))
}

// oldFormAdvice is the policy that gives queues declared on a 3.x broker what
// today's form has.
func oldFormAdvice(vhost, queue string, args amqp.Table, v connection.Version) string {
	return "declared on a 3.x broker: its messages are never nacked to a wait. This policy gives its queues at-least-once dead-lettering while they live: " +
		lateArguments(vhost, queue, args, v)
}

// shorten keeps an over-long name out of an error's other lines.
func shorten(name string) string {
	if len(name) > 40 {
		return name[:37] + "..."
	}
	return name
}
