package topology

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
)

// Spec is something that can be declared: an [Exchange], a [WorkQueue] or a
// [DeadLetterQueue]. No other type implements it.
type Spec interface {
	// Plan returns what declaring this alone would do on a broker of version
	// v, or everything that is wrong with the specification. It does no I/O.
	Plan(v connection.Version) (Plan, error)

	validate() error
	addTo(*builder)
}

// Plan is what declaring will do, in this order: exchanges, queues, bindings.
// It is a value to read, print and compare; changing it changes nothing.
type Plan struct {
	Version   connection.Version // the broker it is for
	Exchanges []PlannedExchange
	Queues    []PlannedQueue
	Bindings  []PlannedBinding
	Engines   []PlannedEngine // one for each work queue
	Notes     []string        // what somebody who reads the plan should know
}

// PlannedExchange is a durable exchange.
type PlannedExchange struct {
	Name, Kind string
	Args       amqp.Table
}

// PlannedQueue is a durable queue.
type PlannedQueue struct {
	Name string
	Args amqp.Table

	// OldArgs are the arguments this queue has if it was declared on a 3.x
	// broker that has been upgraded since; accepted when Args meet a
	// conflict. Nil: no other form is accepted.
	OldArgs amqp.Table

	// Owner is the work queue that this queue is a part of, or "".
	Owner string
}

// PlannedBinding is a step that adds or removes a binding. The destination is
// Queue or ToExchange, whichever is set.
type PlannedBinding struct {
	Exchange   string
	Key        string
	Args       amqp.Table
	Queue      string
	ToExchange string

	// Remove takes the binding away, if it is there.
	Remove bool
}

func (b PlannedBinding) removed() PlannedBinding {
	b.Remove = true
	return b
}

// PlannedEngine is the engine chosen for a work queue, and why.
type PlannedEngine struct {
	Queue  string
	Engine Engine
	Why    string
}

// NewPlan returns the plan of several specifications together for a broker of
// version v, or everything that is wrong with them. It does no I/O. A
// [DeadLetterQueue] or [WorkQueue] among them replaces a dead-letter queue of
// the same name that a work queue implies.
func NewPlan(v connection.Version, specs ...Spec) (Plan, error) {
	return newPlan(v, nil, specs)
}

// newPlan knows besides which queues were found in their 3.x form.
func newPlan(v connection.Version, oldForm map[string]bool, specs []Spec) (Plan, error) {
	if len(specs) == 0 {
		return Plan{}, connection.WithClass(errors.New("topology: nothing to declare: no Exchange, WorkQueue or DeadLetterQueue given"), connection.Bug)
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
	b := builder{version: v, oldForm: oldForm, plan: Plan{Version: v}}
	for _, s := range specs {
		s.addTo(&b)
	}
	return b.done()
}

// builder collects the parts of a plan and the contradictions between them.
type builder struct {
	version connection.Version
	oldForm map[string]bool
	plan    Plan
	spare   []PlannedQueue // implied dead-letter queues, wanted if nobody else declares them
	errs    []error
}

func (b *builder) fail(err error) { b.errs = append(b.errs, err) }

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
	if slices.ContainsFunc(b.plan.Queues, func(have PlannedQueue) bool { return have.Name == q.Name }) {
		b.fail(fmt.Errorf("topology: queue %q is specified twice", q.Name))
		return
	}
	if b.oldForm[q.Name] {
		q.Args, q.OldArgs = q.OldArgs, nil
	}
	b.plan.Queues = append(b.plan.Queues, q)
}

func (b *builder) implied(q PlannedQueue) { b.spare = append(b.spare, q) }

func (b *builder) bind(steps ...PlannedBinding) { b.plan.Bindings = append(b.plan.Bindings, steps...) }

func (b *builder) done() (Plan, error) {
	for _, q := range b.spare {
		if !slices.ContainsFunc(b.plan.Queues, func(have PlannedQueue) bool { return have.Name == q.Name }) {
			b.queue(q)
		}
	}
	if err := errors.Join(b.errs...); err != nil {
		return Plan{}, connection.WithClass(err, connection.Bug)
	}
	return b.plan, nil
}

// String returns the plan as text, one part a line; the bindings that are
// removed, if they exist, only as their number.
func (p Plan) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "plan for broker %s\n", p.Version)
	for _, e := range p.Engines {
		fmt.Fprintf(&s, "engine    %s: %s (%s)\n", e.Queue, e.Engine, e.Why)
	}
	for _, e := range p.Exchanges {
		fmt.Fprintf(&s, "exchange  %s (%s)%s\n", e.Name, e.Kind, formatTable(e.Args))
	}
	for _, q := range p.Queues {
		fmt.Fprintf(&s, "queue     %s%s\n", q.Name, formatTable(q.Args))
	}
	removed := 0
	for _, b := range p.Bindings {
		if b.Remove {
			removed++
			continue
		}
		fmt.Fprintf(&s, "bind      %s\n", b.describe())
	}
	if removed > 0 {
		fmt.Fprintf(&s, "unbind    %d bindings that another form or length of the schedule may have left\n", removed)
	}
	for _, n := range p.Notes {
		fmt.Fprintf(&s, "note      %s\n", n)
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
