package topology

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/declared"
	"github.com/rehop/rehop/internal/exchange"
)

// sessionTries bounds how often a declaration starts again because the
// connection was lost under it. Each start waits for a live connection.
const sessionTries = 5

// A declaration of many work queues uses several channels at a time, each for a
// batch of them in one round trip.
const (
	maxChannels = 8
	batch       = 5
)

// Declare declares what the specifications describe on the broker that conn is
// connected to. It only adds what is missing, so any number of processes may call
// it, at every start and at the same time.
//
// All faults of the specifications are returned at once, before anything is sent.
//
// A queue or exchange that exists with other arguments than those planned is a
// *[ConflictError]; what was declared before it stays. Some other arguments are
// accepted, and the plan that [DeclarePlan] returns says so: those of a work queue
// or dead-letter queue that was declared on a broker of 3.x, and those of a wait
// queue of another engine or for another wait.
//
// A schedule may change at any time, with messages waiting and with processes
// alive that have the earlier one. Wait queues that are no longer used are not
// deleted, because messages may wait in them. Those messages come back as usual.
//
// It needs about five round trips, whatever the number of waits.
//
// With connection.Config.ManagementURL it then asks for the policies that apply to
// the queues, and logs each [PolicyFault] as a warning. If the management API does
// not answer, Declare logs that instead and returns nil.
func Declare(ctx context.Context, conn *connection.Conn, specs ...Spec) error {
	plan, unknown, err := declarePlan(ctx, conn, specs)
	for _, note := range plan.Notes {
		conn.Logger().Info("topology: " + note)
	}
	for _, f := range plan.Policies {
		conn.Logger().Warn("topology: a policy breaks a promise", "queue", f.Queue, "policy", f.Policy, "key", f.Key, "value", f.Value, "effect", f.Effect)
	}
	if unknown != nil {
		conn.Logger().Warn(unknown.Error())
	}
	return err
}

// DeclarePlan is like [Declare], and returns the plan that is now true on the
// broker. It logs nothing: what Declare logs is in the plan.
func DeclarePlan(ctx context.Context, conn *connection.Conn, specs ...Spec) (Plan, error) {
	plan, unknown, err := declarePlan(ctx, conn, specs)
	if unknown != nil {
		plan.Notes = append(plan.Notes, unknown.Error())
	}
	return plan, err
}

// declarePlan also returns why policies are not known.
func declarePlan(ctx context.Context, conn *connection.Conn, specs []Spec) (plan Plan, unknown, err error) {
	if err := usable(ctx, conn); err != nil {
		return Plan{}, nil, err
	}
	// The broker known from Open serves to find every fault before the network.
	// After a lazy Open none is known.
	if known := conn.Server(); known != (connection.Server{}) {
		if _, err := NewPlan(known.Version, specs...); err != nil {
			return Plan{}, nil, err
		}
	}
	plan, err = again(ctx, func() (Plan, error) {
		first := caller{ctx: ctx, conn: conn}
		defer first.close()
		d, err := newDeclaration(&first, specs)
		if err != nil {
			return Plan{}, err
		}
		if err := d.checkTargets(&first); err != nil {
			return Plan{}, err
		}
		return d.declare(&first)
	})
	if err == nil {
		declared.See(conn, plan.seenDelays()...)
		exchange.Seen(conn, plan.seenExchanges()...) // publishers need not ask for them
		plan.Policies, unknown = policies(ctx, conn, plan.policed())
	}
	return plan, unknown, err
}

// seenExchanges returns the exchanges that exist once the plan is true.
func (p Plan) seenExchanges() (names []string) {
	for _, e := range p.Exchanges {
		names = append(names, e.Name)
	}
	for _, b := range p.Bindings {
		if !slices.Contains(names, b.Exchange) {
			names = append(names, b.Exchange)
		}
	}
	return names
}

// usable returns an error for what a program has forgotten.
func usable(ctx context.Context, conn *connection.Conn) error {
	switch {
	case ctx == nil:
		return connection.WithClass(errors.New("topology: ctx is nil"), connection.Bug)
	case conn == nil:
		return connection.WithClass(errors.New("topology: conn is nil"), connection.Bug)
	}
	return nil
}

// again runs do, and again if the connection is lost under it.
func again[T any](ctx context.Context, do func() (T, error)) (T, error) {
	for try := 1; ; try++ {
		v, err := do()
		if err == nil || try == sessionTries || ctx.Err() != nil || !errors.Is(err, connection.ErrSessionLost) || isUnknownKind(err) {
			return v, err
		}
	}
}

// declaration is what one call of Declare or Resolve knows of the broker.
type declaration struct {
	specs   []Spec
	version connection.Version
	adds    bool // what is missing

	mu   sync.Mutex // of several callers
	have found
	plan Plan // for have
}

func newDeclaration(c *caller, specs []Spec) (*declaration, error) {
	if err := c.open(); err != nil {
		return nil, err
	}
	d := &declaration{specs: specs, version: c.session.Server().Version}
	var err error
	d.plan, err = NewPlan(d.version, specs...)
	return d, err
}

