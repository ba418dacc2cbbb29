package topology

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
)

// sessionTries bounds how often a declaration starts again because the
// connection was lost under it. Each start waits for a live connection.
const sessionTries = 5

// Declare makes the plan of the specifications true on the broker that conn is
// connected to. Declaring again changes nothing, so call it at every start, in
// every process.
//
// All faults of the specifications are returned at once, before anything is
// sent. A queue or exchange that exists with other arguments is a
// *[ConflictError]; what was declared before it stays. Under a living queue
// arguments cannot change, so a work queue from a 3.x broker is accepted as it
// is and stays on the engine [Republish]; [DeclarePlan] says so.
//
// Declarations of one work queue take turns, across processes: each holds an
// exclusive queue, named after the work queue with ".declare", while it works.
// A user without permission to configure that name declares without the turn.
//
// A schedule that became longer or shorter is taken over, with messages
// waiting: one that fails in that moment starts again at wait 1. The wait
// queues that a longer schedule left behind are not deleted, because messages
// may wait in them; they come back as usual.
func Declare(ctx context.Context, conn *connection.Conn, specs ...Spec) error {
	plan, err := DeclarePlan(ctx, conn, specs...)
	for _, note := range plan.Notes {
		conn.Logger().Info("topology: " + note)
	}
	return err
}

// DeclarePlan is [Declare] and returns the plan that is now true.
func DeclarePlan(ctx context.Context, conn *connection.Conn, specs ...Spec) (Plan, error) {
	// The broker known from Open serves to find every fault before the network.
	// After a lazy Open none is known.
	if known := conn.Server(); known != (connection.Server{}) {
		if _, err := NewPlan(known.Version, specs...); err != nil {
			return Plan{}, err
		}
	}
	for try := 1; ; try++ {
		plan, err := declareOnce(ctx, conn, specs)
		if err == nil || try == sessionTries || ctx.Err() != nil || !errors.Is(err, connection.ErrSessionLost) {
			return plan, err
		}
	}
}

func declareOnce(ctx context.Context, conn *connection.Conn, specs []Spec) (Plan, error) {
	declaring.Lock()
	defer declaring.Unlock()
	d := declarer{ctx: ctx, conn: conn}
	defer d.close()
	if err := d.open(); err != nil {
		return Plan{}, err
	}
	version := d.session.Server().Version
	plan, err := NewPlan(version, specs...)
	if err != nil {
		return Plan{}, err
	}
	if err := d.boundExchanges(plan); err != nil {
		return Plan{}, err
	}
	unlock, err := d.lock(plan)
	if err != nil {
		return Plan{}, err
	}
	defer unlock()
	for _, e := range plan.Exchanges {
		if err := d.exchange(e); err != nil {
			return Plan{}, err
		}
	}
	old := map[string]bool{}
	for _, q := range plan.Queues {
		isOld, err := d.queue(q)
		if err != nil {
			return Plan{}, err
		}
		if isOld {
			old[q.Name] = true
		}
	}
	if len(old) > 0 {
		if plan, err = newPlan(version, old, specs); err != nil {
			return Plan{}, err
		}
	}
	for _, b := range plan.Bindings {
		if err := d.bind(b); err != nil {
			return Plan{}, err
		}
	}
	return plan, nil
}

// Resolve returns the route of a source as the connected broker has it, and
// declares nothing that is missing. For a work queue it says whether a nacked
// message climbs the ladder, and it fails if a part is missing, or has other
// arguments than ours (a *[ConflictError]): what is sent there might be lost.
//
// A broker that refuses to say (no permission to configure the queues) leaves
// the route on [Republish], which is right in every wiring, and without
// HasDLX.
func Resolve(ctx context.Context, conn *connection.Conn, source Source) (Route, error) {
	route := source.Route()
	if err := route.Validate(); err != nil {
		return Route{}, err
	}
	if route.work == nil {
		return route, nil
	}
	d := declarer{ctx: ctx, conn: conn}
	defer d.close()
	if err := d.open(); err != nil {
		return Route{}, err
	}
	plan, err := NewPlan(d.session.Server().Version, *route.work)
	if err != nil {
		return Route{}, err
	}
	engine := plan.Engines[0].Engine
	for _, q := range plan.Queues {
		form, err := d.formOf(q)
		if err != nil {
			return Route{}, err
		}
		switch form {
		case formUnknown:
			route.HasDLX = false
			return route, nil
		case formOld:
			engine = Republish
		}
	}
	if engine == Ladder && len(route.Waits) > 0 {
		route.engine = Ladder
	}
	return route, nil
}

// form is which arguments a queue was found with.
type form uint8

const (
	formUnknown form = iota
	formToday
	formOld
)

