package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer/internal/consumertimeout"
	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/consumer/internal/intake"
	"github.com/rehop/rehop/consumer/internal/work"
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
	over      bool            // of a batch: its settling has begun
	batch     *batch          // that a worker makes of its grant; only of the first message
	ctx       context.Context // of the handler and the hooks
	pauses    *pause.Growing  // between the runs while it is held; nil: it was not
	*ending
}

// ending is the result of the handler, and what was decided.
type ending struct {
	result
	decision
}

// succeeded is the ending of every message whose handler returns nil. It is shared,
// because it would be a third of a message's memory: nobody changes it.
var succeeded = &ending{result: result{outcome: Outcome{Action: ActionDone}}, decision: done}

// attemptOf returns the attempt at a message.
func attemptOf(m *hand.Message) *attempt {
	return m.Observer.(*attempt) //nolint:forcetypeassert // session.Message sets it
}

// begin begins the attempt at a message. It returns false, and a decision is made, if
// the handler does not get the message, or gets it only after it was kept for a while.
func (r *run) begin(w *hand.Worker, a *attempt) (ok bool) {
	yield.Here()
	s := a.in
	a.ctx, a.Delivery = s.working, &a.first
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
		a.ending = &ending{res, v}
		r.logSkew(a)
		return false
	}
	// It would be handled in vain; or, in order, before an earlier message of its key: between the
	// stop and Lane.Finish a held message gives its key back.
	if s.working.Err() != nil || r.ordered() && s.stop.Err() != nil {
		a.ending = &ending{decision: requeue}
		return false
	}
	if r.isLate(a, now) {
		s.hand.EndInOrder(intake.ErrWaited, now, &w.Out)
		r.pool.Do(&w.Out)
		a.ending = &ending{decision: requeue}
		if s.terms.isScarce(a.Delivery) {
			a.Instruction = *s.terms.toTheEnd(a.Raw, a.Delivery, now)
		}
		return false
	}
	return true
}

// isLate reports whether a message of a session in order has waited for too long to begin with
// it. While the gate is not open it may be the one that is tried, and it goes back at the hold
// limit.
func (r *run) isLate(a *attempt, now time.Time) bool {
	return r.ordered() && a.Age(now) > a.in.intake.BeginLimit() && r.lane.IsOpen()
}

// Handle handles the messages of a grant. It is called by package work, once more after
// messages were held.
func (r *run) Handle(w *hand.Worker, g *hand.Grant) (next *hand.Grant, ended bool) {
	if r.batch != nil {
		return r.handleBatch(w, g)
	}
	return r.handle(w, g)
}

// handle runs the handler on the one message of a grant, and has it settled or held.
func (r *run) handle(w *hand.Worker, g *hand.Grant) (next *hand.Grant, ended bool) {
	a := attemptOf(g.Of[0])
	switch {
	case g.Held == 0:
		if !r.begin(w, a) {
			if a.Keep > 0 {
				kind := hand.UntilDue
				if a.Move == work.Hold {
					kind = hand.ToBegin
				}
				return r.hand.Hold(w, g, hand.Hold{Kind: kind, For: a.Keep, Until: r.holdUntil(a)}, time.Now())
			}
			return r.settle(w, g, a)
		}
	case g.LetGo:
		a.in.hand.EndInOrder(hand.ErrHeld, time.Now(), &w.Out)
		if a.unheld(); g.Held.IsEarly() {
			a.decision = requeue
		}
		return r.settle(w, g, a)
	case g.Held == hand.UntilDue:
		return r.settle(w, g, a)
	case a.inPlace:
		a.Attempt++
		a.LastAttempt = a.Attempt > len(a.in.terms.route.Waits)
	}
	returned := false
	defer func() {
		if !returned { // runtime.Goexit: only deferred calls still run
			r.gone(g, a)
		}
	}()
	a.ending = r.decide(a, r.runHandler(w, g, a))
	returned = true
	if a.Move == work.Hold {
		return r.hold(w, g, a)
	}
	return r.settle(w, g, a)
}

// settle has the one message of a grant settled by its instruction, and returns the next grant.
func (r *run) settle(w *hand.Worker, g *hand.Grant, a *attempt) (next *hand.Grant, ended bool) {
	yield.Here()
	if a.Move != work.Copy {
		return r.hand.Handled(w, g, time.Now(), hand.Told{Message: &a.Message, Verb: hand.Verb(a.Move)})
	}
	r.beginSettling(&w.Out, a)
	return r.hand.Handled(w, g, time.Now())
}

// beginSettling begins the settling of messages whose grant the worker still has.
func (r *run) beginSettling(out *hand.Out, as ...*attempt) {
	told := make([]hand.Told, len(as))
	var copied []work.Task
	for i, a := range as {
		told[i] = hand.Told{Message: &a.Message, Verb: hand.Verb(a.Move)}
		if a.Move == work.Copy {
			copied = append(copied, work.Task{Message: &a.Message, Instruction: &a.Instruction})
		}
	}
	r.hand.Settle(time.Now(), out, told...)
	r.pool.Do(out)
	if len(copied) > 0 {
		r.copies.Send(copied...)
	}
}

