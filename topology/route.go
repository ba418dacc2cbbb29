package topology

import (
	"errors"
	"fmt"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/route"
)

// Source is a queue, or several, that a consumer reads: a [WorkQueue], [Lanes], [Shards], a
// [DeadLetterQueue], a [Route] written by hand for a queue that others declared, or a
// pointer to one of them.
type Source interface {
	validate() error
	source() route.Source
}

// Address is the address of a message: an exchange and a routing key.
// The empty exchange is the default exchange, where the key is a queue's name.
type Address struct{ Exchange, RoutingKey string }

func (a Address) String() string { return route.Target(a).String() }

// Route tells a consumer about a queue that others declared: where a failed attempt
// waits and where a dead letter goes. The queue's own arguments stay as they are. A Route
// is a [Source].
//
// For a dead-letter queue of rehop take a [DeadLetterQueue]. The consumer of a Route takes a letter
// for a message of that queue: a letter that it puts off names that queue as the one where it failed.
type Route struct {
	// Queue to consume.
	Queue string

	// Waits between attempts, and WaitAt, for each wait, the address of a
	// queue whose messages come back to Queue after it. A failed attempt is
	// always sent there as a confirmed copy.
	Waits  delay.Schedule
	WaitAt []Address

	// DeadLetter is where the consumer sends a message that failed for good. If it is
	// zero, there is no such place: the consumer holds the message and handles it again.
	DeadLetter Address
}

func (r Route) validate() error {
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
		if a == (Address{}) {
			errs = append(errs, fmt.Errorf("topology: Route.WaitAt[%d] is empty", i))
		}
		errs = append(errs, validateLength(fmt.Sprintf("Route.WaitAt[%d].Exchange", i), a.Exchange),
			validateLength(fmt.Sprintf("Route.WaitAt[%d].RoutingKey", i), a.RoutingKey))
	}
	errs = append(errs, validateLength("Route.DeadLetter.Exchange", r.DeadLetter.Exchange),
		validateLength("Route.DeadLetter.RoutingKey", r.DeadLetter.RoutingKey))
	return errors.Join(errs...)
}

func (r Route) source() route.Source {
	found := route.Facts{Queue: r.Queue, Engine: route.Republish, DeadLetter: route.Target(r.DeadLetter)}
	for i, wait := range r.Waits {
		found.Waits = append(found.Waits, route.Wait{For: wait, At: route.Target(r.WaitAt[i])})
	}
	return asked(foreign(found))
}

// source returns the route of the queue as far as it is known without the broker: by
// the engine republish, through the queues that a first declaration makes.
func (w WorkQueue) source() route.Source { return asked(work{w: w}) }

func (w WorkQueue) route() route.Facts {
	r := route.Facts{
		Queue:      w.Name,
		Kind:       route.Work,
		Existing:   w.Existing,
		ByPriority: w.NativePriority,
		Single:     w.SingleActiveConsumer,

		ConsumerTimeout: w.ConsumerTimeout, // until the version of the broker is known
		Engine:          route.Republish,
		Return:          w.returnExchange(),
		DeadLetter:      route.Target{RoutingKey: w.DeadLetterQueue().Name},
	}
	if w.Type.orDefault() == Quorum && !w.Existing {
		r.DeliveryLimit = route.DeliveryLimit
	}
	for i, wait := range w.Waits {
		r.Waits = append(r.Waits, route.Wait{For: wait, At: route.Target{RoutingKey: route.WaitQueue(w.Name, i+1)}})
	}
	return r
}

// source returns a route without waits: a message that fails in a dead-letter queue
// is held and handled again.
func (q DeadLetterQueue) source() route.Source { return asked(letters{q}) }

func (l Lanes) source() route.Source {
	s := route.Source{Lanes: l.Name, Strict: l.strict()}
	for i, w := range l.WorkQueues() {
		r := w.source().Routes[0]
		r.Lane, r.Share = l.Lanes[i].Name, l.Lanes[i].Share
		s.Routes = append(s.Routes, r)
	}
	return s
}

// asker asks the broker about a queue whose route is known without it.
type asker interface {
	route.Broker
	route() route.Facts
}

func asked(a asker) route.Source {
	r := a.route()
	r.Broker = a
	return route.Source{Routes: []route.Facts{r}}
}

func init() { route.Of = sourceOf }

func sourceOf(source any) (route.Source, error) {
	s, _ := source.(Source)
	if s = value(s); s == nil {
		return route.Source{}, rehop.WithClass(errors.New("topology: source is nil"), rehop.ClassBug)
	}
	if err := s.validate(); err != nil {
		return route.Source{}, rehop.WithClass(err, rehop.ClassBug)
	}
	return s.source(), nil
}
