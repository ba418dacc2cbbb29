package topology

import (
	"context"
	"errors"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/ask"
	"github.com/rehop/rehop/internal/declared"
	"github.com/rehop/rehop/internal/levels"
	"github.com/rehop/rehop/internal/route"
)

// foreign is the route of a queue that others declare: consuming will tell whether it
// exists.
type foreign route.Facts

func (r foreign) route() route.Facts { return route.Facts(r) }

// Resolve implements route.Broker.
func (r foreign) Resolve(ctx context.Context, conn *connection.Conn) (route.Facts, error) {
	if err := usable(ctx, conn); err != nil {
		return route.Facts{}, err
	}
	return resolved(r, conn, route.Facts(r)), nil
}

// resolved returns the route with what is known of every kind of queue.
func resolved(b route.Broker, conn *connection.Conn, r route.Facts) route.Facts {
	r.Broker = b
	r.Delays = nil
	for _, d := range declared.On(conn) {
		if d.Confirmed && d.Reaches(levels.Target{RoutingKey: r.Queue}) {
			r.Delays = append(r.Delays, d)
		}
	}
	return r
}

// letters asks about a dead-letter queue.
type letters struct{ q DeadLetterQueue }

func (l letters) route() route.Facts {
	return route.Facts{Queue: l.q.Name, Kind: route.Letters, Engine: route.Republish}
}

// Resolve implements route.Broker.
func (l letters) Resolve(ctx context.Context, conn *connection.Conn) (route.Facts, error) {
	if err := usable(ctx, conn); err != nil {
		return route.Facts{}, err
	}
	return again(ctx, func() (route.Facts, error) {
		c := caller{ctx: ctx, conn: conn}
		defer c.close()
		at, refused, err := c.all([]step{lookForQueue(l.q.Name, "declare it, or its work queue, first")})
		if refused != nil {
			err = at.explain(refused)
		}
		return resolved(l, conn, l.route()), err
	})
}

// work asks about a work queue. The findings of Resolve are in plan and unseen.
type work struct {
	w      WorkQueue
	plan   Plan
	unseen bool
}

func (w work) route() route.Facts { return w.w.route() }

// Resolve implements route.Broker.
func (w work) Resolve(ctx context.Context, conn *connection.Conn) (route.Facts, error) {
	if err := usable(ctx, conn); err != nil {
		return route.Facts{}, err
	}
	return again(ctx, func() (route.Facts, error) {
		c := caller{ctx: ctx, conn: conn}
		defer c.close()
		r, plan, err := w.w.resolve(&c)
		return resolved(work{w.w, plan, r.Unseen}, conn, r), err
	})
}

func (w WorkQueue) resolve(c *caller) (r route.Facts, p Plan, err error) {
	d, err := newDeclaration(c, []Spec{w})
	if err != nil {
		return r, p, err
	}
	err = d.make(c, w.looks)
	switch {
	case errors.Is(err, errNoPermission):
		r, err = w.unseen(c, d.plan.Engines[0], err)
	case err == nil:
		r, err = w.carryAll(c, w.onBroker(d.plan.Engines[0]))
	}
	r.ConsumerTimeout, r.AsksForTimeout = w.consumerTimeoutOn(d.plan.Version)
	return r, d.plan, err
}

// onBroker returns the route on a broker that has what is planned.
func (w WorkQueue) onBroker(e PlannedEngine) route.Facts {
	r := w.route()
	r.Engine, r.Why, r.Carried = string(e.Engine), e.Why, e.carried
	for i, name := range e.Waits {
		r.Waits[i].At, r.Waits[i].Nack = route.Target{RoutingKey: name}, e.nacks[i]
	}
	return r
}

// looks returns the steps that find out whether all parts of the plan exist.
func (w WorkQueue) looks(p Plan) (steps []step) {
	steps = w.lanesAsDeclared()
	advice := w.declareFirst()
	for _, q := range slices.Concat(p.needs, p.queues) {
		look := lookForQueue(q.Name, advice)
		// Letters wait for a dead-letter queue that is away; the work goes on.
		look.mayBeAway = q.role != workRole && q.role != waitRole
		steps = append(steps, look)
		if q.role == workRole || q.role == waitRole { // the dead-letter queue may be declared in its own way
			steps = append(steps, declareQueue(q))
		}
	}
	for _, e := range p.exchanges {
		steps = append(steps, lookForExchange(e.Name, advice))
	}
	for _, b := range p.bindings {
		if !b.users {
			steps = append(steps, bind(b))
		}
	}
	return steps
}

