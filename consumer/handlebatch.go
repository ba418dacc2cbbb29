package consumer

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/consumer/internal/work"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/yield"
)

// batch is the messages of a grant on their way through a BatchHandler.
type batch struct {
	run    *run
	worker *hand.Worker // that has it now
	grant  *hand.Grant
	in     *session
	open   []*attempt                 // whose settling has not begun
	early  []*attempt                 // not due yet, and kept for a while
	due    map[*attempt]time.Time     // of held ones: when each may be handled again
	pauses *pause.Growing             // between the runs while messages are held
	began  time.Time                  // the latest run
	with   atomic.Pointer[[]*attempt] // its messages
}

// handleBatch is handle for a BatchHandler: a grant has one message or several.
func (r *run) handleBatch(w *hand.Worker, g *hand.Grant) (next *hand.Grant, ended bool) {
	first := attemptOf(g.Of[0])
	if first.batch == nil {
		first.batch = &batch{run: r, grant: g, in: first.in, pauses: heldPauses()}
	}
	b := first.batch
	b.worker = w
	returned := false
	defer func() {
		if !returned { // runtime.Goexit: only deferred calls still run
			b.gone()
		}
	}()
	if some := b.next(); len(some) > 0 {
		b.handle(some)
		if len(b.open) > 0 {
			b.putOff(some, b.pauses.Next())
		}
	}
	returned = true
	switch {
	case len(b.open) > 0:
		return b.hold()
	case len(b.early) > 0:
		return b.keepEarly()
	}
	return r.hand.Handled(w, g, time.Now())
}

// next returns the messages that the handler gets now: all of them, or those that were held
// and may be handled again.
func (b *batch) next() []*attempt {
	switch {
	case b.grant.Held == 0:
		b.begin(b.grant.Of)
		return slices.Clone(b.open)
	case b.grant.Held.IsEarly():
		b.kept(!b.grant.LetGo)
		return slices.Clone(b.open)
	case b.grant.LetGo:
		b.letGo()
		return nil
	}
	return b.ready()
}

// begin begins the attempts at messages, and settles those that the handler does not get.
func (b *batch) begin(ms []*hand.Message) {
	var unhandled []*attempt
	for _, m := range ms {
		a := attemptOf(m)
		switch {
		case b.run.begin(b.worker, a):
			b.open = append(b.open, a)
		case a.Keep > 0:
			b.early = append(b.early, a)
		default:
			unhandled = append(unhandled, a)
		}
	}
	if len(b.early) > 0 {
		b.run.hand.Keeps(messagesOf(b.early))
	}
	b.settle(unhandled)
}

// putOff notes when each message that the handler has held may be handled again. pause is
// for those whose error names no time.
func (b *batch) putOff(some []*attempt, pause time.Duration) {
	if b.due == nil {
		b.due = make(map[*attempt]time.Time, len(b.open))
	}
	now := time.Now()
	for _, a := range some {
		if !a.over {
			b.due[a] = now.Add(b.run.heldFor(a, pause, now))
		}
	}
}

// hold holds the open messages until the first of them may be handled again.
func (b *batch) hold() (next *hand.Grant, ended bool) {
	r := b.run
	first, until, own := b.open[0], r.holdUntil(b.open[0]), true
	for _, a := range b.open {
		own = own && a.outcome.Action != ActionHold
		if b.due[a].Before(b.due[first]) {
			first = a
		}
		if end := r.holdUntil(a); end.Before(until) {
			until = end
		}
	}
	now := time.Now()
	wait := b.due[first].Sub(now)
	r.faultLog.Warn("messages held", errors.New(first.text), "queue", r.queue, "messages", len(b.open), "message", first.ID, "again_in", wait)
	return r.hand.Hold(b.worker, b.grant, hand.Hold{Kind: hand.ForAnother, For: wait, Until: until, Own: own}, now)
}

// ready returns the open messages that may be handled again: those that are due, and those
// whose handler has said Hold, because the lane says when an outage lets them be tried.
func (b *batch) ready() (some []*attempt) {
	now := time.Now()
	for _, a := range b.open {
		if a.outcome.Action == ActionHold || !b.due[a].After(now) {
			some = append(some, a)
		}
	}
	return some
}

