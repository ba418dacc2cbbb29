package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/internal/yield"
	"github.com/rehop/rehop/topology"
)

// PanicError is the error of a handler that panicked.
type PanicError struct {
	Value any    // passed to panic
	Stack []byte // of the handler
}

// Error prints the value, and only the type of one whose methods panic with such a value.
func (e *PanicError) Error() (text string) {
	defer func() {
		if recover() != nil { // fmt prints a panic of a method, but not one in printing that
			text = fmt.Sprintf("panic: a %T, which cannot be printed", e.Value)
		}
	}()
	return fmt.Sprintf("panic: %v", e.Value)
}

// Class returns rehop.ClassBug.
func (e *PanicError) Class() rehop.Class { return rehop.ClassBug }

// outcome returns the outcome of the error that was passed to panic. A value that is no
// error, or whose methods panic, is a failed attempt.
func (e *PanicError) outcome() (o Outcome) {
	o = Outcome{Action: ActionRetry}
	defer func() { _ = recover() }()
	if err, ok := e.Value.(error); ok {
		o = OutcomeOf(err)
	}
	return o
}

// unreadableError says why package connection has removed the headers of a message.
type unreadableError struct{ why string }

func (e *unreadableError) Error() string {
	return "the client library cannot read the headers of this message, which are lost: " + e.why
}

// Class returns rehop.ClassBug: the message will not become readable.
func (e *unreadableError) Class() rehop.Class { return rehop.ClassBug }

var errGoexit = rehop.WithClass(errors.New("the handler ended its goroutine (runtime.Goexit) without returning"), rehop.ClassBug)

// result is how one run of the handler ended.
type result struct {
	err     error
	outcome Outcome
	text    string // of err
	gone    bool   // the handler has ended its goroutine
	vague   bool   // the error is of several messages, and does not tell which are at fault
}

func resultOf(err error, o Outcome) result { return result{err: err, outcome: o, text: err.Error()} }

// judged returns the result of a run that has left err. The methods of an error are the
// user's code and may panic; those of a typed nil often do.
func judged(err error) (res result) {
	if err == nil {
		return result{outcome: Outcome{Action: ActionDone}}
	}
	var known Outcome
	defer func() {
		if v := recover(); v != nil {
			panicked := &PanicError{Value: v, Stack: debug.Stack()}
			if known.Action == "" || known.Action == ActionRetry {
				res = resultOf(panicked, panicked.outcome())
				return
			}
			// Only the text is lost: the hooks see the outcome, too.
			res = resultOf(withOutcome(known, panicked, ""), known)
		}
	}()
	known = OutcomeOf(err)
	return resultOf(err, known)
}

// stack returns the stack of a handler that panicked, or of a method of its error.
func (r result) stack() string {
	err := r.err
	if o, ok := err.(*outcomeError); ok { //nolint:errorlint // judged and outcomesOf wrap a PanicError once
		err = o.cause
	}
	if panicked, ok := err.(*PanicError); ok {
		return string(panicked.Stack)
	}
	return ""
}

// attempt is a message, and what is known of it once a worker has it.
type attempt struct {
	hand.Message
	*Delivery // first, or of a later attempt in place; nil: nobody has read it
	first     Delivery
	own       ownError // of Delivery
	in        *session
	stage     stage
	ctx       context.Context // of the handler and the hooks
	pauses    *pause.Growing  // between the runs while its grant is held; only of the first message of that
	*ending
}

// ending is the result of the handler, and what was decided.
type ending struct {
	result
	decision
	due time.Time // of a held message: when its handler may run again
}

// succeeded is the ending of every message whose handler returns nil. It is shared,
// because it would be a third of a message's memory: nobody changes it.
var succeeded = &ending{result: result{outcome: Outcome{Action: ActionDone}}, decision: done}

// isInPlace reports whether a held message waits for its next attempt: one has failed, and it was
// not the last.
func (a *attempt) isInPlace() bool {
	return (a.outcome.Action == ActionRetry || a.outcome.Action == ActionRetryAfter) && a.Attempt <= len(a.in.terms.route.Waits)
}

// isExact reports whether the handler of a held message has named the time for which it is held.
func (e *ending) isExact() bool { return e.outcome.Action == ActionHoldFor && e.outcome.After > 0 }

// attemptOf returns the attempt at a message.
func attemptOf(m *hand.Message) *attempt {
	return m.Observer.(*attempt) //nolint:forcetypeassert // session.Message sets it
}