// unseen returns the route for a user that may not look at the arguments of the
// queues: a copy to each wait by its name, which bears the time when it is due.
func (w WorkQueue) unseen(c *caller, e PlannedEngine, why error) (route.Facts, error) {
	r := w.onBroker(e)
	r.Unseen, r.Why = true, "the user may not look at the queues"
	if r.Engine == route.Nack {
		r.Engine = route.Republish
		if len(r.Waits) > 0 {
			r.Denied = why
		}
	}
	for i := range r.Waits {
		r.Waits[i].Nack = false
	}
	r.Carried = slices.Clone(r.Carried)
	for i := range r.Carried {
		r.Carried[i].For = 0 // the queue may be for another wait
	}
	var looks []step
	for _, name := range append(slices.Clone(e.Waits), r.DeadLetter.RoutingKey) {
		look := lookForQueue(name, w.declareFirst())
		look.mayBeAway = true // copies go to all of these
		looks = append(looks, look)
	}
	at, refused, err := c.all(looks)
	if refused != nil && refused.Code != amqp.AccessRefused { // 4.3 refuses even to look
		err = at.explain(refused)
	}
	if err != nil {
		return route.Facts{}, err
	}
	return w.carryAll(c, r)
}

// carryAll adds the waits of a longer schedule to those that are carried. All
// that a schedule has are declared in order, so the first missing one ends them.
// A schedule without waits has declared none, so whatever engine it asks for, the first wait of
// another schedule tells how those are.
func (w WorkQueue) carryAll(c *caller, r route.Facts) (route.Facts, error) {
	if len(r.Waits) == 0 {
		left, err := w.hasCarriedWaits(c)
		denied := errors.Is(err, errNoPermission)
		switch {
		case r.Engine == route.Carry && (denied || ask.IsAway(err)):
			// By carry a user may only read them (Plan.Permissions): those that a look finds are carried.
		case denied:
			return r, nil
		case err != nil || !left:
			return r, err
		}
	} else if r.Engine != route.Carry {
		return r, nil
	}
	r.Carried = slices.Clone(r.Carried)
	for waitNumber := len(r.Waits) + 1; waitNumber <= delay.MaxWaits; waitNumber++ {
		wait, exists, err := w.carriedOn(c, waitNumber, 1)
		if err != nil {
			return route.Facts{}, err
		}
		if !exists {
			break
		}
		r.Carried = append(r.Carried, wait)
	}
	return r, nil
}

// CarriedWait implements route.Broker.
func (foreign) CarriedWait(context.Context, *connection.Conn, int, int) (route.CarriedWait, bool, error) {
	return route.CarriedWait{}, false, nil
}

// CarriedWait implements route.Broker.
func (letters) CarriedWait(context.Context, *connection.Conn, int, int) (route.CarriedWait, bool, error) {
	return route.CarriedWait{}, false, nil
}

// CarriedWait implements route.Broker.
func (w work) CarriedWait(ctx context.Context, conn *connection.Conn, waitNumber, nth int) (wait route.CarriedWait, exists bool, err error) {
	c := caller{ctx: ctx, conn: conn}
	defer c.close()
	return w.w.carriedOn(&c, waitNumber, nth)
}

// carriedOn returns the nth carried wait of a number, and whether it exists as far as the broker tells now. A queue that
// has its name in another form is of somebody else. A user who may not see the form goes by the name, because messages
// would stay in a wait that nobody carries.
func (w WorkQueue) carriedOn(c *caller, waitNumber, nth int) (wait route.CarriedWait, exists bool, err error) {
	wait = route.CarriedWait{Queue: route.CarriedQueue(w.Name, waitNumber, nth), Number: waitNumber}
	args, exists, err := c.argumentsIfAny(w.anyCarried(wait.Queue, waitNumber))
	var refused *amqp.Error
	switch {
	case errors.Is(err, errNoPermission):
		refused, err = c.do(func(ch *amqp.Channel) error { return lookForQueue(wait.Queue, "").call(ch, false) })
		return wait, err == nil && refused == nil, err
	case errors.As(err, &refused) && refused.Server && refused.Recover:
		return wait, false, nil
	}
	wait.For = waitOf(args)
	return wait, exists && isOtherCarried(w.anyCarried(wait.Queue, waitNumber).Args, args), err
}

// anyCarried returns a carried wait of some duration: the refusal of its declaration tells the form of the queue that there is.
func (w WorkQueue) anyCarried(name string, waitNumber int) plannedQueue {
	w.Waits = make(delay.Schedule, waitNumber)
	w.Waits[waitNumber-1] = time.Minute
	return w.carriedWait(name, waitNumber, version4)
}

// hasCarriedWaits reports whether the first wait queue of any schedule exists and
// has no TTL. Its error wraps errNoPermission if the user may not know.
func (w WorkQueue) hasCarriedWaits(c *caller) (bool, error) {
	args, exists, err := c.argumentsIfAny(w.anyCarried(route.WaitQueue(w.Name, 1), 1))
	return err == nil && exists && isCarriedForm(args), err
}
