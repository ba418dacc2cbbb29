package consumer

import (
	"context"
	"log/slog"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/hooks"
	"github.com/rehop/rehop/topology"
)

// Trace is a set of hooks for metrics, traces and tests. Nil hooks are not called.
// The hooks of one delivery run one after the other. Received and Handled run on the
// goroutine of its handler, concurrently with the hooks of other deliveries. The
// other hooks may run on the goroutine of another delivery: Confirmed and Settled
// follow one another for all messages whose copies are confirmed together, and none
// of them is acked before the last Confirmed has returned. So hooks must return
// soon. A hook that waits, or calls runtime.Goexit, belongs on another goroutine. A
// panic in a hook is logged and harms nothing else.
type Trace struct {
	// Received: a delivery arrived; its handler has not run. The handler does not run
	// for a message that is not due yet, whose headers cannot be read, or that the
	// broker took away from a handler at its consumer timeout, and for none whose session
	// has been lost or, where messages keep an order, ends. Received returns ctx,
	// or a ctx derived from it, such as one with a span. The handler and the later
	// hooks of the delivery get the ctx that it returned, or ctx if it returned nil.
	// When Settled runs, that ctx may have ended.
	Received func(ctx context.Context, d *Delivery) context.Context

	// Handled: a run of the handler is over. It is called for every run of a [Handler], the
	// runs on a held message included. For a [BatchHandler] see BatchHandled. During a stop
	// a handler that obeys its ctx may return an error whose [OutcomeOf] is a retry,
	// although the message goes back to its queue and spends no attempt. Settled says where
	// the message went.
	Handled func(ctx context.Context, h Handled)

	// Batched: a [BatchHandler] is about to run. Batched returns the ctx for the handler:
	// ctx, or a ctx derived from it. It is called for every run of the handler, also with
	// parts of a batch.
	Batched func(ctx context.Context, b Batched) context.Context

	// BatchHandled: the run that Batched announced is over; ctx is the one from Batched.
	// When the outcome of a message is known, Handled follows once, with the message's error
	// and the time that the latest run took. A message that several runs had, because the
	// batch was split, gets one Handled for all of them. A message that is held gets another
	// Handled when it has been handled again.
	BatchHandled func(ctx context.Context, b BatchHandled)

	// Copied: a copy to another place was written; its confirm is awaited. It is not
	// called where the broker itself moves the message, see topology.Engine.
	Copied func(ctx context.Context, c Copied)

	// Confirmed: the broker has confirmed the copy that Copied reported; the
	// delivery is not acked yet.
	Confirmed func(ctx context.Context, c Copied)

	// Settled: the consumer is done with the delivery. Once for each Received,
	// unless the handler never returns.
	Settled func(ctx context.Context, s Settled)

	// Fetching: from now on the consumer asks the broker for another number of messages.
	Fetching func(f Fetching)

	// Due: under topology.EngineCarry, the wait of a message is over, and it is about
	// to be published to its queue. Due is called for each try. The hooks of one wait
	// queue run one after the other, on a goroutine of their own.
	Due func(c Carried)

	// Carried: the broker has confirmed the publish that Due announced; the message
	// is not acked in its wait queue yet.
	Carried func(c Carried)
}

// merged returns the hooks of all Traces as one Trace.
func merged(traces []Trace, log *slog.Logger) Trace {
	s := hooks.Of(traces, log, "consumer.Trace")
	type ctx = context.Context
	return Trace{
		Received:     hooks.Begin(s, "Received", func(t Trace) func(ctx, *Delivery) ctx { return t.Received }),
		Handled:      hooks.Two(s, "Handled", func(t Trace) func(ctx, Handled) { return t.Handled }),
		Batched:      hooks.Begin(s, "Batched", func(t Trace) func(ctx, Batched) ctx { return t.Batched }),
		BatchHandled: hooks.Two(s, "BatchHandled", func(t Trace) func(ctx, BatchHandled) { return t.BatchHandled }),
		Copied:       hooks.Two(s, "Copied", func(t Trace) func(ctx, Copied) { return t.Copied }),
		Confirmed:    hooks.Two(s, "Confirmed", func(t Trace) func(ctx, Copied) { return t.Confirmed }),
		Settled:      hooks.Two(s, "Settled", func(t Trace) func(ctx, Settled) { return t.Settled }),
		Fetching:     hooks.One(s, "Fetching", func(t Trace) func(Fetching) { return t.Fetching }),
		Due:          hooks.One(s, "Due", func(t Trace) func(Carried) { return t.Due }),
		Carried:      hooks.One(s, "Carried", func(t Trace) func(Carried) { return t.Carried }),
	}
}

// Handled is one run of a handler that is over.
type Handled struct {
	Delivery *Delivery

	// Err is the error that decides: the one that [Delivery.Fail] gave the message, or else
	// the one that the handler returned. After a panic without an error of its own it is a
	// *[PanicError].
	Err error

	Took time.Duration
}

// Batched is a run of a [BatchHandler] that is about to begin.
type Batched struct {
	Deliveries []*Delivery
	Contexts   []context.Context // what Received returned for each of them, in the same order
}

// BatchHandled is a run of a [BatchHandler] that is over.
type BatchHandled struct {
	Deliveries []*Delivery // Delivery.Err is the error that one has of its own
	Err        error       // what the handler returned; after a panic a *PanicError
	Took       time.Duration
}

// Copied is a copy of a message on its way to another place.
type Copied struct {
	Delivery *Delivery
	To       topology.Address
}

// Settled is a delivery that the consumer is done with.
type Settled struct {
	Delivery *Delivery
	Settlement
}

// Fetching is what a consumer asks the broker for.
type Fetching struct {
	Queue string

	// Prefetch is the number of unsettled messages that the broker sends at most. 0: none,
	// because the session has ended, or in an outage or a pause.
	Prefetch int
}

// Carried is a message that topology.EngineCarry brings back to its queue.
type Carried struct {
	Queue      string        // the wait queue
	WaitNumber int           // of the wait, from 1
	ID         string        // message-id
	Late       time.Duration // time since it was due, by this machine's clock; 0 if unknown
}

// Disposition is where a message is after it was settled. "" is invalid.
type Disposition string

// The dispositions.
const (
	DispositionDone       Disposition = "done"        // acked: handled, or discarded; an ack has no confirm
	DispositionWait       Disposition = "wait"        // in a wait; it will come back; a nack has no confirm, see topology.EngineNack
	DispositionDeadLetter Disposition = "dead-letter" // in the dead-letter queue
	DispositionRequeued   Disposition = "requeued"    // given back by the consumer, or by the end of its session; the broker tells nobody when it is in its queue again
)

// Settlement says where a message went.
type Settlement struct {
	Disposition Disposition
	WaitNumber  int           // for DispositionWait, from 1; 0: in topology.Delays
	Wait        time.Duration // for DispositionWait: its length, as far as the consumer knows
	Cause       rehop.Cause   // for DispositionDeadLetter
	Snoozed     bool          // snoozed, on its way to a wait or to the end of its queue
}
