package topology

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/route"
)

// Resolve returns the route of a source on the connected broker: the engine, and
// the queue for each wait. It creates no queue and no exchange. It fails if one is
// missing, or exists with arguments that [Declare] does not accept (a
// *[ConflictError]), because messages sent there might be lost. A client cannot
// see the bindings between the parts of a work queue, so Resolve adds those that
// are missing. It leaves the user's own, [WorkQueue.Bindings], to Declare.
//
// The route is valid for one session. Where its engine is [Carry], processes with
// a longer or changed schedule may have added waits, or add them later, that every
// consumer has to carry; package consumer looks for them every two minutes, and
// for a schedule without waits every half hour at least.
//
// A user without permission to configure the queues can only find out that they
// exist, and on 4.3 not even that. The route then has the engine that a first
// declaration would choose, but never [Ladder]. If that is [Republish] and the waits
// are carried all the same, messages come back 10 s late where nobody carries them.
//
// It needs three round trips, one more where the engine is Carry or there are no
// waits.
func Resolve(ctx context.Context, conn *connection.Conn, source Source) (Route, error) {
	if err := usable(ctx, conn); err != nil {
		return Route{}, err
	}
	if source == nil {
		return Route{}, connection.WithClass(errors.New("topology: source is nil"), connection.Bug)
	}
	r := source.Route()
	if err := r.Validate(); err != nil {
		return Route{}, err
	}
	if r.lanes != nil {
		return Route{}, connection.WithClass(fmt.Errorf("topology: source is Lanes %q, want one of its WorkQueues: each lane has a route of its own", r.Queue), connection.Bug)
	}
	if r.work == nil && !r.letters {
		return r, nil // others declare it: consuming will tell
	}
	return again(ctx, func() (Route, error) {
		c := caller{ctx: ctx, conn: conn}
		defer c.close()
		if r.letters {
			at, refused, err := c.all([]step{lookForQueue(r.Queue, "declare it, or its work queue, first")})
			if refused != nil {
				err = at.explain(refused)
			}
			return r, err
		}
		return r.resolve(&c)
	})
}

func (r Route) resolve(c *caller) (Route, error) {
	d, err := newDeclaration(c, []Spec{*r.work})
	if err != nil {
		return Route{}, err
	}
	err = d.make(c, r.work.looks)
	if errors.Is(err, errNoPermission) {
		return r.unseen(c, d.plan.Engines[0])
	}
	if err != nil {
		return Route{}, err
	}
	r = r.planned(d.plan.Engines[0])
	return r.carryAll(c)
}

// looks returns the steps that find out whether all parts of the plan exist.
func (w WorkQueue) looks(p Plan) (steps []step) {
	advice := fmt.Sprintf("declare work queue %q first", w.Name)
	for _, q := range slices.Concat(p.needs, p.Queues) {
		look := lookForQueue(q.Name, advice)
		// Letters wait for a dead-letter queue that is away; the work goes on.
		look.mayBeAway = q.role != workRole && q.role != waitRole
		steps = append(steps, look)
		if q.role == workRole || q.role == waitRole { // the dead-letter queue may be declared in its own way
			steps = append(steps, declareQueue(q))
		}
	}
	for _, e := range p.Exchanges {
		steps = append(steps, lookForExchange(e.Name, advice))
	}
	for _, b := range p.Bindings {
		if !b.users {
			steps = append(steps, bind(b))
		}
	}
	return steps
}

// unseen returns the route for a user that may not look at the arguments of the
// queues: a copy to each wait by its name, which bears the time when it is due.
func (r Route) unseen(c *caller, e PlannedEngine) (Route, error) {
	if e.Engine == Ladder {
		e.Engine = Republish
	}
	for i := range e.rungs {
		e.rungs[i].Nack = false
	}
	e.carry = slices.Clone(e.carry)
	for i := range e.carry {
		e.carry[i].For = 0 // the queue may be for another wait
	}
	r = r.planned(e)
	r.blind = true
	var looks []step
	for _, name := range append(e.WaitQueues(), r.DeadLetter.Key) {
		look := lookForQueue(name, fmt.Sprintf("declare work queue %q first", r.Queue))
		look.mayBeAway = true // copies go to all of these
		looks = append(looks, look)
	}
	at, refused, err := c.all(looks)
	if refused != nil && refused.Code != amqp.AccessRefused { // 4.3 refuses even to look
		err = at.explain(refused)
	}
	if err != nil {
		return Route{}, err
	}
	return r.carryAll(c)
}

// carryAll adds the waits of a longer schedule to those that are carried. All
// that a schedule has are declared in order, so the first missing one ends them.
// A schedule without waits has no engine that tells how those of another one are:
// the first of them does.
func (r Route) carryAll(c *caller) (Route, error) {
	if r.engine != Carry {
		if len(r.Waits) > 0 {
			return r, nil
		}
		if left, err := r.work.hasCarriedWaits(c); err != nil || !left {
			return r, err
		}
	}
	r.carry = slices.Clone(r.carry)
	for rung := len(r.Waits) + 1; rung <= delay.MaxWaits; rung++ {
		name := r.work.WaitQueue(rung)
		refused, err := c.do(func(ch *amqp.Channel) error { return lookForQueue(name, "").call(ch, false) })
		if err != nil {
			return Route{}, fmt.Errorf("topology: look at queue %q: %w", name, err)
		}
		if refused != nil {
			break
		}
		r.carry = append(r.carry, route.Wait{Queue: name, Rung: rung})
	}
	return r, nil
}

// hasCarriedWaits reports whether the first wait queue of any schedule exists and
// has no TTL. Without permission to look it reports false.
func (w WorkQueue) hasCarriedWaits(c *caller) (bool, error) {
	if err := c.open(); err != nil {
		return false, err
	}
	w.Waits = delay.Schedule{time.Minute} // any: the refusal tells the one there is
	args, exists, err := c.argumentsIfAny(w.carriedWait(w.WaitQueue(1), 1, c.session.Server().Version))
	if errors.Is(err, errNoPermission) {
		return false, nil
	}
	return exists && isCarriedForm(args), err
}
