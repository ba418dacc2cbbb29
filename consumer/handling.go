package consumer

import (
	"cmp"
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"time"

	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/consumer/internal/work"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/yield"
)

// handling is the work on a grant, from the time when a worker has it until the worker is done
// with it, or holds it. With a Handler the grant has one message.
type handling struct {
	*run
	worker *hand.Worker
	grant  *hand.Grant
	in     *session
	with   []*hand.Message // of the latest run of the handler; nil: there was none
	began  time.Time       // that run
}

// stage is how far the handling of a message has come.
type stage uint8

const (
	unbegun  stage = iota
	notDue         // it is kept for a while
	toHandle       // its handler is to run, or to run again
	settled
)

func (s stage) is(a *attempt) bool { return a.stage == s }

// Handle handles the messages of a grant. It is called by package work, once more after
// messages were held.
func (r *run) Handle(w *hand.Worker, g *hand.Grant) (next *hand.Grant, ended bool) {
	h := handling{run: r, worker: w, grant: g, in: attemptOf(g.Of[0]).in}
	returned := false
	defer func() {
		if !returned { // runtime.Goexit: only deferred calls still run
			h.gone()
		}
	}()
	if ms := h.next(); len(ms) > 0 {
		h.handle(ms)
	}
	returned = true
	now := time.Now()
	if hold, stays := h.hold(now); stays {
		h.settleNow()
		return r.hand.Hold(w, g, hold, now)
	}
	defer w.Forget()
	return r.hand.Handled(w, g, time.Now(), w.Told...)
}

// only returns the messages of ms for which is reports true.
func only(ms []*hand.Message, is func(*attempt) bool) (some []*hand.Message) {
	if !slices.ContainsFunc(ms, func(m *hand.Message) bool { return !is(attemptOf(m)) }) {
		return ms // nearly always
	}
	for _, m := range ms {
		if is(attemptOf(m)) {
			some = append(some, m)
		}
	}
	return some
}

// next returns the messages that the handler gets now: all of them, or those that were held
// and may be handled again.
func (h *handling) next() []*hand.Message {
	letGo, held := h.grant.Why == hand.LetGo, only(h.grant.Of, toHandle.is)
	switch {
	case h.grant.Why == hand.First:
		return h.first()
	case len(held) == 0:
		return h.kept(letGo)
	case letGo:
		h.letGo(held)
		return nil
	}
	return h.again(held)
}

// first begins the attempts at the messages, and settles those that the handler does not get.
func (h *handling) first() []*hand.Message {
	for _, m := range h.grant.Of {
		switch a := attemptOf(m); {
		case h.begin(h.worker, a):
			a.stage = toHandle
		case a.Keep > 0:
			a.stage = notDue
		}
	}
	h.settle(only(h.grant.Of, unbegun.is))
	return only(h.grant.Of, toHandle.is)
}

// kept returns the messages that were not due and lacked a little of their wait, and settles the
// others. It settles all of them if they could be kept no longer.
func (h *handling) kept(letGo bool) []*hand.Message {
	attemptOf(h.grant.Of[0]).pauses = nil
	ms := only(h.grant.Of, notDue.is)
	if letGo {
		h.in.hand.BeginNoMore(hand.ErrHeld, time.Now(), &h.worker.Out)
	}
	for _, m := range ms {
		if a := attemptOf(m); letGo {
			a.decision = requeue
		} else if a.Move == work.Hold {
			a.stage = toHandle
		}
	}
	h.settle(only(ms, notDue.is))
	return only(h.grant.Of, toHandle.is)
}

// again returns those of the held messages that may be handled again: those that are due, and
// those whose handler has said Hold, because the lane says when an outage lets them be tried.
func (h *handling) again(held []*hand.Message) []*hand.Message {
	now := time.Now()
	ms := only(held, func(a *attempt) bool { return a.outcome.Action == ActionHold || !a.due.After(now) })
	for _, m := range ms {
		if a := attemptOf(m); a.isInPlace() {
			a.Attempt++
			a.LastAttempt = a.Attempt > len(h.in.terms.route.Waits)
		}
	}
	return ms
}