// letGo settles the messages that the consumer can hold no longer: those whose time is over. If
// the session ends, or the lane has another reason, these are all.
func (b *batch) letGo() {
	now := time.Now()
	var past []*attempt
	if b.in.working.Err() == nil && b.in.stop.Err() == nil && !b.run.ordered() {
		for _, a := range b.open {
			if end := b.run.holdUntil(a); !now.Before(end) || b.due[a].After(end) {
				past = append(past, a)
			}
		}
	}
	if len(past) == 0 {
		past = b.open
	}
	b.in.hand.EndInOrder(hand.ErrHeld, now, &b.worker.Out)
	for _, a := range past {
		a.unheld()
	}
	b.settle(past)
	b.stillOpen()
}

// handle runs the handler on some of the open messages, in parts if need be. Those that are
// held are open afterwards.
func (b *batch) handle(all []*attempt) {
	r := b.run
	oldest := all[0].Received
	for _, a := range all {
		if a.Received.Before(oldest) {
			oldest = a.Received
		}
	}
	b.with.Store(nil) // until a run has begun, none has
	whole := slices.Clone(all)
	ctx, end := r.withTimeouts(b.in.working, oldest, func() []*attempt {
		if as := b.latest(); as != nil {
			return as
		}
		return whole // a hook holds it up
	})
	defer end()
	results := make([]result, len(all)) // of the latest call with each message
	var took time.Duration
	s := newSplit(len(all), slices.ContainsFunc(all, (*attempt).failsForGood))
	for {
		p, ok := s.take()
		if !ok {
			break
		}
		as, of := all[p.from:p.to], results[p.from:p.to]
		took = b.call(ctx, as, of)
		vague := 0
		if ctx.Err() == nil {
			vague = vagueFirst(as, of)
		}
		if vague > 0 {
			s.failed(span{p.from, p.from + vague})
		}
		b.decided(as[vague:], of[vague:], took)
		if ctx.Err() != nil {
			break
		}
	}
	for _, p := range s.next { // no call is left to tell these messages apart
		b.decided(all[p.from:p.to], results[p.from:p.to], took)
	}
}

// failsForGood reports whether a failed attempt makes the message a dead letter.
func (a *attempt) failsForGood() bool {
	return a.LastAttempt && !a.in.terms.route.DeadLetter.IsZero()
}

// vagueFirst puts the messages first whose results are vague, keeps both kinds in their order,
// and returns how many they are.
func vagueFirst(as []*attempt, results []result) (vague int) {
	var told []*attempt
	var ofTold []result
	for i, a := range as {
		if !results[i].vague {
			told, ofTold = append(told, a), append(ofTold, results[i])
			continue
		}
		as[vague], results[vague] = a, results[i]
		vague++
	}
	copy(as[vague:], told)
	copy(results[vague:], ofTold)
	return vague
}

// call calls the handler with some messages, and finds out how each of them has fared.
func (b *batch) call(ctx context.Context, as []*attempt, results []result) (took time.Duration) {
	r, limits := b.run, ctx
	deliveries, of := make([]*Delivery, len(as)), make([]context.Context, len(as))
	for i, a := range as {
		deliveries[i], of[i] = a.Delivery, a.ctx
		a.own.begin()
	}
	r.hand.Runs(messagesOf(as)...)
	if r.trace.Batched != nil {
		ctx = r.trace.Batched(ctx, Batched{Deliveries: deliveries, Contexts: of})
	}
	b.isWith(as)
	b.began = time.Now()
	err := errGoexit // unless the handler returns, or panics
	ended := false   // the handler has returned, and its error has a meaning
	defer func() {
		if v := recover(); v != nil {
			panicked := &PanicError{Value: v, Stack: debug.Stack()}
			if err = panicked; outcomesOf(limits, as, err, results) == 0 {
				r.logHiddenPanic(panicked, as[0].ID)
			}
		} else if !ended {
			outcomesOf(limits, as, err, results)
		}
		took = time.Since(b.began)
		r.handled.Add(int64(len(as)))
		r.hand.Returned(messagesOf(as))
		r.noteBatch(b, results)
		if r.trace.BatchHandled != nil {
			r.trace.BatchHandled(ctx, BatchHandled{Deliveries: deliveries, Err: err, Took: took})
		}
	}()
	returned := explained(limits, r.batch(ctx, deliveries))
	outcomesOf(limits, as, returned, results)
	err, ended = returned, true
	return took
}