// gone settles the message of a handler that has ended its goroutine.
func (r *run) gone(g *hand.Grant, a *attempt) {
	var out hand.Out
	a.ending = r.decide(a, a.leftGone())
	if a.Move == work.Hold { // nothing can be handled here again
		pause.While(a.in.working, a.in.stop, time.Second)
		a.in.hand.EndInOrder(hand.ErrHeld, time.Now(), &out)
		a.unheld()
	}
	r.beginSettling(&out, a)
}

// hold holds the one message of a grant until its handler may run again.
func (r *run) hold(w *hand.Worker, g *hand.Grant, a *attempt) (next *hand.Grant, ended bool) {
	if a.pauses == nil { // most messages are never held
		a.pauses = heldPauses()
	}
	now := time.Now()
	wait := r.heldFor(a, a.pauses.Next(), now)
	if a.inPlace {
		next := *a.Delivery // the handler may have kept the one that it had
		next.firstFailed = cmp.Or(next.firstFailed, now)
		a.Delivery = &next
		r.logInPlace(a)
	} else {
		r.faultLog.Warn("message held", errors.New(a.text), "queue", a.Queue, "message", a.ID, "attempt", a.Attempt, "again_in", wait)
	}
	kind := hand.ForAnother
	if a.in.terms.inPlace && (a.inPlace || a.Attempt > 1) { // its count would begin anew elsewhere
		kind = hand.ForNextHere
	}
	return r.hand.Hold(w, g, hand.Hold{Kind: kind, For: wait, Until: r.holdUntil(a)}, now)
}

// heldFor returns how long a message is held until its handler may run again. pause is the
// next of heldPauses, for an error that names no time.
func (r *run) heldFor(a *attempt, pause time.Duration, now time.Time) time.Duration {
	switch {
	case a.inPlace:
		return a.Keep
	case !a.exact:
		return min(max(pause, a.Keep), consumertimeout.LongestHold)
	}
	left := r.holdUntil(a).Sub(now)
	if a.Keep > left {
		r.faultLog.Warn("message held for less time than its handler has asked for: at the hold limit it goes back to its queue", errors.New(a.text),
			"queue", a.Queue, "message", a.ID, "asked", a.Keep, "hold_limit", r.timeout.HoldLimit(), "held", left)
	}
	return min(a.Keep, left)
}

// heldPauses returns the pauses between the runs of a handler while its message is held.
func heldPauses() *pause.Growing { return pause.Grow(200*time.Millisecond, 30*time.Second) }

// holdUntil is when a message can be held no longer.
func (r *run) holdUntil(a *attempt) time.Time { return a.Received.Add(r.timeout.HoldLimit()) }

// decide returns the ending of a message after its handler has returned.
func (r *run) decide(a *attempt, res result) *ending {
	if res.err == nil {
		return succeeded
	}
	interrupted := a.in.working.Err() != nil
	t, now := a.in.terms, time.Now()
	t.holds = r.timeout.HoldLimit() - a.Age(now)
	v := t.decide(a.Raw, a.Delivery, res, interrupted, now)
	if v.inPlace && a.Age(now)+v.Keep >= r.timeout.HoldLimit() {
		t.inPlace = false // it would go back to its queue first, and its count begin anew
		v = t.decide(a.Raw, a.Delivery, res, interrupted, now)
	}
	return &ending{res, v}
}

// unheld is the decision on a held message that can be kept no longer.
func (e *ending) unheld() {
	if e.Instead != nil {
		e.Instruction = *e.Instead
		return
	}
	e.Instruction = requeue.Instruction
}

// left returns the result of a run with ctx that returned err: the message's own error decides,
// if there is one.
func (a *attempt) left(ctx context.Context, err error) result {
	if own := a.own.end(); own != nil {
		err = own
	}
	return judged(explained(ctx, err))
}

// leftGone is left for a handler that has ended its goroutine.
func (a *attempt) leftGone() result {
	res := a.left(a.in.working, errGoexit)
	res.gone = true
	return res
}

// runHandler runs the handler once and finds out what its error means.
func (r *run) runHandler(w *hand.Worker, g *hand.Grant, a *attempt) (res result) {
	ctx, end := r.withTimeouts(a.ctx, a.Received, func() []*attempt { return []*attempt{a} })
	defer end()
	start := time.Now()
	r.hand.Runs(&a.Message)
	a.own.begin()
	ended := false // the handler has returned, and its error has a meaning
	defer func() {
		if v := recover(); v != nil {
			panicked := &PanicError{Value: v, Stack: debug.Stack()}
			if res = a.left(ctx, panicked); res.err != error(panicked) { //nolint:errorlint // an error of its own may be any, and Is would call its methods
				r.logHiddenPanic(panicked, a.ID)
			}
		} else if !ended {
			res = a.leftGone()
		}
		r.handled.Add(1)
		r.noteRun(w, a.in, g, res.outcome.Action == ActionHold, res.text)
		if r.trace.Handled != nil {
			r.trace.Handled(a.ctx, Handled{Delivery: a.Delivery, Err: res.err, Took: time.Since(start)})
		}
	}()
	res = a.left(ctx, r.handler(ctx, a.Delivery))
	ended = true
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
	a.in.run.logFailedCopy(&a.Message, to, err)
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