// letGo settles the held messages whose time is over, because the consumer can hold them no longer.
// If the session ends, or the lane has another reason, letGo settles all held messages.
func (h *handling) letGo(held []*hand.Message) {
	now := time.Now()
	var past []*hand.Message
	if h.in.Working.Err() == nil && h.in.Stop.Err() == nil && !h.ordered() {
		past = only(held, func(a *attempt) bool { end := h.holdUntil(a); return !now.Before(end) || a.due.After(end) })
	}
	if len(past) == 0 {
		past = held
	}
	h.in.hand.BeginNoMore(hand.ErrHeld, now, &h.worker.Out)
	for _, m := range past {
		attemptOf(m).unheld()
	}
	h.settle(past)
}

// hold returns how the messages are held that are not settled, and false if all are. The handler
// runs again for the first of them that is due.
func (h *handling) hold(now time.Time) (hold hand.Hold, stays bool) {
	r := h.run
	held := only(h.grant.Of, toHandle.is)
	if len(held) == 0 {
		return h.keep()
	}
	first := attemptOf(held[0])
	hold = hand.Hold{Kind: hand.ForAnother, Until: r.holdUntil(first), Own: true}
	for _, m := range held {
		a := attemptOf(m)
		hold.Own = hold.Own && a.outcome.Action != ActionHold
		if a.due.Before(first.due) {
			first = a
		}
		if end := r.holdUntil(a); end.Before(hold.Until) {
			hold.Until = end
		}
	}
	hold.For = first.due.Sub(now)
	if h.in.terms.inPlace && (first.isInPlace() || first.Attempt > 1) { // its count would begin anew elsewhere
		hold.Kind = hand.ForNextHere
	}
	named := "" // apart from Hold also for the limit on repeated records
	if first.isExact() {
		named = ", for the time that the handler has named"
	}
	switch wait := hold.For.Round(time.Millisecond); {
	case first.isInPlace():
		r.logInPlace(first)
	case r.batch == nil:
		r.faultLog.Warn("message held"+named, errors.New(first.text), "queue", first.Queue, "message", first.ID, "attempt", first.Attempt, "again_in", wait)
	default:
		r.faultLog.Warn("messages held"+named, errors.New(first.text), "queue", r.queue, "messages", len(held), "message", first.ID, "again_in", wait)
	}
	return hold, true
}

// keep is hold for messages that are not due yet.
func (h *handling) keep() (hold hand.Hold, stays bool) {
	kept := only(h.grant.Of, notDue.is)
	if len(kept) == 0 {
		return hold, false
	}
	yield.Here()
	hold = hand.Hold{Kind: hand.UntilDue, Until: h.holdUntil(attemptOf(kept[0]))}
	for _, m := range kept {
		a := attemptOf(m)
		hold.For = max(hold.For, a.Keep)
		if a.Move == work.Hold {
			hold.Kind = hand.ToBegin
		}
	}
	return hold, true
}

// putOff notes when each of the held messages may be handled again: after the message's own wait,
// and, but for a next attempt in place, not before the pause.
func (h *handling) putOff(held []*hand.Message) {
	first, now := attemptOf(h.grant.Of[0]), time.Now()
	if first.pauses == nil { // most messages are never held
		first.pauses = pause.Grow(durations.FirstHold, durations.LongestHoldPause)
	}
	least := first.pauses.Next()
	for _, m := range held {
		a := attemptOf(m)
		if a.due = now.Add(h.heldFor(a, least, now)); a.isInPlace() {
			next := *a.Delivery // the handler may have kept the one that it had
			next.firstFailed = cmp.Or(next.firstFailed, now)
			a.Delivery = &next
		}
	}
}

// heldFor returns how long a message is held until its handler may run again. least is for an
// error that names no time.
func (r *run) heldFor(a *attempt, least time.Duration, now time.Time) time.Duration {
	switch {
	case a.isInPlace():
		return a.Keep
	case !a.isExact():
		return min(max(least, a.Keep), durations.LongestHold)
	}
	left := r.holdUntil(a).Sub(now)
	if a.Keep > left {
		r.faultLog.Warn("message held for less time than its handler has asked for: at the hold limit it goes back to its queue", errors.New(a.text),
			"queue", a.Queue, "message", a.ID, "asked", a.Keep, "hold_limit", r.timeout.HoldLimit(), "held", left.Round(time.Second))
	}
	return min(a.Keep, left)
}

