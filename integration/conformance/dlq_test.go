package conformance

import (
	"context"
	"slices"
	"testing"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
)

// The consumer of a dead-letter queue, behind which there is nothing: what
// fails there stays there.

func TestDLQConsumer(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work", waits())
		e.declare(w)
		dlq := w.DeadLetterQueue()
		ids := e.send(w.Name, 3)
		e.consume(w, newJournal(fail), consumer.Config{})
		e.until("all are dead letters", func() bool { return e.count(dlq.Name) == len(ids) })

		// Looking at letters, and dying of it, does not use them up.
		for range 25 * len(ids) {
			e.crashOnce(dlq.Name)
		}

		// A handler that fails in every way a handler can.
		stuck := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			switch d.ID {
			case ids[0]:
				return errBroken
			case ids[1]:
				return consumer.DeadLetter(errBroken)
			}
			panic("in the office")
		})
		first := e.consume(dlq, stuck, consumer.Config{})
		for _, id := range ids {
			e.until("it is handled again and again", func() bool { return len(stuck.of(id)) >= 3 })
			if got := stuck.settlements(id); len(got) != 0 {
				e.Errorf("letter %q was settled as %v, want held", id, got)
			}
			for _, run := range stuck.of(id) {
				if run.Attempt != 1 || run.History.Failure.Cause != rehop.CauseExhausted || run.History.Queue != w.Name {
					e.Errorf("letter %q is attempt %d, with the report %+v of %q; want attempt 1, exhausted, of %q",
						id, run.Attempt, run.History.Failure, run.History.Queue, w.Name)
				}
			}
		}
		e.halt(first)
		e.until("all are back in the DLQ", func() bool { return e.count(dlq.Name) == len(ids) })

		good := newJournal(succeed)
		e.consume(dlq, good, consumer.Config{})
		for _, id := range ids {
			e.until("it is done", func() bool { return good.reached(id, consumer.DispositionDone) })
			if got := good.attempts(id); !slices.Equal(got, []int{1}) {
				e.Errorf("letter %q was handled as attempts %v, want [1]", id, got)
			}
		}
		e.atRest(w, 0)
	}, "consumer of the DLQ")
}
