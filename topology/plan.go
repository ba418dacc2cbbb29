package topology

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/management"
	"github.com/rehop/rehop/internal/route"
)

// Spec is something that can be declared: an [Exchange], a [WorkQueue], [Lanes], [Shards],
// a [DeadLetterQueue] or [Delays], or a pointer to one of them.
type Spec interface {
	validate() error
	addTo(*builder)

	// workQueues returns the work queues that are a part of it.
	workQueues() []WorkQueue

	// whole returns it with all that processes with other versions of it may have
	// declared under the same names.
	whole() Spec
}

// Plan has the steps of Declare, in this order: exchanges, queues, bindings. Declare
// only adds; it deletes and unbinds nothing. A Plan is a value to read, print and
// compare. Changing it changes nothing on the broker.
type Plan struct {
	Version connection.Version // the broker it is for
	Engines []PlannedEngine    // one for each work queue
	Notes   []string           // for a reader of the plan

	specs     []Spec // none is a pointer
	exchanges []plannedExchange
	queues    []plannedQueue
	bindings  []plannedBinding
	needs     []plannedQueue // queues that others declare
	lanes     []string       // owners of exchanges that lead to several work queues
	shards    []Shards
	delays    []plannedDelays
	policies  []route.PolicyFault // promises that policies on the broker break
	warnings  []string            // those of Notes that are more than information
}

// Queues returns the names of the queues of the plan.
func (p Plan) Queues() (names []string) {
	for _, q := range p.queues {
		names = append(names, q.Name)
	}
	return names
}

// Exchanges returns the names of the exchanges of the plan.
func (p Plan) Exchanges() (names []string) {
	for _, e := range p.exchanges {
		names = append(names, e.Name)
	}
	return names
}

// plannedExchange is a durable exchange.
type plannedExchange struct {
	Name, Kind string
	Args       amqp.Table

	// Owner is the work queue or the lanes that this exchange is a part of, or "".
	Owner string
}

// plannedQueue is a durable queue.
type plannedQueue struct {
	Name string
	Args amqp.Table

	// Also lists other arguments that are accepted if the queue exists with
	// them, such as those from before an upgrade of the broker.
	Also []amqp.Table

	// Owner is the work queue that this queue is a part of, or "".
	Owner string

	role       role
	waitNumber int // of a waitRole
}

// role is the purpose of a queue.
type role uint8

const (
	foreignRole role = iota // others declare it
	workRole
	waitRole
	letterRole
	levelRole
)

// plannedBinding is a binding to add. Its destination is Queue or ToExchange,
// whichever is set.
type plannedBinding struct {
	Exchange   string
	RoutingKey string
	Args       amqp.Table
	Queue      string
	ToExchange string

	// Owner is the work queue or the lanes that this binding is a part of, or "".
	Owner string

	users bool // it is one of WorkQueue.Bindings
}

// PlannedEngine is the engine chosen for a work queue, and why.
type PlannedEngine struct {
	Queue  string
	Engine Engine
	Why    string
	Waits  []string // the wait queue of each wait

	work    WorkQueue
	nacks   []bool // for each wait, whether a nack leads there
	carried []route.CarriedWait
}

// NewPlan returns the plan of several specifications together, for a broker of
// version v on which nothing of them exists yet. If the specifications have
// faults, the error names all of them. NewPlan does no I/O. A [DeadLetterQueue] or
// [WorkQueue] among the specifications replaces a dead-letter queue of the same
// name that a work queue implies.
func NewPlan(v connection.Version, specs ...Spec) (Plan, error) {
	return newPlan(v, found{}, specs)
}

// value returns a specification or a source itself where v is a pointer to it, and
// nil for nil and for a nil pointer.
func value[T any](v T) (none T) {
	r := reflect.ValueOf(v)
	switch {
	case !r.IsValid():
		return none
	case r.Kind() != reflect.Pointer:
		return v
	case r.IsNil():
		return none
	}
	return r.Elem().Interface().(T)
}

// found is what exists on a broker and is not as a first declaration would make
// it, but is accepted. Its zero value is that nothing was found.
type found struct {
	vhost  string                      // for the commands of notes and errors; "": "/"
	shown  map[string]management.Queue // by queue: as the management API shows it, with its policies
	queues map[string]existing         // by work queue
	args   map[string]amqp.Table       // by queue: the arguments it has
	taken  map[string]string           // by wait queue: the argument that differs; another queue is used

	// carried are queues without a TTL that are for another wait, by name, with
	// that wait, or 0 if it is not known.
	carried map[string]time.Duration
}

// newPlan returns the plan for the parts that were found.
func newPlan(v connection.Version, have found, specs []Spec) (Plan, error) {
	if len(specs) == 0 {
		return Plan{}, rehop.WithClass(errors.New("topology: nothing to declare: no Exchange, WorkQueue, DeadLetterQueue, Lanes, Shards or Delays given"), rehop.ClassBug)
	}
	var errs []error
	for i, s := range specs {
		if any(value(s)) == nil {
			errs = append(errs, fmt.Errorf("topology: specification %d is nil", i+1))
			continue
		}
		errs = append(errs, s.validate())
	}
	if err := errors.Join(errs...); err != nil {
		return Plan{}, rehop.WithClass(err, rehop.ClassBug)
	}
	b := builder{version: v, have: have, plan: Plan{Version: v}}
	for _, s := range specs {
		b.plan.specs = append(b.plan.specs, value(s))
		s.addTo(&b)
	}
	return b.done()
}