// handle runs the handler on messages, in parts if need be.
func (h *handling) handle(ms []*hand.Message) {
	from := h.in.Working
	if h.batch == nil {
		from = attemptOf(ms[0]).ctx
	}
	ctx, end := h.withTimeouts(from, ms)
	defer end()
	var one [1]result
	results := one[:] // of the latest call with each message
	if len(ms) > 1 {
		results = make([]result, len(ms))
		ms = slices.Clone(ms) // vagueFirst reorders them
	}
	var took time.Duration
	s := newSplit(len(ms), slices.ContainsFunc(ms, failsForGood))
	for p, ok := (span{0, len(ms)}), true; ok; p, ok = s.take() {
		some, of := ms[p.from:p.to], results[p.from:p.to]
		h.settleNow()
		took = h.call(ctx, some, of)
		vague := 0
		if len(some) > 1 && ctx.Err() == nil {
			vague = vagueFirst(some, of)
		}
		if vague > 0 {
			s.failed(span{p.from, p.from + vague})
		}
		h.decided(some[vague:], of[vague:], took)
		if ctx.Err() != nil {
			break
		}
	}
	for _, p := range s.next { // no call is left to tell these messages apart
		h.decided(ms[p.from:p.to], results[p.from:p.to], took)
	}
	if held := only(ms, toHandle.is); len(held) > 0 {
		h.putOff(held)
	}
}

// call calls the handler with some messages, and finds out how each of them has fared.
func (h *handling) call(ctx context.Context, ms []*hand.Message, results []result) (took time.Duration) {
	r, limits := h.run, ctx
	var batched Batched
	for _, m := range ms {
		a := attemptOf(m)
		a.own.begin()
		if r.batch != nil {
			batched.Deliveries, batched.Contexts = append(batched.Deliveries, a.Delivery), append(batched.Contexts, a.ctx)
		}
	}
	r.hand.Runs(time.Now(), ms...)
	if r.batch != nil && r.trace.Batched != nil {
		ctx = r.trace.Batched(ctx, batched)
	}
	h.with, h.began = ms, time.Now()
	err := errGoexit // unless the handler returns, or panics
	ended := false   // the handler has returned, and its error has a meaning
	defer func() {
		if v := recover(); v != nil {
			panicked := &PanicError{Value: v, Stack: debug.Stack()}
			if err = panicked; outcomesOf(limits, ms, err, results) == 0 { // no message has the panic as its error
				r.log.Error("the handler panicked after it had given its message an error", "queue", r.queue, "message", ms[0].Raw.MessageId, "error", panicked.Error(), "stack", string(panicked.Stack))
			}
		} else if !ended {
			outcomesOf(limits, ms, err, results)
		}
		took = time.Since(h.began)
		r.handled.Add(int64(len(ms)))
		h.noteRun(results)
		if r.batch != nil && r.trace.BatchHandled != nil {
			r.trace.BatchHandled(ctx, BatchHandled{Deliveries: batched.Deliveries, Err: err, Took: took})
		}
	}()
	var left error
	if r.batch == nil {
		left = r.handler(ctx, attemptOf(ms[0]).Delivery)
	} else {
		left = r.batch(ctx, batched.Deliveries)
	}
	left = explained(limits, left)
	outcomesOf(limits, ms, left, results)
	err, ended = left, true
	return took
}

// decided decides about messages by the results of the handler, and settles each one that it does not hold.
func (h *handling) decided(ms []*hand.Message, results []result, took time.Duration) {
	for i, m := range ms {
		h.ends(attemptOf(m), results[i], took)
	}
	h.settle(only(ms, func(a *attempt) bool { return a.Move != work.Hold }))
}

// ends decides what becomes of a message.
func (h *handling) ends(a *attempt, res result, took time.Duration) {
	if h.trace.Handled != nil {
		h.trace.Handled(a.ctx, Handled{Delivery: a.Delivery, Err: res.err, Took: took})
	}
	a.ending = h.decide(a, res)
}

