package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// A RetryAfter takes the message out of the order of its waits; the failure after it must
// count as the attempt it is, and wait what that attempt is due.
func TestRetryAfterThenFailure(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		const after = 400 * time.Millisecond // wait 3, 450 ms, is the shortest that is long enough
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			switch d.Attempt {
			case 1:
				return consumer.RetryAfter(after, errBroken)
			case 4:
				return nil
			}
			return errBroken
		})
		id := e.send(w.Name, 1)[0]
		e.consume(w, j, consumer.Config{})
		e.until("it is done", func() bool { return j.settledAs(id, 4, consumer.DispositionDone) })
		runs := j.of(id)
		if len(runs) != 4 {
			e.Fatalf("attempts are %v, want 1 to 4", j.attempts(id))
		}
		for i, want := range []struct {
			waitNumber int
			wait       time.Duration
		}{{3, after}, {2, scaled[1]}, {3, scaled[2]}} {
			next := runs[i+1]
			if next.Attempt != i+2 {
				e.Errorf("attempt %d was followed by attempt %d", i+1, next.Attempt)
			}
			e.checkWait(e.T, id, i+2, next.began.Sub(runs[i].ended), want.wait)
			if got := j.settlements(id)[i]; got != (consumer.Settlement{Disposition: consumer.DispositionWait, WaitNumber: want.waitNumber}) {
				e.Errorf("attempt %d is said to be in %+v, want wait %d", i+1, got, want.waitNumber)
			}
			if e.version == "3.10" {
				continue // the waits are carried: nothing expires
			}
			if got := cameFrom(next, w); got != want.waitNumber {
				e.Errorf("attempt %d came from wait %d, want wait %d", i+2, got, want.waitNumber)
			}
		}
		e.atRest(w, 0)
	}, "RetryAfter, then a failure")
}

// cameFrom returns the number of the wait that a run came from, by what the
// broker wrote: the latest expiry.
func cameFrom(run entry, w topology.WorkQueue) int {
	if run.History.Last.Reason == xdeath.ReasonExpired {
		for waitNumber := range w.Waits {
			if run.History.Last.Queue == route.WaitQueue(w.Name, waitNumber+1) {
				return waitNumber + 1
			}
		}
	}
	found := 0
	for waitNumber := range w.Waits {
		if run.History.Count(route.WaitQueue(w.Name, waitNumber+1), xdeath.ReasonExpired) > 0 {
			if found != 0 {
				return -1 // several
			}
			found = waitNumber + 1
		}
	}
	return found
}

func TestRetryAfterBeyondLongest(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		const after = 1500 * time.Millisecond // the longest wait is 600 ms
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			switch d.Attempt {
			case 1:
				return consumer.RetryAfter(after, errBroken)
			case 2:
				return errBroken
			}
			return nil
		})
		id := e.send(w.Name, 1)[0]
		e.consume(w, j, consumer.Config{})
		e.until("it is done", func() bool { return j.reached(id, consumer.DispositionDone) })
		runs := j.of(id)
		if len(runs) != 3 || runs[1].Attempt != 2 || runs[2].Attempt != 3 {
			e.Fatalf("attempts are %v, want 1 to 3: going round again spends none", j.attempts(id))
		}
		e.checkWait(e.T, id, 2, runs[1].began.Sub(runs[0].ended), after)
		e.checkWait(e.T, id, 3, runs[2].began.Sub(runs[1].ended), scaled[1])
		e.atRest(w, 0)
	}, "RetryAfter beyond the longest wait")
}