// formOf looks at a queue that should exist.
func (d *declarer) formOf(q PlannedQueue) (form, error) {
	refused, err := d.do(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(q.Name, true, false, false, false, q.Args)
		return err
	})
	switch {
	case err != nil:
		return 0, fmt.Errorf("topology: look at queue %q: %w", q.Name, err)
	case refused == nil:
	case refused.Code == amqp.NotFound:
		return 0, fmt.Errorf("topology: queue %q does not exist: declare its work queue first: %w", q.Name, refused)
	default:
		return formUnknown, nil
	}
	if q.Owner == "" {
		return formToday, nil // the dead-letter queue may be declared in its own way
	}
	isOld, err := d.queue(q)
	switch {
	case errors.Is(err, errNoPermission):
		return formUnknown, nil
	case err != nil:
		return 0, err
	case isOld:
		return formOld, nil
	}
	return formToday, nil
}

// declarer declares one thing after the other and opens a new session when a
// refusal has closed the last one.
type declarer struct {
	ctx     context.Context
	conn    *connection.Conn
	session *connection.Session
}

func (d *declarer) open() (err error) {
	d.close()
	d.session, err = d.conn.Session(d.ctx, connection.Consume)
	return err
}

func (d *declarer) close() {
	if d.session != nil {
		// Nothing is in flight on it; a lost session is closed already.
		_ = d.session.Close()
	}
	d.session = nil
}

// do runs one call. refused is the broker's reason when it refused the call
// and closed the channel for it, which is replaced by a new one.
func (d *declarer) do(call func(*amqp.Channel) error) (refused *amqp.Error, err error) {
	err = d.session.Do(d.ctx, call)
	if err == nil {
		return nil, nil
	}
	if errors.As(err, &refused) && refused.Server && refused.Recover {
		if err := d.open(); err != nil {
			return nil, err
		}
		return refused, nil
	}
	return nil, err
}

// boundExchanges finds out whether the exchanges exist that are bound to and
// not declared here, before anything is.
func (d *declarer) boundExchanges(plan Plan) error {
	known := map[string]bool{}
	for _, e := range plan.Exchanges {
		known[e.Name] = true
	}
	for _, b := range plan.Bindings {
		if known[b.Exchange] {
			continue
		}
		known[b.Exchange] = true
		refused, err := d.do(func(ch *amqp.Channel) error {
			return ch.ExchangeDeclarePassive(b.Exchange, amqp.ExchangeTopic, true, false, false, false, nil)
		})
		if err != nil {
			return fmt.Errorf("topology: look at exchange %q: %w", b.Exchange, err)
		}
		if refused != nil && refused.Code == amqp.NotFound {
			return fmt.Errorf("topology: queue %q binds to exchange %q, which does not exist: declare it before, or in the same call (topology.Exchange{Name: %q}): %w",
				b.Queue, b.Exchange, b.Exchange, refused)
		}
	}
	return nil
}

func (d *declarer) exchange(e PlannedExchange) error {
	refused, err := d.do(func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(e.Name, e.Kind, true, false, false, false, e.Args)
	})
	if err != nil {
		return fmt.Errorf("topology: declare exchange %q: %w", e.Name, err)
	}
	if refused != nil {
		return refusal("exchange", e.Name, "", refused)
	}
	return nil
}

// queue declares q and reports whether it was found in its 3.x form.
func (d *declarer) queue(q PlannedQueue) (isOld bool, err error) {
	refused, err := d.declareQueue(q.Name, q.Args)
	if err != nil || refused == nil {
		return false, err
	}
	if q.OldArgs != nil && refused.Code == amqp.PreconditionFailed {
		again, err := d.declareQueue(q.Name, q.OldArgs)
		if err != nil || again == nil {
			return true, err
		}
		// An argument that only the upgrade brought is not what differs.
		if broughtByUpgrade(refused) {
			refused = again
		}
	}
	return false, refusal("queue", q.Name, q.Owner, refused)
}

func (d *declarer) declareQueue(name string, args amqp.Table) (*amqp.Error, error) {
	refused, err := d.do(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, args)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("topology: declare queue %q: %w", name, err)
	}
	return refused, nil
}

func (d *declarer) bind(b PlannedBinding) error {
	refused, err := d.do(func(ch *amqp.Channel) error {
		switch {
		case b.ToExchange != "" && b.Remove:
			return ch.ExchangeUnbind(b.ToExchange, b.Key, b.Exchange, false, b.Args)
		case b.ToExchange != "":
			return ch.ExchangeBind(b.ToExchange, b.Key, b.Exchange, false, b.Args)
		case b.Remove:
			return ch.QueueUnbind(b.Queue, b.Key, b.Exchange, b.Args)
		}
		return ch.QueueBind(b.Queue, b.Key, b.Exchange, false, b.Args)
	})
	switch {
	case err != nil:
		return fmt.Errorf("topology: bind %s: %w", b.describe(), err)
	case refused == nil, b.Remove && refused.Code == amqp.NotFound:
		return nil
	}
	return refusal("binding", b.describe(), "", refused)
}