// builder collects the parts of a plan and the contradictions between them.
type builder struct {
	version connection.Version
	have    found
	plan    Plan
	spare   []plannedQueue // implied dead-letter queues, wanted if nobody else declares them
	delays  []Delays
	targets delayTargets // of the delays
	errs    []error
}

// fail notes a fault once: a fault of Lanes is found in each lane.
func (b *builder) fail(err error) {
	if !slices.ContainsFunc(b.errs, func(e error) bool { return e.Error() == err.Error() }) {
		b.errs = append(b.errs, err)
	}
}

func (b *builder) note(name, text string) {
	b.plan.Notes = append(b.plan.Notes, fmt.Sprintf("%s: %s", name, text))
}

func (b *builder) warn(name, text string) { b.plan.warn(name, text) }

// warn adds a note that Declare logs as a warning.
func (p *Plan) warn(name, text string) {
	note := fmt.Sprintf("%s: %s", name, text)
	if !slices.Contains(p.warnings, note) {
		p.Notes, p.warnings = append(p.Notes, note), append(p.warnings, note)
	}
}

func (b *builder) exchange(e plannedExchange) {
	for _, have := range b.plan.exchanges {
		if have.Name != e.Name {
			continue
		}
		if !reflect.DeepEqual(have, e) {
			b.fail(fmt.Errorf("topology: exchange %q is specified twice, as %s and as %s", e.Name, have.Kind, e.Kind))
		}
		return
	}
	b.plan.exchanges = append(b.plan.exchanges, e)
}

func (b *builder) queue(q plannedQueue) {
	if b.planned(q.Name) {
		b.fail(fmt.Errorf("topology: queue %q is specified twice", q.Name))
		return
	}
	if args, ok := b.have.args[q.Name]; ok {
		policies := b.have.shown[q.Name].Definition
		lifted := integer(policies["delivery-limit"]) < 0
		if _, limited := args["x-delivery-limit"]; q.role == letterRole && atLeastOnce(b.version) && !limited && !lifted && args["x-queue-type"] == string(Quorum) {
			b.note(q.Name, "declared on a 3.x broker: a delivery limit of 20 applies; a policy with delivery-limit -1 lifts it")
		}
		if effect, remedy := heldAdvice(b.have.vhost, q.Name, args, policies, b.version); q.role == workRole && effect != "" {
			why := "declared before broker 4.3"
			if own, has := args[disconnectedTimeoutArgument]; has {
				why = fmt.Sprintf("declared with %s %v", disconnectedTimeoutArgument, own)
			}
			b.note(q.Name, why+": "+effect+". "+remedy)
		}
		q.Args, q.Also = args, nil
	}
	b.plan.queues = append(b.plan.queues, q)
}

// look plans a queue that others declare.
func (b *builder) look(q plannedQueue) { b.plan.needs = append(b.plan.needs, q) }

func (b *builder) planned(name string) bool {
	return slices.ContainsFunc(b.plan.queues, func(have plannedQueue) bool { return have.Name == name })
}

func (b *builder) implied(q plannedQueue) { b.spare = append(b.spare, q) }

func (b *builder) bind(list ...plannedBinding) { b.plan.bindings = append(b.plan.bindings, list...) }

func (b *builder) done() (Plan, error) {
	for _, q := range b.spare {
		if !b.planned(q.Name) {
			b.queue(q)
		}
	}
	b.planDelays()
	if err := errors.Join(b.errs...); err != nil {
		return Plan{}, rehop.WithClass(err, rehop.ClassBug)
	}
	return b.plan, nil
}

// String returns the plan as text, one part a line.
func (p Plan) String() string {
	var s strings.Builder
	say := func(format string, of ...any) { // names may have line breaks
		s.WriteString(strings.ReplaceAll(fmt.Sprintf(format, of...), "\n", `\n`) + "\n")
	}
	fmt.Fprintf(&s, "plan for broker %s (queues: %d, exchanges: %d, bindings: %d)\n", p.Version, len(p.queues), len(p.exchanges), len(p.bindings))
	for _, e := range p.Engines {
		say("engine    %s: %s (%s)", e.Queue, e.Engine, e.Why)
	}
	for _, d := range p.delays {
		say("delays    %s", d.describe())
	}
	for _, e := range p.exchanges {
		say("exchange  %s (%s)%s", e.Name, e.Kind, formatTable(e.Args))
	}
	for _, q := range p.queues {
		say("queue     %s%s", q.Name, formatTable(q.Args))
	}
	for _, b := range p.bindings {
		say("bind      %s", b.describe())
	}
	for _, n := range p.Notes {
		say("note      %s", n)
	}
	for _, f := range p.policies {
		say("policy    %s", f)
	}
	return s.String()
}

func (b plannedBinding) describe() string {
	to := b.Queue
	if b.ToExchange != "" {
		to = "exchange " + b.ToExchange
	}
	return fmt.Sprintf("%s --%s%s--> %s", b.Exchange, b.RoutingKey, formatTable(b.Args), to)
}

func formatTable(t amqp.Table) string {
	keys := make([]string, 0, len(t))
	for k := range t {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	var s strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&s, " %s=%v", k, t[k])
	}
	return s.String()
}