// begin begins the attempt at a message. It returns false, and a decision is made, if
// the handler does not get the message, or gets it only after it was kept for a while.
func (r *run) begin(w *hand.Worker, a *attempt) (ok bool) {
	yield.Here()
	s := a.in
	a.ctx, a.Delivery = s.Working, &a.first
	malformed := a.read(&s.terms.route, a.Raw)
	a.Delivery.own = &a.own
	if malformed != nil {
		r.log.Warn("malformed headers count as absent", "queue", a.Queue, "message", a.ID, "error", malformed)
	}
	r.keyAdvice.note(r, a.Key, a.OrderKey)
	if r.trace.Received != nil {
		a.ctx = r.trace.Received(a.ctx, a.Delivery)
	}
	now := time.Now()
	tookAway := a.Raw.Redelivered && r.timeout.TookAway(a.Raw)
	if v, res, ok := s.terms.decideUnhandled(a.Raw, a.Delivery, tookAway, now); ok {
		a.ending = &ending{result: res, decision: v}
		if a.skew > 0 {
			r.faultLog.Warn("a message is back from its wait before it is due, and waits on: the clock of the process that sent it there is ahead of this one, or a policy cuts the wait short",
				fmt.Errorf("early by %v", a.skew.Round(time.Second)), "queue", a.Queue, "message", a.ID)
		}
		return false
	}
	// It would be handled in vain; or, in order, before an earlier message of its key: between the
	// stop and Lane.Finish a held message gives its key back.
	if s.Working.Err() != nil || r.ordered() && s.Stop.Err() != nil {
		a.ending = &ending{decision: requeue}
		return false
	}
	if r.isLate(a, now) {
		s.hand.BeginNoMore(hand.ErrWaited, now, &w.Out)
		r.pool.Do(&w.Out)
		a.ending = &ending{decision: requeue}
		// Of several lanes it may have waited for the suspects of another one: a copy would have no deaths behind it.
		if s.terms.isScarce(a.Delivery) && (!a.IsSuspect() || len(r.parts) == 1) {
			a.Instruction = *s.terms.toTheEnd(a.Raw, a.Delivery)
		}
		return false
	}
	return true
}

// isLate reports whether a message of a session in order has waited for too long to begin with
// it. While the gate is not open it may be the one that is tried, and it goes back at the hold
// limit.
func (r *run) isLate(a *attempt, now time.Time) bool {
	return r.ordered() && a.Age(now) > a.in.intake.BeginLimit() && r.lane.State(now).Open
}

// holdUntil is when a message can be held no longer.
func (r *run) holdUntil(a *attempt) time.Time { return a.Received.Add(r.timeout.HoldLimit()) }

// decide returns the ending of a message after its handler has returned.
func (r *run) decide(a *attempt, res result) *ending {
	if res.err == nil {
		return succeeded
	}
	interrupted := a.in.Working.Err() != nil
	t, now := a.in.terms, time.Now()
	t.holds = r.timeout.HoldLimit() - a.Age(now)
	return &ending{result: res, decision: t.decide(a.Raw, a.Delivery, res, interrupted, now)}
}

// unheld is the decision on a held message that can be kept no longer.
func (e *ending) unheld() {
	if e.Instead != nil {
		e.Instruction = *e.Instead
		return
	}
	e.Instruction = requeue.Instruction
}

// leftGone returns the result of a message whose handler has ended its goroutine.
func (a *attempt) leftGone() result {
	err := errGoexit
	if own := a.own.end(); own != nil {
		err = own
	}
	res := judged(explained(a.in.Working, err))
	res.gone = true
	return res
}

// Copied calls the hook. It is called by package work, and so are the other methods of
// hand.Observer.
func (a *attempt) Copied(to route.Target) {
	if hook := a.in.run.trace.Copied; hook != nil {
		hook(a.ctx, Copied{a.Delivery, topology.Address(to)})
	}
}

// Confirmed calls the hook.
func (a *attempt) Confirmed(to route.Target, instead bool) {
	if instead {
		a.settlement = requeue.settlement
	}
	if hook := a.in.run.trace.Confirmed; hook != nil {
		hook(a.ctx, Copied{a.Delivery, topology.Address(to)})
	}
}

// Unconfirmed logs why a copy is not confirmed.
func (a *attempt) Unconfirmed(to route.Target, err error) {
	r := a.in.run
	r.faultLog.Warn("copy not confirmed, its message is held", err, "queue", r.queue, "message", a.Raw.MessageId, "to", to.String())
}

// Settled calls the hook and logs, if a worker had the message. With err the broker has the
// message back.
func (a *attempt) Settled(v hand.Verb, err error) {
	if !a.WasTaken() {
		return
	}
	r, s := a.in.run, requeue.settlement
	if err == nil && v != hand.Requeue {
		s = a.settlement
	}
	r.logSettled(a, s)
	if r.trace.Settled != nil {
		r.trace.Settled(a.ctx, Settled{a.Delivery, s})
	}
}
