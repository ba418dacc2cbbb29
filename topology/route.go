package topology

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
)

// Source is something a consumer reads: a [WorkQueue], a [DeadLetterQueue], or
// a [Route] written by hand for a queue that others declared.
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

	// DeadLetter is where the consumer sends what failed for good. Zero: no
	// such place is known, and a failed message is held and handled again.
	DeadLetter Address

	// HasDLX says that a message which the consumer nacks without requeue is
	// kept, because Queue has a dead-letter exchange that leads somewhere.
	// Leave it false when in doubt: such a nack deletes the message then.
	HasDLX bool

	// work is set for the route of a WorkQueue, and retry is the name of its
	// retry exchange.
	work  *WorkQueue
	retry string

	// letters is set for the route of a DeadLetterQueue.
	letters bool

	// engine is what Resolve found out; Republish until then.
	engine Engine
}

// Route returns the way of this work queue's messages, with the engine
// [Republish], which is right in every wiring; [Resolve] asks the broker for
// more.
func (w WorkQueue) Route() Route {
	r := Route{
		Queue:      w.Name,
		Waits:      w.Waits,
		DeadLetter: Address{Key: w.DeadLetterQueue().Name},
		HasDLX:     true,
		work:       &w,
		retry:      w.retryExchange(),
	}
	for rung := range w.Waits {
		r.WaitAt = append(r.WaitAt, Address{Key: w.WaitQueue(rung + 1)})
	}
	return r
}

// Route returns the way of a dead-letter queue's messages: none. What fails
// there is held and handled again.
func (q DeadLetterQueue) Route() Route { return Route{Queue: q.Name, letters: true} }

// Route returns r itself.
func (r Route) Route() Route { return r }

// Validate returns everything that is wrong with the route.
func (r Route) Validate() error {
	if r.work != nil {
		return r.work.validate()
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
	if r.engine == Ladder {
		return Ladder
	}
	return Republish
}

// Returned reports whether a delivery that came through exchange was in one of
// this route's waits. It is false for a route written by hand, whose waits are
// not ours to know.
func (r Route) Returned(exchange string) bool {
	return r.work != nil && exchange == r.retry
}

// NackLandsOn returns the rung of the wait queue in which a message with these
// routing keys (its own and those of CC) lands when it is nacked without
// requeue; len(Waits)+1 stands for the dead-letter queue. It returns 0 if the
// broker does not bring a nacked message to a wait on this route, or if the
// keys lead to several places.
func (r Route) NackLandsOn(keys ...string) int {
	if r.Engine() != Ladder {
		return 0
	}
	lands := 0
	for _, key := range keys {
		rung := 1 // a key the ladder does not know: the first failure
		if k, ok := strings.CutPrefix(key, r.work.Name); ok && strings.HasPrefix(k, "@") {
			if n, err := strconv.Atoi(k[1:]); err == nil && n >= 1 && n <= len(r.Waits) && key == r.work.rungKey(n) {
				rung = n + 1
			}
		}
		if lands != 0 && rung != lands {
			return 0
		}
		lands = rung
	}
	return lands
}

// DeliveryLimit returns how often the broker hands out a message of this queue
// that comes back unsettled, or 0 if that is unlimited or unknown.
func (r Route) DeliveryLimit() int {
	if r.work != nil && r.work.Type.orDefault() == Quorum {
		return DeliveryLimit
	}
	return 0
}

// DeadLetters reports whether the route is that of a [DeadLetterQueue].
func (r Route) DeadLetters() bool { return r.letters }

// Ours reports whether the route is that of a [WorkQueue], whose waits and
// exchanges the SDK has declared.
func (r Route) Ours() bool { return r.work != nil }