// settle has messages settled by their instructions: with the next event of the worker, or, if
// there are copies to be sent, at once.
func (h *handling) settle(ms []*hand.Message) {
	yield.Here()
	var copied []work.Task
	for _, m := range ms {
		a := attemptOf(m)
		a.stage = settled
		h.worker.Told = append(h.worker.Told, hand.Told{Message: m, Verb: a.Move})
		if a.Move == hand.Copy {
			copied = append(copied, work.Task{Message: m, Instruction: &a.Instruction})
		}
	}
	if len(copied) > 0 {
		h.settleNow()
		h.copies.Send(copied...)
	}
}

// settleNow has the messages settled that settle has left to the next event.
func (h *handling) settleNow() {
	w := h.worker
	if len(w.Told) > 0 {
		h.hand.Settle(time.Now(), &w.Out, w.Told...)
		w.Forget()
	}
	h.pool.Do(&w.Out)
}

// gone settles the messages of a handler that has ended its goroutine. Those of its latest
// run have failed with it. Of the others, the ones that are held stay so, and the ones whose
// next run has not come go back.
func (h *handling) gone() {
	left := only(h.grant.Of, func(a *attempt) bool { return a.stage != settled })
	held := false
	for _, m := range left {
		a := attemptOf(m)
		switch {
		case a.stage == toHandle && slices.Contains(h.with, m):
			h.ends(a, a.leftGone(), time.Since(h.began))
		case a.stage != toHandle || a.ending == nil || a.Move != work.Hold:
			a.ending = &ending{decision: requeue}
		}
		held = held || a.Move == work.Hold
	}
	if held { // nothing can be handled here again
		pause.While(h.in.Working, h.in.Stop, durations.HeldEnd)
		h.in.hand.BeginNoMore(hand.ErrHeld, time.Now(), &h.worker.Out)
	}
	for _, m := range left {
		if a := attemptOf(m); a.Move == work.Hold {
			a.unheld()
		}
	}
	h.settle(left)
	h.settleNow()
}

// failsForGood reports whether a failed attempt makes the message a dead letter.
func failsForGood(m *hand.Message) bool {
	a := attemptOf(m)
	return a.LastAttempt && !a.in.terms.route.DeadLetter.IsZero()
}

// vagueFirst puts the messages first whose results are vague, keeps both kinds in their order,
// and returns how many they are.
func vagueFirst(ms []*hand.Message, results []result) (vague int) {
	var told []*hand.Message
	var ofTold []result
	for i, m := range ms {
		if results[i].vague {
			ms[vague], results[vague] = m, results[i]
			vague++
			continue
		}
		told, ofTold = append(told, m), append(ofTold, results[i])
	}
	copy(ms[vague:], told)
	copy(results[vague:], ofTold)
	return vague
}

// outcomesOf says how each message of a handler that had ctx and returned err has fared,
// and of how many the error is: of those without an error of their own.
func outcomesOf(ctx context.Context, ms []*hand.Message, err error, results []result) (of int) {
	last := false
	for i, m := range ms {
		own := explained(ctx, attemptOf(m).own.end())
		results[i] = judged(own)
		if own == nil {
			of++
			last = last || failsForGood(m)
		}
	}
	if err == nil || of == 0 {
		return of
	}
	all := judged(err)
	if len(ms) > 1 && isOfOne(all.outcome.Action, last) {
		all.vague = true
		if all.outcome.Action != ActionRetry { // it may not be the outcome of messages that never are alone
			all.outcome = Outcome{Action: ActionRetry}
			all.err = withOutcome(all.outcome, all.err, "")
		}
	}
	for i := range results {
		if results[i].err == nil {
			results[i] = all
		}
	}
	return of
}

// isOfOne reports whether an action would do harm to messages that it is not meant for. last
// says that there is one which a failed attempt would dead-letter.
func isOfOne(action Action, last bool) bool {
	switch action {
	case ActionHold, ActionHoldFor, ActionSnooze:
		return false
	case ActionRetryAfter:
		return last // it dead-letters that one
	}
	return true
}
