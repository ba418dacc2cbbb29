package topology

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/declared"
	"github.com/rehop/rehop/internal/exchange"
	"github.com/rehop/rehop/internal/management"
	"github.com/rehop/rehop/internal/transport"
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

// Declare declares the queues, exchanges and bindings of the specifications on the
// broker that conn is connected to. It only adds missing parts, so any number of
// processes may call it, at every start and at the same time.
//
// All faults of the specifications are returned at once, before anything is sent.
//
// If a queue or exchange exists with other arguments than planned, Declare returns a
// *[ConflictError]; the parts that were declared before it stay. Declare accepts two
// cases, and logs a note for each: a work queue or dead-letter queue that was declared
// on a broker of 3.x, and a wait queue of another engine or for another wait.
//
// A schedule may change at any time, with messages waiting and with processes
// alive that have the earlier one. Wait queues that are no longer used are not
// deleted, because messages may wait in them. Those messages come back as usual.
//
// If messages can be delayed to an exchange ([Delays]) and would not reach a queue or Lanes
// whose Bindings name it, by this call or by earlier ones on conn, Declare logs a warning.
//
// It takes about five round trips, for any number of waits, and two more to look for [Shards]
// of a larger Count.
//
// With connection.Config.ManagementURL it then asks for the policies that apply to
// the queues, and logs each entry that breaks a promise as a warning. If the
// management API does not answer, Declare logs the failure instead and returns
// nil.
func Declare(ctx context.Context, conn *connection.Conn, specs ...Spec) error {
	plan, unknown, err := declarePlan(ctx, conn, specs)
	for _, note := range plan.Notes {
		level := slog.LevelInfo
		if slices.Contains(plan.warnings, note) {
			level = slog.LevelWarn
		}
		transport.Inside.Conn(conn).Logger().Log(ctx, level, "topology: "+note)
	}
	for _, f := range plan.policies {
		if f.Policy == "" {
			transport.Inside.Conn(conn).Logger().Warn("topology: a queue of others loses messages", "queue", f.Queue, "missing", f.Key, "effect", f.Effect)
			continue
		}
		transport.Inside.Conn(conn).Logger().Warn("topology: a policy breaks a promise", "queue", f.Queue, "policy", f.Policy, "key", f.Key, "value", f.Value, "effect", f.Effect)
	}
	if unknown != nil {
		transport.Inside.Conn(conn).Logger().Warn(unknown.Error())
	}
	return err
}

// DeclarePlan is like [Declare], and returns the plan that now holds on the
// broker. It logs nothing: the plan has the notes that Declare logs.
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
		if err := errors.Join(d.checkTargets(&first), d.checkLanes(&first)); err != nil {
			return Plan{}, err
		}
		left, err := d.checkShards(&first)
		if err != nil {
			return Plan{}, err
		}
		p, err := d.declare(&first)
		if err == nil {
			p, unknown, err = d.judged(&first)
		}
		for i, s := range p.shards {
			p.warnOfBeyond(d.have.vhost, s, left[i])
		}
		return p, err
	})
	if err == nil {
		declared.See(conn, plan.seenBindings(), plan.seenDelays()...)
		plan.warnOfApart(declared.On(conn))
		plan.keepOwnForms(conn)
		exchange.Seen(conn, plan.seenExchanges()...) // publishers need not ask for them
	}
	return plan, unknown, err
}

// judged returns the plan with the policies that break its promises, and without the notes that policies have
// made void. It also returns why the policies are not known.
func (d *declaration) judged(c *caller) (p Plan, unknown, err error) {
	queues := d.plan.policed()
	faults, unknown := policies(c.ctx, c.conn, queues)
	d.have.shown = map[string]management.Queue{}
	for _, q := range queues {
		if q.shown {
			d.have.shown[q.name] = q.broker
		}
	}
	p, err = newPlan(d.version, d.have, d.specs)
	p.policies = faults
	return p, unknown, err
}

// seenExchanges returns the exchanges that exist once the plan is true.
func (p Plan) seenExchanges() (names []string) {
	for _, e := range p.exchanges {
		names = append(names, e.Name)
	}
	for _, b := range p.bindings {
		if !slices.Contains(names, b.Exchange) {
			names = append(names, b.Exchange)
		}
	}
	return names
}

