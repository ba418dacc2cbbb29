package topology

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strconv"
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
	// the same type. On 4.0 and later they are quorum queues, out of which the
	// broker moves messages at-least-once. Defaults to Quorum.
	Type QueueType

	// Bindings that lead messages to the queue. Without any, the queue is
	// reached by its name through the default exchange. A binding that is no
	// longer listed here stays on the broker.
	Bindings []Binding

	// Waits between attempts, of which there are len(Waits)+1. If Waits is
	// empty, a message that fails goes to the dead-letter queue at once.
	Waits delay.Schedule

	// Engine that brings a failed attempt to its wait and back. Defaults to
	// Auto.
	Engine Engine

	// Priority mechanism. Defaults to PriorityNone.
	Priority Priority

	// Existing says that others declare the queue. Declare then only makes sure
	// that the queue exists, and adds the waits, the dead-letter queue and the
	// one binding by which they lead back to it. The queue's arguments and its
	// other bindings stay as they are. The engine is Republish, or Carry on a
	// broker of 3.x. Bindings, Priority and Engine Ladder are refused.
	Existing bool

	// letters is the dead-letter queue of the lane that this is; "": one of its own.
	letters string

	// lane is the lane that this is; zero: none.
	lane laneOf
}

// laneOf is a place in Lanes.Lanes.
type laneOf struct {
	lanes string // Lanes.Name
	index int
}

func (w WorkQueue) ofLanes() bool { return w.lane.lanes != "" }

// owner begins errors about what all lanes share, if w is a lane, or about w.
func (w WorkQueue) owner() string {
	if w.ofLanes() {
		return fmt.Sprintf("Lanes %q: ", shorten(w.lane.lanes))
	}
	return fmt.Sprintf("WorkQueue %q: ", shorten(w.Name))
}

