package topology

import (
	"errors"
	"fmt"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/route"
)

// Source is what a consumer reads: a [WorkQueue], [Lanes], a [DeadLetterQueue],
// or a [Route] written by hand for a queue that others declared.
type Source interface{ Route() Route }

// Address is where a message is published to: an exchange and a routing key.
// The empty exchange is the default exchange, where the key is a queue's name.
type Address struct{ Exchange, Key string }

// IsZero reports whether no address is given.
func (a Address) IsZero() bool { return a == Address{} }

func (a Address) String() string {
	if a.Exchange == "" {
		return fmt.Sprintf("queue %q", a.Key)
	}
	return fmt.Sprintf("exchange %q, key %q", a.Exchange, a.Key)
}

// Route is what a consumer must know about the queue it reads: where a failed
// attempt waits and where a dead letter goes. Write one for a queue that
// others declared; that queue's own arguments stay as they are.
type Route struct {
	// Queue to consume.
	Queue string

	// Waits between attempts, and WaitAt, for each wait, the address of a
	// queue whose messages come back to Queue after it. A failed attempt is
	// always sent there as a confirmed copy.
	Waits  delay.Schedule
	WaitAt []Address

	// DeadLetter is where the consumer sends what failed for good. If it is
	// zero, no such place is known, and a message that failed for good is held
	// and handled again.
	DeadLetter Address

	// work is set for the route of a WorkQueue.
	work *WorkQueue

	// lanes is set for the route of Lanes.
	lanes *Lanes

	// letters is set for the route of a DeadLetterQueue.
	letters bool

	// The rest is what Resolve found out.
	engine Engine
	rungs  []route.Rung // as many as Waits, or none
	carry  []route.Wait
	blind  bool // the arguments of the queues could not be looked at
}

// planned returns the route of a work queue on a broker that has what is planned.
func (r Route) planned(e PlannedEngine) Route {
	r.engine, r.rungs, r.carry = e.Engine, e.rungs, e.carry
	r.WaitAt = nil
	for _, rung := range e.rungs {
		r.WaitAt = append(r.WaitAt, Address{Key: rung.Queue})
	}
	return r
}

// Route returns the route of this work queue's messages as far as it is known
// without the broker: by the engine [Republish], through the queues of
// [WorkQueue.WaitQueue]. [Resolve] asks the broker for the rest.
func (w WorkQueue) Route() Route {
	r := Route{
		Queue:      w.Name,
		Waits:      w.Waits,
		DeadLetter: Address{Key: w.DeadLetterQueue().Name},
		work:       &w,
	}
	for rung := range w.Waits {
		r.WaitAt = append(r.WaitAt, Address{Key: w.WaitQueue(rung + 1)})
	}
	return r
}

// Route returns a route without waits: a message that fails in a dead-letter queue
// is held and handled again.
func (q DeadLetterQueue) Route() Route { return Route{Queue: q.Name, letters: true} }

// Route returns r itself.
func (r Route) Route() Route { return r }

// Validate returns everything that is wrong with the route.
func (r Route) Validate() error {
	if r.work != nil {
		return r.work.validate()
	}
	if r.lanes != nil {
		return r.lanes.validate()
	}
	var errs []error
	if r.Queue == "" {
		errs = append(errs, errors.New("topology: Route.Queue is empty"))
	}
	errs = append(errs, validateLength("Route.Queue", r.Queue))
	if err := r.Waits.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("topology: Route.Waits: %w", err))
	}
	if len(r.WaitAt) != len(r.Waits) {
		errs = append(errs, fmt.Errorf("topology: Route.WaitAt has %d addresses, want %d, one for each of Waits", len(r.WaitAt), len(r.Waits)))
	}
	for i, a := range r.WaitAt {
		if a.IsZero() {
			errs = append(errs, fmt.Errorf("topology: Route.WaitAt[%d] is empty", i))
		}
		errs = append(errs, validateLength(fmt.Sprintf("Route.WaitAt[%d].Exchange", i), a.Exchange),
			validateLength(fmt.Sprintf("Route.WaitAt[%d].Key", i), a.Key))
	}
	errs = append(errs, validateLength("Route.DeadLetter.Exchange", r.DeadLetter.Exchange),
		validateLength("Route.DeadLetter.Key", r.DeadLetter.Key))
	return connection.WithClass(errors.Join(errs...), connection.Bug)
}

// Engine returns how failed attempts reach their wait on this route.
func (r Route) Engine() Engine {
	if r.engine == Auto {
		return Republish
	}
	return r.engine
}

func init() {
	route.Of = func(r any) route.Facts { return r.(Route).facts() }
}

// facts returns what package consumer has to know beside the exported fields.
func (r Route) facts() route.Facts {
	f := route.Facts{Queue: r.Queue, Letters: r.letters, Rungs: r.rungs, Carry: r.carry, Unseen: r.blind}
	if r.work != nil {
		f.Ours, f.Retry = true, r.work.retryExchange()
		if r.work.Type.orDefault() == Quorum && !r.work.Existing {
			f.DeliveryLimit = DeliveryLimit
		}
	}
	return f
}
