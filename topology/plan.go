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

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/route"
)

// Spec is something that can be declared: an [Exchange], a [WorkQueue], [Lanes], a
// [DeadLetterQueue] or [Delays]. No other type implements it.
type Spec interface {
	// Plan returns what declaring this alone would do on a broker of version
	// v, or an error that names every fault of the specification. It does no
	// I/O.
	Plan(v connection.Version) (Plan, error)

	validate() error
	addTo(*builder)
}

// Plan is what Declare does, in this order: exchanges, queues, bindings. Declare
// only adds; it deletes and unbinds nothing. A Plan is a value to read, print and
// compare. Changing it changes nothing on the broker.
type Plan struct {
	Version   connection.Version // the broker it is for
	Exchanges []PlannedExchange
	Queues    []PlannedQueue
	Bindings  []PlannedBinding
	Engines   []PlannedEngine // one for each work queue
	Notes     []string        // what a reader of the plan should know

	// Policies are what policies on the broker break. Only [DeclarePlan] asks for
	// them, and only with connection.Config.ManagementURL.
	Policies []PolicyFault

	needs  []PlannedQueue // queues that others declare
	lanes  []string       // owners of what leads to several work queues
	delays []plannedDelays
}

// PlannedExchange is a durable exchange.
type PlannedExchange struct {
	Name, Kind string
	Args       amqp.Table

	// Owner is the work queue or the lanes that this exchange is a part of, or "".
	Owner string
}

// PlannedQueue is a durable queue.
type PlannedQueue struct {
	Name string
	Args amqp.Table

	// Also lists other arguments that are accepted if the queue exists with
	// them, such as those from before an upgrade of the broker.
	Also []amqp.Table

	// Owner is the work queue that this queue is a part of, or "".
	Owner string

	role role
	rung int // of a waitRole
}

// role is what a queue is for.
type role uint8

const (
	foreignRole role = iota // others declare it
	workRole
	waitRole
	letterRole
	levelRole
)

// PlannedBinding is a binding to add. Its destination is Queue or ToExchange,
// whichever is set.
type PlannedBinding struct {
	Exchange   string
	Key        string
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

	rungs []route.Rung
	carry []route.Wait
}

// WaitQueues returns the wait queue of each rung.
func (e PlannedEngine) WaitQueues() []string {
	var names []string
	for _, r := range e.rungs {
		names = append(names, r.Queue)
	}
	return names
}

// NewPlan returns the plan of several specifications together, for a broker of
// version v on which nothing of them exists yet. If the specifications have
// faults, the error names all of them. NewPlan does no I/O. A [DeadLetterQueue] or
// [WorkQueue] among the specifications replaces a dead-letter queue of the same
// name that a work queue implies.
func NewPlan(v connection.Version, specs ...Spec) (Plan, error) {
	return newPlan(v, found{}, specs)
}

// found is what exists on a broker and is not as a first declaration would make
// it, but is accepted. Its zero value is that nothing was found.
type found struct {
	queues map[string]existing   // by work queue
	args   map[string]amqp.Table // by queue: the arguments it has
	taken  map[string]string     // by wait queue: what differs; another queue is used

	// carried are queues without a TTL that are for another wait, by name, with
	// that wait, or 0 if it is not known.
	carried map[string]time.Duration
}

// newPlan returns the plan for what was found.
func newPlan(v connection.Version, have found, specs []Spec) (Plan, error) {
	if len(specs) == 0 {
		return Plan{}, connection.WithClass(errors.New("topology: nothing to declare: no Exchange, WorkQueue, DeadLetterQueue, Lanes or Delays given"), connection.Bug)
	}
	var errs []error
	for i, s := range specs {
		if s == nil {
			errs = append(errs, fmt.Errorf("topology: specification %d is nil", i+1))
			continue
		}
		errs = append(errs, s.validate())
	}
	if err := errors.Join(errs...); err != nil {
		return Plan{}, connection.WithClass(err, connection.Bug)
	}
	b := builder{version: v, have: have, plan: Plan{Version: v}}
	for _, s := range specs {
		s.addTo(&b)
	}
	return b.done()
}

