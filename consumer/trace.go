package consumer

import (
	"time"

	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// Trace is a set of hooks for metrics and tests. Nil hooks are not called.
// Those of one delivery run one after the other. Received and Handled run on the
// goroutine of its handler, concurrently with those of other deliveries. The
// others may run on that of another delivery: Confirmed and Settled follow one
// another for all whose copies are confirmed together, and none of them is acked
// before the last Confirmed has returned. So hooks must be quick, and must
// return: what takes long, or calls runtime.Goexit, belongs on another goroutine. A
// hook that panics is logged.
type Trace struct {
	// Received: a delivery arrived; its handler has not run. It does not run at all
	// for a message that is not due yet, whose headers cannot be read, or that the
	// broker took away from a handler for its age.
	Received func(d *Delivery)

	// Handled: the handler returned err after took. Called for every run of
	// the handler, those on a held message included. During a stop, the
	// [OutcomeOf] an err by which the handler obeyed its ctx is a retry, though
	// the message goes back to its queue and spends no attempt: Settled says
	// where it went.
	Handled func(d *Delivery, err error, took time.Duration)

	// Copied: a copy to another place was written; its confirm is awaited. Not
	// where the broker itself moves the message, see topology.Engine.
	Copied func(d *Delivery, to topology.Address)

	// Confirmed: the broker confirmed that copy; the delivery is not acked.
	Confirmed func(d *Delivery, to topology.Address)

	// Settled: the consumer is done with the delivery. Once for each Received,
	// unless the handler never returns.
	Settled func(d *Delivery, s Settlement)

	// Due: under the engine carry, the wait of a message is over, and it is about
	// to be published to its queue; once more for each try. The hooks of one wait
	// queue run one after the other, on a goroutine of their own.
	Due func(c Carried)

	// Carried: the broker confirmed that; the message is not acked in its wait.
	Carried func(c Carried)
}

// Carried is a message that the engine carry brings back to its queue.
type Carried struct {
	Queue string        // the wait queue
	Rung  int           // of the wait, from 1
	ID    string        // message-id
	Late  time.Duration // since it was due, by this machine's clock; 0 if nothing says when
}

// Place is where a message is after it was settled.
type Place uint8

// The places. The zero value is invalid.
const (
	_               Place = iota
	PlaceDone             // acked: handled, or discarded; an ack has no confirm
	PlaceWait             // in a wait; it will come back; a nack has no confirm, see topology.Ladder
	PlaceDeadLetter       // in the dead-letter queue
	PlaceQueue            // back in its queue: requeued, not due yet, or the session was lost
)

func (p Place) String() string {
	return [...]string{"invalid", "done", "wait", "dead-letter", "queue"}[min(p, PlaceQueue)]
}

// Settlement says where a message went.
type Settlement struct {
	Place Place
	Rung  int          // of PlaceWait, from 1; 0: in topology.Delays, or the broker chose
	Cause xdeath.Cause // of PlaceDeadLetter
}
