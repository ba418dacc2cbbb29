package hand

import "time"

// Out is what is to be done after events. Each goroutine that has events owns one, and uses it
// again: an event adds to it, and work.Pool.Do carries it out and empties it. The caller of an
// event holds no lock then, so what an Out asks for may wait, and may run the user's code.
type Out struct {
	Start   bool       // a worker is to be started: a message can be handled, and none is idle
	Wake    time.Time  // Due is to be called then; zero: nothing new is waited for
	Over    []Told     // that the broker cannot be told of: their sessions are over
	Copy    []*Message // whose copies are to be sent to the end of their queue, see Lane.TakeBack
	Outages []*Lane    // in which an outage has begun, because no slot is left
	Blocked []*Lane    // in which messages that wait for their keys have kept other keys away for long
	Turns   []*Lane    // whose suspects are handled from now on, and no message of another lane
}

// IsEmpty reports whether there is nothing to do.
func (o *Out) IsEmpty() bool {
	return !o.Start && o.Wake.IsZero() && len(o.Over) == 0 && len(o.Copy) == 0 && len(o.Outages) == 0 && len(o.Blocked) == 0 && len(o.Turns) == 0
}

// Clear empties an Out.
func (o *Out) Clear() {
	clear(o.Over)
	clear(o.Copy)
	clear(o.Outages)
	clear(o.Blocked)
	clear(o.Turns)
	*o = Out{Over: o.Over[:0], Copy: o.Copy[:0], Outages: o.Outages[:0], Blocked: o.Blocked[:0], Turns: o.Turns[:0]}
}

// Signal tells one goroutine that waits for it to look again. One that comes while another is
// pending adds nothing.
type Signal chan struct{}

// NewSignal returns a Signal that is not set.
func NewSignal() Signal { return make(Signal, 1) }

func (s Signal) set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Worker is what one goroutine that handles messages has of its own.
type Worker struct {
	Out   Out
	Woken Signal // a message can be handled, or the worker is to end
	Told  []Told // messages that its next event is to settle; for its caller alone
}

// Forget empties Told.
func (w *Worker) Forget() {
	clear(w.Told)
	w.Told = w.Told[:0]
}
