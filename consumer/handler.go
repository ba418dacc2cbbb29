package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer/internal/flight"
	"github.com/rehop/rehop/consumer/internal/intake"
	"github.com/rehop/rehop/consumer/internal/schedule"
	"github.com/rehop/rehop/consumer/internal/settle"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/yield"
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

// attempt is a message that a worker has.
type attempt struct {
	*Delivery // first, or of a later attempt in place
	*flight.Message
	first Delivery
	own   ownError // of Delivery
	in    *session
	grant *schedule.Grant
	over  bool            // of a batch: its settling has begun
	ctx   context.Context // of the handler and the hooks
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
func attemptOf(m *flight.Message) *attempt {
	a, _ := m.User.(*attempt)
	return a
}

// begin makes the attempt at a message. It returns false, and an attempt with a decision, if
// the handler does not get the message, or gets it only after it was kept for a while.
func (r *run) begin(g *schedule.Grant, m *flight.Message) (a *attempt, ok bool) {
	yield.Here()
	s := m.In.Owner.(*session) //nolint:forcetypeassert // newSession sets it
	a = &attempt{Message: m, in: s, grant: g, ctx: s.working}
	a.Delivery = &a.first
	m.User = a
	malformed := a.read(&s.terms.route, m.Raw)
	a.Delivery.own = &a.own
	if malformed != nil {
		r.log.Warn("malformed headers count as absent", "queue", a.Queue, "message", a.ID, "error", malformed)
	}
	r.keyAdvice.note(r, m.Key, a.OrderKey)
	if r.trace.Received != nil {
		a.ctx = r.trace.Received(a.ctx, a.Delivery)
	}
	tookAway := m.Raw.Redelivered && r.timeout.TookAway(m.Raw)
	if v, res, ok := s.terms.decideUnhandled(m.Raw, a.Delivery, tookAway, time.Now()); ok {
		a.ending = &ending{res, v}
		r.logSkew(a)
		return a, false
	}
	// It would be handled in vain, or before earlier ones of its key: a held message gives its
	// slot and key back when a stop begins, before the gate is closed.
	if s.working.Err() != nil || r.ordered() && s.stop.Err() != nil {
		a.ending = &ending{decision: requeue}
		return a, false
	}
	if r.isLate(m, s) {
		s.leaveInOrder(intake.ErrWaited)
		a.ending = &ending{decision: requeue}
		if s.terms.isScarce(a.Delivery) {
			a.Instruction = *s.terms.toTheEnd(m.Raw, a.Delivery, time.Now())
		}
		return a, false
	}
	return a, true
}

// isLate reports whether a message of a session in order has waited for too long to begin with
// it. While the gate is not open it may be the one that is tried, and it goes back at the hold
// limit.
func (r *run) isLate(m *flight.Message, s *session) bool {
	return r.ordered() && m.Age() > s.beginLimit() && r.lane.IsOpen()
}

// handle runs the handler on the one message of a grant, and has it settled. It returns 1
// if the message keeps its slot beyond that, until its copy is confirmed.
func (r *run) handle(g *schedule.Grant) (kept int) {
	m := g.Of[0]
	a, ok := r.begin(g, m)
	s := a.in
	if !ok {
		stayed := a.Keep == 0 || r.keep(a, a.Keep)
		if !stayed {
			a.decision = requeue
		}
		if !stayed || a.Move != settle.Hold { // else it lacked a little of its wait
			m.Returned()
			return s.settling.Do(settle.Task{Message: m, Instruction: &a.Instruction})
		}
	}
	returned := false
	defer func() {
		if !returned { // runtime.Goexit: only deferred calls still run
			m.Returned()
			a.ending = r.decide(a, a.leftGone())
			if a.Move == settle.Hold { // nothing can be handled here again
				pause.While(s.working, s.stop, time.Second)
				s.leaveInOrder(intake.ErrHeld)
				a.unheld()
			}
			if s.settling.Do(settle.Task{Message: m, Instruction: &a.Instruction}) == 0 {
				r.schedule.Release(g)
			}
		}
	}()
	r.handleUntilDecided(a)
	returned = true
	return s.settling.Do(settle.Task{Message: m, Instruction: &a.Instruction})
}

// handleUntilDecided runs the handler, and again as long as the message is held.
func (r *run) handleUntilDecided(a *attempt) {
	var pauses *pause.Growing
	for {
		a.ending = r.decide(a, r.runHandler(a))
		a.Returned()
		if a.Move != settle.Hold {
			return
		}
		if pauses == nil { // most messages are never held
			pauses = pause.Grow(200*time.Millisecond, 30*time.Second)
		}
		wait := min(max(pauses.Next(), a.Keep), flight.LongestHold)
		if a.inPlace {
			wait = a.Keep
			next := *a.Delivery // the handler may have kept the one that it had
			next.firstFailed = cmp.Or(next.firstFailed, time.Now())
			a.Delivery = &next
			r.logInPlace(a)
		} else {
			r.faultLog.Warn("message held", errors.New(a.text), "queue", a.Queue, "message", a.ID, "attempt", a.Attempt, "again_in", wait)
		}
		inPlace := a.in.terms.inPlace && (a.inPlace || a.Attempt > 1) // its count would begin anew elsewhere
		if !r.lane.Hold(a.grant, wait, a.Received.Add(r.timeout.HoldLimit()), inPlace, a.in.working, a.in.stop) {
			a.in.leaveInOrder(intake.ErrHeld)
			a.unheld()
			return
		}
		if a.inPlace {
			a.Attempt++
			a.LastAttempt = a.Attempt > len(a.in.terms.route.Waits)
		}
	}
}

// decide returns the ending of a message after its handler has returned.
func (r *run) decide(a *attempt, res result) *ending {
	if res.err == nil {
		return succeeded
	}
	interrupted := a.in.working.Err() != nil
	t, now := a.in.terms, time.Now()
	t.holds = r.timeout.HoldLimit() - a.Age()
	v := t.decide(a.Raw, a.Delivery, res, interrupted, now)
	if v.inPlace && a.Age()+v.Keep >= r.timeout.HoldLimit() {
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

// keep keeps a message for d, and reports whether it may be kept afterwards.
func (r *run) keep(a *attempt, d time.Duration) bool {
	return a.Age()+d < r.timeout.HoldLimit() && pause.While(a.in.working, a.in.stop, d)
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
func (r *run) runHandler(a *attempt) (res result) {
	ctx, end := r.withTimeouts(a.ctx, a.Received, func() []*attempt { return []*attempt{a} })
	defer end()
	a.Running.Store(true)
	defer a.Running.Store(false)
	start := time.Now()
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
		r.noteRun(a.in, a.grant, res.outcome.Action == ActionHold, res.text)
		if r.trace.Handled != nil {
			r.trace.Handled(a.ctx, Handled{Delivery: a.Delivery, Err: res.err, Took: time.Since(start)})
		}
	}()
	res = a.left(ctx, r.handler(ctx, a.Delivery))
	ended = true
	return res
}

// settled is told of each message once: the broker has been told, or cannot be (err)
// and has the message back.
func (r *run) settled(m *flight.Message, v flight.Verb, err error) {
	defer m.In.End(m)
	r.lane.Settles(m.In)
	m.In.Settled(m)
	if a := attemptOf(m); a != nil && a.grant != nil { // a worker had it
		s := a.settlement
		if err != nil || v == flight.Requeue {
			s = requeue.settlement
		}
		r.logSettled(a, s)
		if r.trace.Settled != nil {
			r.trace.Settled(a.ctx, Settled{a.Delivery, s})
		}
	}
}
