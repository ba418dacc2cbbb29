package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
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
	open  []*attempt // whose settling has not begun
	early []*attempt // not due yet, and kept for a while
	free  int        // messages that need the slot no longer, or not beyond the batch
	kept  int        // messages that do
	began time.Time  // the latest run
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
	r := b.run
	pauses := pause.Grow(200*time.Millisecond, 30*time.Second)
	for len(b.open) > 0 {
		b.handle()
		if len(b.open) == 0 {
			return
		}
		wait, first, until := pauses.Next(), b.open[0], b.open[0].Received
		for _, a := range b.open {
			wait = max(wait, a.Keep)
			if a.Received.Before(until) {
				until = a.Received
			}
		}
		wait = min(wait, flight.LongestHold)
		r.faultLog.Warn("messages held", errors.New(first.text), "queue", r.queue, "messages", len(b.open), "message", first.ID, "again_in", wait)
		if !r.lane.Hold(b.grant, wait, until.Add(r.timeout.HoldLimit()), false, b.in.working, b.in.stop) {
			b.in.leaveInOrder(intake.ErrHeld)
			for _, a := range b.open {
				a.unheld()
			}
			b.settleOpen()
		}
	}
}

// handle runs the handler on the open messages, in parts if need be. Those that are held
// are open afterwards.
func (b *batch) handle() {
	r, all := b.run, b.open
	oldest := all[0].Received
	for _, a := range all {
		if a.Received.Before(oldest) {
			oldest = a.Received
		}
	}
	ctx, end := r.withTimeouts(b.in.working, oldest, all[0], len(all))
	defer end()
	results := make([]result, len(all)) // of the latest call with each message
	var took time.Duration
	s := newSplit(len(all))
	for {
		p, ok := s.take()
		if !ok {
			break
		}
		var vague bool
		took, vague = b.call(ctx, all[p.from:p.to], results[p.from:p.to])
		if vague && ctx.Err() == nil && s.failed(p) {
			continue
		}
		b.decided(all[p.from:p.to], results[p.from:p.to], took)
		if ctx.Err() != nil {
			break
		}
	}
	for _, p := range s.next { // they fail in company
		b.decided(all[p.from:p.to], results[p.from:p.to], took)
	}
}

// call calls the handler with some messages, and finds out what its error means for each
// of them. vague says that it has failed without a word on which are at fault.
func (b *batch) call(ctx context.Context, as []*attempt, results []result) (took time.Duration, vague bool) {
	r := b.run
	deliveries, of := make([]*Delivery, len(as)), make([]context.Context, len(as))
	for i, a := range as {
		deliveries[i], of[i] = &a.Delivery, a.ctx
		a.Running.Store(true)
	}
	if r.trace.Batched != nil {
		ctx = r.trace.Batched(ctx, deliveries, of)
	}
	b.began = time.Now()
	err := errGoexit // unless the handler returns, or panics
	defer func() {
		if v := recover(); v != nil {
			err, vague = &PanicError{Value: v, Stack: debug.Stack()}, true
			for i := range results {
				results[i] = resultOf(err, Outcome{Action: ActionRetry})
			}
		}
		took = time.Since(b.began)
		r.handled.Add(int64(len(as)))
		for _, a := range as {
			a.Running.Store(false)
			a.Returned()
		}
		r.noteBatch(b, results)
		if r.trace.BatchHandled != nil {
			r.trace.BatchHandled(ctx, deliveries, err, took)
		}
	}()
	err = r.batch(ctx, deliveries)
	if of, ok := batchErrorsOf(err); ok && len(of) == len(as) && of.isNone() {
		err = nil
	}
	vague = outcomesOf(err, results)
	return took, vague
}

// outcomesOf says what the error of a BatchHandler means for each message. It reports
// whether the error is vague: it does not say which messages are at fault.
func outcomesOf(err error, results []result) (vague bool) {
	all := result{err: err, outcome: OutcomeOf(err)}
	if of, ok := batchErrorsOf(err); ok {
		if len(of) == len(results) {
			for i, err := range of {
				results[i] = result{err: err, outcome: OutcomeOf(err)}
				if err != nil {
					results[i].text = err.Error()
				}
			}
			return false
		}
		all = resultOf(fmt.Errorf("the handler has returned %d errors for a batch of %d: %w", len(of), len(results), err), Outcome{Action: ActionRetry})
	} else if err != nil {
		all.text = err.Error()
		vague = all.outcome.Action == ActionRetry
	}
	for i := range results {
		results[i] = all
	}
	return vague
}

// batchErrorsOf returns the BatchErrors in an error, unless a meaning is given to all of
// it.
func batchErrorsOf(err error) (BatchErrors, bool) {
	for err != nil {
		switch e := err.(type) { //nolint:errorlint // this is the walk down the chain
		case BatchErrors:
			return e, true
		case *outcomeError:
			return nil, false
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		default:
			return nil, false
		}
	}
	return nil, false
}

// decided settles messages by the results of the handler, but those that are held.
func (b *batch) decided(as []*attempt, results []result, took time.Duration) {
	r := b.run
	decided := make([]*attempt, 0, len(as))
	for i, a := range as {
		if r.trace.Handled != nil {
			r.trace.Handled(a.ctx, &a.Delivery, results[i].err, took)
		}
		if a.ending = r.decide(a, results[i]); a.Move != settle.Hold {
			decided = append(decided, a)
		}
	}
	b.settle(decided)
	b.stillOpen()
}

// settleOpen settles all messages that are open.
func (b *batch) settleOpen() {
	b.settle(b.open)
	b.open = nil
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

// gone settles the messages of a handler that has ended its goroutine.
func (b *batch) gone() {
	r := b.run
	held := false
	for _, a := range b.open {
		a.ending = r.decide(a, resultOf(errGoexit, Outcome{Action: ActionRetry}))
		if r.trace.Handled != nil {
			r.trace.Handled(a.ctx, &a.Delivery, errGoexit, time.Since(b.began))
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