// usable returns an error if conn or ctx is missing.
func usable(ctx context.Context, conn *connection.Conn) error {
	switch {
	case ctx == nil:
		return rehop.WithClass(errors.New("topology: ctx is nil"), rehop.ClassBug)
	case conn == nil:
		return rehop.WithClass(errors.New("topology: conn is nil"), rehop.ClassBug)
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

// declaration is the knowledge that one call of Declare or Resolve has of the broker.
type declaration struct {
	specs   []Spec
	version connection.Version
	adds    bool // what is missing
	again   bool // what exists, to see its form

	mu   sync.Mutex // of several callers
	have found
	plan Plan // for have
}

func newDeclaration(c *caller, specs []Spec) (*declaration, error) {
	if err := c.open(); err != nil {
		return nil, err
	}
	d := &declaration{specs: specs, version: c.session.Server().Version, have: found{vhost: transport.Inside.Conn(c.conn).Vhost()}}
	var err error
	d.plan, err = NewPlan(d.version, specs...)
	return d, err
}

// shared returns the steps for all that belongs to no work queue: first, because
// work queues are independent of each other, except for the exchanges that they bind to.
func (p Plan) shared() []step {
	return slices.Concat(p.boundExchanges(), p.queueSteps(""), p.wiringSteps(""))
}

// steps returns all steps, in the order in which they are done where all are done on
// one channel.
func (p Plan) steps() []step {
	steps := p.shared()
	for _, owner := range p.owners() {
		steps = append(steps, p.queueSteps(owner)...)
	}
	for _, owner := range p.owners() { // a dead-letter queue may be another work queue
		steps = append(steps, p.wiringSteps(owner)...)
	}
	for _, lanes := range p.lanes { // last: then every lane is there
		steps = append(steps, p.wiringSteps(lanes)...)
	}
	return steps
}

// declare declares everything.
func (d *declaration) declare(first *caller) (Plan, error) {
	d.adds = true
	owners := d.plan.owners()
	if len(owners) <= 1 {
		err := d.make(first, Plan.steps)
		return d.plan, err
	}
	if err := d.make(first, Plan.shared); err != nil {
		return d.plan, err
	}
	callers := make([]*caller, min(maxChannels, (len(owners)+batch-1)/batch))
	for i := range callers {
		callers[i] = &caller{ctx: first.ctx, conn: first.conn}
		defer callers[i].close()
	}
	for _, part := range []func(Plan, string) []step{Plan.queueSteps, Plan.wiringSteps} {
		if err := d.each(callers, owners, part); err != nil {
			return d.plan, err
		}
	}
	err := d.make(first, func(p Plan) (steps []step) {
		for _, lanes := range p.lanes {
			steps = append(steps, p.wiringSteps(lanes)...)
		}
		return steps
	})
	return d.plan, err
}

// checkLanes returns an error if lanes exist under the same name that are others,
// before anything is declared: the exchange that leads to them tells.
func (d *declaration) checkLanes(c *caller) error {
	for _, e := range d.plan.exchanges {
		if e.Kind != amqp.ExchangeHeaders || !slices.Contains(d.plan.lanes, e.Owner) || e.Name != (Lanes{Name: e.Owner}).Exchange() {
			continue
		}
		look, declare := lookForExchange(e.Name, ""), declareExchange(e)
		refused, err := c.do(func(ch *amqp.Channel) error {
			if err := look.call(ch, true); err != nil { // or it would be made before its lanes
				return err
			}
			return declare.call(ch, false)
		})
		switch {
		case err != nil:
			return fmt.Errorf("topology: %s: %w", look.what, err)
		case refused != nil && refused.Code == amqp.PreconditionFailed:
			return declare.explain(refused)
		}
	}
	return nil
}

// checkShards looks for shards that a larger Count has left, before anything is declared. It
// returns those of each Shards of the plan, and an error for those that nobody would read.
func (d *declaration) checkShards(c *caller) (left [][]beyond, err error) {
	var errs []error
	for _, s := range d.plan.shards {
		list, err := s.shardsBeyond(c)
		if err != nil {
			return nil, err
		}
		left, errs = append(left, list), append(errs, s.unread(list))
	}
	return left, errors.Join(errs...)
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
	var failed atomic.Bool // the other calls need not go on; ending them would cost the socket
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

// make does the steps of the plan. A part that is refused, and accepted as it is,
// changes the plan; then its new steps are done.
func (d *declaration) make(c *caller, steps func(Plan) []step) error {
	for try := 1; ; {
		d.mu.Lock()
		plan := d.plan
		d.mu.Unlock()
		at, refused, err := c.all(steps(plan))
		if err != nil || refused == nil {
			return err
		}
		if d.adds && at.binding != nil && refused.Code == amqp.NotFound && try <= remakes {
			// A node of a busy cluster may answer a declaration before it finds
			// the queue itself.
			if err := c.pause(time.Duration(try) * 200 * time.Millisecond); err != nil {
				return errors.Join(at.explain(refused), err)
			}
			if _, _, err := c.all(plan.queueSteps(at.binding.Owner)); err != nil {
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
