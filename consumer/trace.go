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
// return: what takes long, or calls runtime.Goexit, belongs on another goroutine.
type Trace struct {
	// Received: a delivery arrived; its handler has not run, and does not where
	// a RetryAfter beyond the longest wait is not due yet.
	Received func(d *Delivery)

	// Handled: the handler returned err after took. Called for every run of
	// the handler, those on a held message included.
	Handled func(d *Delivery, err error, took time.Duration)

	// Copied: a copy to another place was written; its confirm is awaited. Not
	// where the broker itself moves the message, see topology.Engine.
	Copied func(d *Delivery, to topology.Address)

	// Confirmed: the broker confirmed that copy; the delivery is not acked.
	Confirmed func(d *Delivery, to topology.Address)

	// Settled: the consumer is done with the delivery. Once for each Received,
	// unless the handler never returns.
	Settled func(d *Delivery, s Settlement)
}

// Place is where a message is after it was settled.
type Place uint8

// The places. The zero value is invalid.
const (
	_               Place = iota
	PlaceDone             // acked: handled, or discarded; an ack has no confirm
	PlaceWait             // in a wait; it will come back
	PlaceDeadLetter       // in the dead-letter queue
	PlaceQueue            // back in its queue: requeued, or the session was lost
)

func (p Place) String() string {
	return [...]string{"invalid", "done", "wait", "dead letter", "queue"}[min(p, PlaceQueue)]
}

// Settlement says where a message went.
type Settlement struct {
	Place Place
	Rung  int          // of PlaceWait, from 1; 0 if the broker chose
	Cause xdeath.Cause // of PlaceDeadLetter
}

func (t Trace) received(d *Delivery) {
	if t.Received != nil {
		t.Received(d)
	}
}

func (t Trace) handled(d *Delivery, err error, took time.Duration) {
	if t.Handled != nil {
		t.Handled(d, err, took)
	}
}

func (t Trace) copied(d *Delivery, to topology.Address) {
	if t.Copied != nil {
		t.Copied(d, to)
	}
}

func (t Trace) confirmed(d *Delivery, to topology.Address) {
	if t.Confirmed != nil {
		t.Confirmed(d, to)
	}
}

func (t Trace) settled(d *Delivery, s Settlement) {
	if t.Settled != nil {
		t.Settled(d, s)
	}
}