// builder collects the parts of a plan and the contradictions between them.
type builder struct {
	version connection.Version
	have    found
	plan    Plan
	spare   []PlannedQueue // implied dead-letter queues, wanted if nobody else declares them
	delays  []Delays
	targets delayTargets // of the delays
	errs    []error
}

// fail notes a fault, once: that of Lanes is found in each lane.
func (b *builder) fail(err error) {
	if !slices.ContainsFunc(b.errs, func(e error) bool { return e.Error() == err.Error() }) {
		b.errs = append(b.errs, err)
	}
}

func (b *builder) note(name, text string) {
	b.plan.Notes = append(b.plan.Notes, fmt.Sprintf("%s: %s", name, text))
}

func (b *builder) exchange(e PlannedExchange) {
	for _, have := range b.plan.Exchanges {
		if have.Name != e.Name {
			continue
		}
		if !reflect.DeepEqual(have, e) {
			b.fail(fmt.Errorf("topology: exchange %q is specified twice, as %s and as %s", e.Name, have.Kind, e.Kind))
		}
		return
	}
	b.plan.Exchanges = append(b.plan.Exchanges, e)
}

func (b *builder) queue(q PlannedQueue) {
	if b.planned(q.Name) {
		b.fail(fmt.Errorf("topology: queue %q is specified twice", q.Name))
		return
	}
	if args, ok := b.have.args[q.Name]; ok {
		if _, limited := args["x-delivery-limit"]; q.role == letterRole && atLeastOnce(b.version) && !limited && args["x-queue-type"] == string(Quorum) {
			b.note(q.Name, "declared on a 3.x broker: a delivery limit of 20 applies; a policy with delivery-limit -1 lifts it")
		}
		q.Args, q.Also = args, nil
	}
	b.plan.Queues = append(b.plan.Queues, q)
}

// look plans a queue that others declare.
func (b *builder) look(q PlannedQueue) { b.plan.needs = append(b.plan.needs, q) }

func (b *builder) planned(name string) bool {
	return slices.ContainsFunc(b.plan.Queues, func(have PlannedQueue) bool { return have.Name == name })
}

func (b *builder) implied(q PlannedQueue) { b.spare = append(b.spare, q) }

func (b *builder) bind(list ...PlannedBinding) { b.plan.Bindings = append(b.plan.Bindings, list...) }

func (b *builder) done() (Plan, error) {
	for _, q := range b.spare {
		if !b.planned(q.Name) {
			b.queue(q)
		}
	}
	b.planDelays()
	if err := errors.Join(b.errs...); err != nil {
		return Plan{}, connection.WithClass(err, connection.Bug)
	}
	return b.plan, nil
}

// String returns the plan as text, one part a line.
func (p Plan) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "plan for broker %s\n", p.Version)
	for _, e := range p.Engines {
		fmt.Fprintf(&s, "engine    %s: %s (%s)\n", e.Queue, e.Engine, e.Why)
	}
	for _, d := range p.delays {
		fmt.Fprintf(&s, "delays    %s\n", d.describe())
	}
	for _, e := range p.Exchanges {
		fmt.Fprintf(&s, "exchange  %s (%s)%s\n", e.Name, e.Kind, formatTable(e.Args))
	}
	for _, q := range p.Queues {
		fmt.Fprintf(&s, "queue     %s%s\n", q.Name, formatTable(q.Args))
	}
	for _, b := range p.Bindings {
		fmt.Fprintf(&s, "bind      %s\n", b.describe())
	}
	for _, n := range p.Notes {
		fmt.Fprintf(&s, "note      %s\n", n)
	}
	for _, f := range p.Policies {
		fmt.Fprintf(&s, "policy    %s\n", f)
	}
	return s.String()
}

func (b PlannedBinding) describe() string {
	to := b.Queue
	if b.ToExchange != "" {
		to = "exchange " + b.ToExchange
	}
	return fmt.Sprintf("%s --%s%s--> %s", b.Exchange, b.Key, formatTable(b.Args), to)
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
