package consumer

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop/consumer/internal/flight"
	"github.com/rehop/rehop/consumer/internal/intake"
	"github.com/rehop/rehop/consumer/internal/schedule"
	"github.com/rehop/rehop/consumer/internal/settle"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/yield"
)

// batch is the messages of a grant on their way through a BatchHandler.
type batch struct {
	run   *run
	grant *schedule.Grant
	in    *session
	open  []*attempt                 // whose settling has not begun
	early []*attempt                 // not due yet, and kept for a while
	free  int                        // messages that need the slot no longer, or not beyond the batch
	kept  int                        // messages that do
	due   map[*attempt]time.Time     // of held ones: when each may be handled again
	began time.Time                  // the latest run
	with  atomic.Pointer[[]*attempt] // its messages
}

// handleBatch is handle for a BatchHandler: a grant has one message or several.
func (r *run) handleBatch(g *schedule.Grant) (kept int) {
	b := &batch{run: r, grant: g, in: g.Of[0].In.Owner.(*session)} //nolint:forcetypeassert // newSession sets it
	returned := false
	defer func() {
		if !returned { // runtime.Goexit: only deferred calls still run
			b.gone()
		}
	}()
	b.begin(g.Of)
	b.handleUntilDecided()
	b.keepEarly()
	returned = true
	return b.kept
}

// begin makes attempts of messages, and settles those that the handler does not get.
func (b *batch) begin(ms []*flight.Message) {
	var unhandled []*attempt
	for _, m := range ms {
		a, ok := b.run.begin(b.grant, m)
		switch {
		case ok:
			b.open = append(b.open, a)
		case a.Keep > 0:
			b.early = append(b.early, a)
		default:
			a.Returned()
			unhandled = append(unhandled, a)
		}
	}
	b.settle(unhandled)
}

// handleUntilDecided runs the handler, and again as long as messages are held.
func (b *batch) handleUntilDecided() {
	pauses := pause.Grow(200*time.Millisecond, 30*time.Second)
	for next := slices.Clone(b.open); len(next) > 0; next = b.await() {
		b.handle(next)
		if len(b.open) > 0 {
			b.putOff(next, pauses.Next())
		}
	}
}

// putOff notes when each message that the handler has held may be handled again: after the
// message's own wait, and not before least has passed.
func (b *batch) putOff(some []*attempt, least time.Duration) {
	if b.due == nil {
		b.due = make(map[*attempt]time.Time, len(b.open))
	}
	now := time.Now()
	for _, a := range some {
		if !a.over {
			b.due[a] = now.Add(min(max(least, a.Keep), flight.LongestHold))
		}
	}
}

// await waits until the lane lets held messages be handled again, and returns these. It returns
// none once no message is left.
func (b *batch) await() []*attempt {
	r := b.run
	for len(b.open) > 0 {
		first, until := b.open[0], b.until(b.open[0])
		for _, a := range b.open {
			if b.due[a].Before(b.due[first]) {
				first = a
			}
			if end := b.until(a); end.Before(until) {
				until = end
			}
		}
		wait := time.Until(b.due[first])
		r.faultLog.Warn("messages held", errors.New(first.text), "queue", r.queue, "messages", len(b.open), "message", first.ID, "again_in", wait)
		if r.lane.Hold(b.grant, wait, until, false, b.in.working, b.in.stop) {
			return b.ready()
		}
		b.letGo()
	}
	return nil
}

// until is when a message can be held no longer.
func (b *batch) until(a *attempt) time.Time { return a.Received.Add(b.run.timeout.HoldLimit()) }

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
			if end := b.until(a); !now.Before(end) || b.due[a].After(end) {
				past = append(past, a)
			}
		}
	}
	if len(past) == 0 {
		past = b.open
	}
	b.in.leaveInOrder(intake.ErrHeld)
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
		a.Running.Store(true)
	}
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
		for _, a := range as {
			a.Running.Store(false)
			a.Returned()
		}
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
	case ActionHold, ActionSnooze:
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
		if a.ending = r.decide(a, results[i]); a.Move != settle.Hold {
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
	tasks := make([]settle.Task, len(as))
	for i, a := range as {
		a.over = true
		tasks[i] = settle.Task{Message: a.Message, Instruction: &a.Instruction}
	}
	kept := b.in.settling.Do(tasks...)
	b.kept += kept
	b.free += len(as) - kept
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

// keepEarly keeps messages for a while that are not due yet. Then it hands those to the
// handler that lacked a little of their wait, and settles the others.
func (b *batch) keepEarly() {
	if len(b.early) == 0 {
		return
	}
	yield.Here()
	longest := b.early[0]
	for _, a := range b.early {
		if a.Keep > longest.Keep {
			longest = a
		}
	}
	kept := b.run.keep(longest, longest.Keep)
	var unhandled []*attempt
	for _, a := range b.early {
		if kept && a.Move == settle.Hold {
			b.open = append(b.open, a)
			continue
		}
		if !kept {
			a.decision = requeue
		}
		a.Returned()
		unhandled = append(unhandled, a)
	}
	b.early = nil
	b.settle(unhandled)
	b.handleUntilDecided()
}

// gone settles the messages of a handler that has ended its goroutine. Those of its latest
// run have failed with it. Of the others, the ones that are held stay so, and the ones whose
// next run has not come go back.
func (b *batch) gone() {
	r := b.run
	held := false
	for _, a := range b.open {
		if !slices.Contains(b.latest(), a) {
			if a.ending == nil || a.Move != settle.Hold {
				a.ending = &ending{decision: requeue}
			}
			held = held || a.Move == settle.Hold
			continue
		}
		res := a.leftGone()
		a.ending = r.decide(a, res)
		if r.trace.Handled != nil {
			r.trace.Handled(a.ctx, Handled{Delivery: a.Delivery, Err: res.err, Took: time.Since(b.began)})
		}
		held = held || a.Move == settle.Hold
	}
	if held { // nothing can be handled here again
		pause.While(b.in.working, b.in.stop, time.Second)
		b.in.leaveInOrder(intake.ErrHeld)
	}
	for _, a := range b.open {
		if a.Move == settle.Hold {
			a.unheld()
		}
	}
	for _, a := range b.early {
		a.decision = requeue
	}
	b.settle(append(b.open, b.early...))
	for range b.free {
		r.schedule.Release(b.grant)
	}
}