// outcomesOf says how each message of a BatchHandler that had ctx and returned err has fared,
// and of how many the error is: of those without an error of their own.
func outcomesOf(ctx context.Context, as []*attempt, err error, results []result) (of int) {
	last := false
	for i, a := range as {
		own := explained(ctx, a.own.end())
		results[i] = judged(own)
		if own == nil {
			of++
			last = last || a.failsForGood()
		}
	}
	if err == nil || of == 0 {
		return of
	}
	all := judged(err)
	if len(as) > 1 && isOfOne(all.outcome.Action, last) {
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

// isWith notes the messages of a run. handle reorders them.
func (b *batch) isWith(as []*attempt) {
	as = slices.Clone(as)
	b.with.Store(&as)
}

// latest returns the messages of the latest run; none before the first.
func (b *batch) latest() []*attempt {
	if as := b.with.Load(); as != nil {
		return *as
	}
	return nil
}

// decided settles messages by the results of the handler, but those that are held.
func (b *batch) decided(as []*attempt, results []result, took time.Duration) {
	r := b.run
	decided := make([]*attempt, 0, len(as))
	for i, a := range as {
		if r.trace.Handled != nil {
			r.trace.Handled(a.ctx, Handled{Delivery: a.Delivery, Err: results[i].err, Took: took})
		}
		if a.ending = r.decide(a, results[i]); a.Move != work.Hold {
			decided = append(decided, a)
		}
	}
	b.settle(decided)
	b.stillOpen()
}

// settle begins the settling of messages.
func (b *batch) settle(as []*attempt) {
	if len(as) == 0 {
		return
	}
	for _, a := range as {
		a.over = true
	}
	b.run.beginSettling(&b.worker.Out, as...)
}

func (b *batch) stillOpen() {
	open := make([]*attempt, 0, len(b.open))
	for _, a := range b.open {
		if !a.over {
			open = append(open, a)
		}
	}
	b.open = open
}

// keepEarly holds messages that are not due yet.
func (b *batch) keepEarly() (next *hand.Grant, ended bool) {
	yield.Here()
	longest, until, kind := time.Duration(0), b.run.holdUntil(b.early[0]), hand.UntilDue
	for _, a := range b.early {
		longest = max(longest, a.Keep)
		if a.Move == work.Hold {
			kind = hand.ToBegin
		}
	}
	return b.run.hand.Hold(b.worker, b.grant, hand.Hold{Kind: kind, For: longest, Until: until}, time.Now())
}

// kept opens the messages that were not due and lacked a little of their wait, and settles the
// others. It settles all of them if they could be kept no longer.
func (b *batch) kept(longEnough bool) {
	var unhandled []*attempt
	if !longEnough {
		b.in.hand.EndInOrder(hand.ErrHeld, time.Now(), &b.worker.Out)
	}
	for _, a := range b.early {
		if longEnough && a.Move == work.Hold {
			b.open = append(b.open, a)
			continue
		}
		if !longEnough {
			a.decision = requeue
		}
		unhandled = append(unhandled, a)
	}
	b.early, b.pauses = nil, heldPauses()
	b.settle(unhandled)
}

// gone settles the messages of a handler that has ended its goroutine. Those of its latest
// run have failed with it. Of the others, the ones that are held stay so, and the ones whose
// next run has not come go back.
func (b *batch) gone() {
	r := b.run
	held := false
	for _, a := range b.open {
		if !slices.Contains(b.latest(), a) {
			if a.ending == nil || a.Move != work.Hold {
				a.ending = &ending{decision: requeue}
			}
			held = held || a.Move == work.Hold
			continue
		}
		res := a.leftGone()
		a.ending = r.decide(a, res)
		if r.trace.Handled != nil {
			r.trace.Handled(a.ctx, Handled{Delivery: a.Delivery, Err: res.err, Took: time.Since(b.began)})
		}
		held = held || a.Move == work.Hold
	}
	if held { // nothing can be handled here again
		pause.While(b.in.working, b.in.stop, time.Second)
		b.in.hand.EndInOrder(hand.ErrHeld, time.Now(), &b.worker.Out)
	}
	for _, a := range b.open {
		if a.Move == work.Hold {
			a.unheld()
		}
	}
	for _, a := range b.early {
		a.decision = requeue
	}
	b.settle(append(b.open, b.early...))
}