// declare declares everything. Work queues are independent of each other, but
// for what they bind to: that comes first.
func (d *declaration) declare(first *caller) (Plan, error) {
	d.adds = true
	owners := d.plan.owners()
	if len(owners) <= 1 {
		err := d.make(first, func(p Plan) []step {
			steps := slices.Concat(p.boundExchanges(), p.exchangeSteps(""), p.queueSteps(""))
			for _, owner := range owners {
				steps = slices.Concat(steps, p.queueSteps(owner), p.exchangeSteps(owner), p.bindingSteps(owner))
			}
			return append(steps, p.bindingSteps("")...)
		})
		return d.plan, err
	}
	err := d.make(first, func(p Plan) []step {
		steps := slices.Concat(p.boundExchanges(), p.exchangeSteps(""), p.queueSteps(""), p.bindingSteps(""))
		for _, lanes := range p.lanes {
			steps = append(steps, p.exchangeSteps(lanes)...)
		}
		return steps
	})
	if err != nil {
		return d.plan, err
	}
	callers := make([]*caller, min(maxChannels, (len(owners)+batch-1)/batch))
	for i := range callers {
		callers[i] = &caller{ctx: first.ctx, conn: first.conn}
		defer callers[i].close()
	}
	for _, part := range []func(Plan, string) []step{
		func(p Plan, owner string) []step { return append(p.queueSteps(owner), p.exchangeSteps(owner)...) },
		Plan.bindingSteps, // a dead-letter queue may be another work queue
	} {
		if err := d.each(callers, owners, part); err != nil {
			return d.plan, err
		}
	}
	err = d.make(first, func(p Plan) (steps []step) {
		for _, lanes := range p.lanes { // last: then every lane is there
			steps = append(steps, p.bindingSteps(lanes)...)
		}
		return steps
	})
	return d.plan, err
}

// owners returns the work queues of the plan.
func (p Plan) owners() []string {
	var names []string
	for _, e := range p.Engines {
		names = append(names, e.Queue)
	}
	return names
}

// each makes the steps of every owner, in batches that the callers share.
func (d *declaration) each(callers []*caller, owners []string, steps func(p Plan, owner string) []step) error {
	batches := make(chan []string, len(owners))
	// The processes of a service start at the same time. Each begins elsewhere, so that
	// they do not all wait for the same queue.
	begin := rand.IntN(len(owners))
	for owners := range slices.Chunk(slices.Concat(owners[begin:], owners[:begin]), batch) {
		batches <- owners
	}
	close(batches)
	errs := make([]error, len(callers))
	var failed atomic.Bool // the others need not go on; ending their calls would cost the socket
	var wg sync.WaitGroup
	for i, c := range callers {
		wg.Go(func() {
			for owners := range batches {
				if failed.Load() {
					return
				}
				errs[i] = d.make(c, func(p Plan) (all []step) {
					for _, owner := range owners {
						all = append(all, steps(p, owner)...)
					}
					return all
				})
				if errs[i] != nil {
					failed.Store(true)
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// remakes bounds how often a part is declared again that a binding did not find.
const remakes = 5

// make does the steps of the plan. What is refused and accepted as it is changes
// the plan, whose steps are done then.
func (d *declaration) make(c *caller, steps func(Plan) []step) error {
	for try := 1; ; {
		d.mu.Lock()
		plan := d.plan
		d.mu.Unlock()
		at, refused, err := c.all(steps(plan))
		if err != nil || refused == nil {
			return err
		}
		if d.adds && at.binds && refused.Code == amqp.NotFound && try <= remakes {
			// A node of a busy cluster may answer a declaration before it finds
			// the queue itself.
			if err := c.pause(time.Duration(try) * 200 * time.Millisecond); err != nil {
				return errors.Join(at.explain(refused), err)
			}
			if _, _, err := c.all(append(plan.queueSteps(at.owner), plan.exchangeSteps(at.owner)...)); err != nil {
				return err
			}
			try++
			continue
		}
		if err := d.learn(c, at, refused); err != nil {
			return err
		}
	}
}

// learn plans again with what the refusal of a step shows, or returns it as an
// error. Each time something is known that was not before, so it ends.
func (d *declaration) learn(c *caller, at step, refused *amqp.Error) error {
	if _, ok := refusedQueue(refused); !ok || at.queue == nil {
		return at.explain(refused)
	}
	args, err := c.argumentsOf(*at.queue, refused)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.have.learn(d.workQueue(at.queue.Owner), *at.queue, args, refused); err != nil {
		return err
	}
	plan, err := newPlan(d.version, d.have, d.specs)
	if err == nil {
		d.plan = plan
	}
	return err
}

// workQueue returns the specification of a work queue, or nil.
func (d *declaration) workQueue(name string) *WorkQueue {
	for _, w := range workQueues(d.specs) {
		if w.Name == name {
			return &w
		}
	}
	return nil
}