// nameField begins an error about the name of w, of which a lane has only a part.
func (w WorkQueue) nameField() string {
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

// DeliveryLimit is the x-delivery-limit of a quorum work queue: how often a
// message may come back unsettled, because its consumer died, before the
// broker moves it to the dead-letter queue. It is the default of broker 4.x,
// set on every version.
const DeliveryLimit = 20

// carryDeliveryLimit is the x-delivery-limit of the quorum wait queues of
// engine Carry: never reached. With a limit, what is given back returns to the
// head of the queue on every version; without one it goes to the tail up to 4.2,
// and 4.0 and later would drop it after 20 returns.
const carryDeliveryLimit = 1_000_000_000

// carriedLength and the milliseconds of a carried wait are the x-max-length of its
// queue: never reached, it has the broker refuse a declaration for another wait.
const carriedLength = 1_000_000_000_000

// waitOf returns the wait of the messages in a carried wait queue with these
// arguments, or 0 if they do not tell.
func waitOf(args amqp.Table) time.Duration {
	n, _ := args["x-max-length"].(int64)
	if n <= carriedLength || n > carriedLength+maxTTL.Milliseconds() {
		return 0
	}
	return time.Duration(n-carriedLength) * time.Millisecond
}

// longestSuffix bounds WorkQueue.Name: the longest name that derives from it
// must still be an AMQP short string.
const longestSuffix = ".wait.16.87599h59m59.999s"

// WaitQueue returns the name of the wait queue of a rung, counted from 1. The
// queue keeps the wait with which it was declared first. A process that has
// another wait in that rung uses a queue of its own, which [DeclarePlan] names.
func (w WorkQueue) WaitQueue(rung int) string { return route.WaitQueue(w.Name, rung) }

// otherWaitQueue returns the name of the queue that is used beside WaitQueue(rung)
// if that one has another wait or form.
func (w WorkQueue) otherWaitQueue(rung int) string {
	return w.WaitQueue(rung) + "." + briefly(w.Waits[rung-1])
}

// briefly writes a wait without the zeros of its smaller units: 3m, not 3m0s.
func briefly(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// DeadLetterQueue returns the queue where this work queue's dead letters end:
// a [Source] for the consumer that looks after them.
func (w WorkQueue) DeadLetterQueue() DeadLetterQueue {
	return DeadLetterQueue{Name: cmp.Or(w.letters, w.Name+".dlq"), Type: w.Type, implied: true}
}

// Plan returns the plan of this work queue alone for a broker of version v,
// where nothing of it exists yet. It does no I/O.
func (w WorkQueue) Plan(v connection.Version) (Plan, error) { return NewPlan(v, w) }

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
	if w.Engine > Carry {
		errs = append(errs, engineFault(owner, w.Engine))
	}
	if w.Priority > PriorityNative {
		errs = append(errs, fmt.Errorf("topology: %sPriority is %d, want topology.PriorityNone or PriorityNative", owner, w.Priority))
	}
	if w.Existing && len(w.Bindings) > 0 {
		errs = append(errs, fmt.Errorf("topology: %sBindings has %d bindings, want none with Existing: others bind the queue", owner, len(w.Bindings)))
	}
	if w.Existing && w.Priority != PriorityNone {
		errs = append(errs, fmt.Errorf("topology: %sPriority is %d, want topology.PriorityNone with Existing: others declare the queue", owner, w.Priority))
	}
	return errors.Join(errs...)
}

func engineFault(owner string, e Engine) error {
	return fmt.Errorf("topology: %sEngine is %d, want topology.Auto, Ladder, Republish or Carry", owner, e)
}

// arguments returns those of the work queue itself on a broker of version v.
func (w WorkQueue) arguments(v connection.Version) amqp.Table {
	args := amqp.Table{
		"x-queue-type":           string(w.Type.orDefault()),
		"x-dead-letter-exchange": w.deadExchange(),
	}
	switch {
	case w.Type.orDefault() == Quorum:
		args["x-delivery-limit"] = int64(DeliveryLimit)
		if atLeastOnce(v) {
			addStrategy(args)
		}
	case w.Priority == PriorityNative:
		args["x-max-priority"] = int64(MaxPriority)
	}
	return args
}

// addStrategy makes the dead-lettering at-least-once, which takes effect only
// together with reject-publish.
func addStrategy(args amqp.Table) {
	args["x-dead-letter-strategy"] = "at-least-once"
	args["x-overflow"] = "reject-publish"
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
func (w WorkQueue) planned(v connection.Version) PlannedQueue {
	q := PlannedQueue{Name: w.Name, Args: w.arguments(v), Owner: w.Name, role: workRole}
	if also := w.arguments(other(v)); w.Type.orDefault() == Quorum {
		q.Also = []amqp.Table{also}
	}
	return q
}

// timedWait returns a queue with a TTL, for the wait of a rung.
func (w WorkQueue) timedWait(name string, rung int, v connection.Version) PlannedQueue {
	form := func(v connection.Version) amqp.Table {
		args := amqp.Table{
			"x-queue-type":              string(w.partType(v)),
			"x-message-ttl":             w.Waits[rung-1].Milliseconds(),
			"x-dead-letter-exchange":    w.retryExchange(),
			"x-dead-letter-routing-key": w.rungKey(rung),
		}
		if atLeastOnce(v) {
			addStrategy(args)
		}
		return args
	}
	q := PlannedQueue{Name: name, Args: form(v), Owner: w.Name, role: waitRole, rung: rung}
	if !atLeastOnce(v) || name != w.WaitQueue(rung) {
		// A broker of 3.x beside nodes of 4.0; or what was declared before an upgrade.
		q.Also = []amqp.Table{form(other(v))}
	}
	return q
}

// carriedWait returns a queue without a TTL, for the wait of a rung. One process
// at a time consumes it, and holds the messages that are due first. Its dead
// letters go where its messages go: a policy that ends waits, by a TTL say, loses
// none, and the consumers see that they come early.
func (w WorkQueue) carriedWait(name string, rung int, v connection.Version) PlannedQueue {
	form := func(t QueueType) amqp.Table {
		args := amqp.Table{
			"x-queue-type":              string(t),
			"x-single-active-consumer":  true,
			"x-max-length":              carriedLength + w.Waits[rung-1].Milliseconds(),
			"x-dead-letter-exchange":    w.retryExchange(),
			"x-dead-letter-routing-key": w.rungKey(rung),
		}
		if t == Quorum {
			args["x-delivery-limit"] = int64(carryDeliveryLimit)
		}
		return args
	}
	mine, others := Quorum, Classic
	if w.partType(v) == Classic || mixedPriorities(w, v) {
		mine, others = Classic, Quorum
	}
	return PlannedQueue{Name: name, Args: form(mine), Also: []amqp.Table{form(others)}, Owner: w.Name, role: waitRole, rung: rung}
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
	engine, why, err := engineFor(w, b.version, have)
	if err != nil {
		b.fail(err)
		return
	}
	climbs := engine != Carry && len(w.Waits) > 0 && !have.old &&
		!w.Existing && w.Type.orDefault() == Quorum && atLeastOnce(b.version)

	// The work queue comes first: if others declared it, nothing else is touched.
	if w.Existing {
		b.look(PlannedQueue{Name: w.Name, Owner: w.Name})
	} else {
		b.queue(w.planned(b.version))
	}
	var rungs []route.Rung
	var carry []route.Wait
	for i := range w.Waits {
		var q PlannedQueue
		nack := false
		if engine == Carry {
			var others []route.Wait
			q, others = w.planCarried(b, i+1)
			carry = append(append(carry, others...), route.Wait{Queue: q.Name, Rung: i + 1, For: w.Waits[i]})
		} else {
			q, nack = w.planWait(b, i+1, climbs)
		}
		b.queue(q)
		rungs = append(rungs, route.Rung{Queue: q.Name, Nack: nack})
	}
	letters := w.DeadLetterQueue().planned(b.version)
	letters.Owner = w.Name
	b.implied(letters)
	b.plan.Engines = append(b.plan.Engines, PlannedEngine{Queue: w.Name, Engine: engine, Why: why, rungs: rungs, carry: carry})
	for _, e := range w.exchanges(climbs) {
		b.exchange(e)
	}
	b.bind(w.wiring(climbs, rungs)...)
	for i, own := range w.Bindings { // last: then all the rest is there
		planned := PlannedBinding{Exchange: own.Exchange, Key: own.Key, Args: own.Headers, Queue: w.Name, Owner: w.Name, users: true}
		b.bind(planned)
		b.targets.bindings = append(b.targets.bindings, boundTarget{planned, w.ownField(fmt.Sprintf("Bindings[%d]", i))})
	}
	b.targets.queues = append(b.targets.queues, queueTarget{w.Name, w.nameField()})
	w.noteEngine(b, engine, have)
}

// planCarried returns the queue for the carried wait of a rung: the first that is
// not known to be for another wait, and those that are.
func (w WorkQueue) planCarried(b *builder, rung int) (q PlannedQueue, others []route.Wait) {
	for nth := 1; ; nth++ {
		name := route.CarriedQueue(w.Name, rung, nth)
		wait, taken := b.have.carried[name]
		if !taken {
			if nth > 1 {
				b.note(w.Name, fmt.Sprintf("wait %d is %v, and queue %q is for another one: failed attempts go to %q. The consumers carry both",
					rung, w.Waits[rung-1], w.WaitQueue(rung), name))
			}
			return w.carriedWait(name, rung, b.version), others
		}
		others = append(others, route.Wait{Queue: name, Rung: rung, For: wait})
	}
}

// planWait returns the queue with a TTL for the wait of a rung, and whether a
// nack leads there.
func (w WorkQueue) planWait(b *builder, rung int, climbs bool) (q PlannedQueue, nack bool) {
	name := w.WaitQueue(rung)
	differs, taken := b.have.taken[name]
	if !taken {
		return w.timedWait(name, rung, b.version), climbs
	}
	instead := w.otherWaitQueue(rung)
	b.note(w.Name, fmt.Sprintf("wait %d is %v, and queue %q exists with other arguments (%s): failed attempts go to %q as confirmed copies. "+
		"Once no process has the earlier schedule and %q is empty, rabbitmqctl delete_queue %s lets the next declaration use that name again",
		rung, w.Waits[rung-1], name, differs, instead, name, strconv.Quote(name)))
	return w.timedWait(instead, rung, b.version), false
}

// noteEngine says what is left to do about the engine.
func (w WorkQueue) noteEngine(b *builder, engine Engine, have existing) {
	if len(w.Waits) == 0 {
		return
	}
	wanted, _ := preferred(w, b.version, "")
	again := fmt.Sprintf("to change that, stop the consumers when nothing waits, rabbitmqctl delete_queue %s and the same for the other waits, and declare again", strconv.Quote(w.WaitQueue(1)))
	switch {
	case have.form == timed && wanted == Carry:
		b.note(w.Name, "its wait queues exist with a TTL and go on as they are, by the engine republish; "+again)
	case have.form == carried && wanted != Carry:
		b.note(w.Name, "its wait queues exist without a TTL and go on as they are, by the engine carry; "+again)
	}
	if have.old {
		b.note(w.Name, oldFormAdvice(w))
	}
	if engine == Republish && !atLeastOnce(b.version) {
		b.note(w.Name, "the broker moves what ends its wait without a confirm: a restart of the broker can lose messages that wait; the engine carry, and quorum waits on broker 4.0 or later, have no such gap")
	}
}

// oldFormAdvice is the policy that gives queues declared on a 3.x broker what
// today's form has.
func oldFormAdvice(w WorkQueue) string {
	return fmt.Sprintf(`declared on a 3.x broker: does without the ladder. This policy gives its queues at-least-once dead-lettering while they live: `+
		`rabbitmqctl set_policy --apply-to queues %s '^%s(\.wait\.[0-9]+|\.dlq)?$' '{"dead-letter-strategy":"at-least-once","overflow":"reject-publish","delivery-limit":-1}'`,
		strconv.Quote("rehop "+w.Name), regexp.QuoteMeta(w.Name))
}

func cloneTable(t amqp.Table) amqp.Table { return maps.Clone(t) }

// shorten keeps an over-long name out of an error's other lines.
func shorten(name string) string {
	if len(name) > 40 {
		return name[:37] + "..."
	}
	return name
}
