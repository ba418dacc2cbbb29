package conformance

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/topology"
)

// Schedules and engines that change while messages wait.

func TestChangedWaitIsConflict(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work", waits(time.Second, 2*time.Second))
		e.declare(w)
		id := e.send(w.Name, 1)[0]
		j := newJournal(fail)
		r := e.consume(w, j, consumer.Config{})
		e.until("it waits", func() bool { return j.reached(id, consumer.PlaceWait) })
		e.halt(r)

		changed := w
		changed.Waits = []time.Duration{time.Second, 3 * time.Second}
		err := topology.Declare(e.Context(), e.conn, changed)
		var conflict *topology.ConflictError
		if !errors.As(err, &conflict) {
			e.Fatalf("Declare with a changed wait: %v, want a *ConflictError", err)
		}
		if conflict.Kind != "queue" || conflict.Name != w.WaitQueue(2) || conflict.Argument != "x-message-ttl" ||
			conflict.Want != "3s" || conflict.Have != "2s" {
			e.Errorf("conflict is %+v, want queue %s, x-message-ttl, wanted 3s, found 2s", *conflict, w.WaitQueue(2))
		}
		for _, want := range []string{w.WaitQueue(2), "x-message-ttl", "3s", "2s", "the wait was changed", "delete_queue"} {
			if !strings.Contains(err.Error(), want) {
				e.Errorf("Declare: %v; want %q in it", err, want)
			}
		}
		// Nothing has changed for the message.
		j = newJournal(fail)
		e.consume(w, j, consumer.Config{})
		e.until("it is a dead letter", func() bool { return j.reached(id, consumer.PlaceDeadLetter) })
		if got := j.attempts(id); got[len(got)-1] != 3 {
			e.Errorf("the remaining attempts are %v, want 3 as the last", got)
		}
		e.atRest(w, 1)
	}, "changed wait is a conflict")
}

func TestAddedWait(t *testing.T) {
	everywhere(t, func(e *env) {
		changeWaits(e, 4, 4, 1500*time.Millisecond, 2*time.Second, 300*time.Millisecond)
	}, "added wait, messages waiting")
}

func TestRemovedWait(t *testing.T) {
	everywhere(t, func(e *env) {
		changeWaits(e, 2, 3, 1500*time.Millisecond)
	}, "removed wait, messages waiting")
}

// changeWaits redeclares a work queue with two waits while messages are in
// both, and checks that each ends in the DLQ once, after as many attempts as
// the new schedule allows: those that waited on rung 1 after first, those on
// rung 2 after second.
func changeWaits(e *env, first, second int, schedule ...time.Duration) {
	w := e.workQueue("work", waits(1500*time.Millisecond, 2*time.Second))
	e.declare(w)
	j := newJournal(fail)
	old := e.consume(w, j, consumer.Config{})
	onSecond := e.send(w.Name, 5)
	for _, id := range onSecond {
		e.until("it waits on rung 2", func() bool { return len(j.settlements(id)) == 2 })
	}
	onFirst := e.send(w.Name, 5)
	for _, id := range onFirst {
		e.until("it waits on rung 1", func() bool { return len(j.settlements(id)) == 1 })
	}
	e.halt(old)
	changed := w
	changed.Waits = schedule
	e.declare(changed)

	rest := newJournal(fail)
	e.consume(changed, rest, consumer.Config{})
	for _, group := range []struct {
		ids      []string
		attempts int
	}{{onFirst, first}, {onSecond, second}} {
		for _, id := range group.ids {
			e.until("it is a dead letter", func() bool { return rest.reached(id, consumer.PlaceDeadLetter) })
			runs := append(j.of(id), rest.of(id)...)
			for i, run := range runs {
				if run.Attempt != i+1 {
					e.Errorf("message %q: run %d is attempt %d: lost count, or a second copy", id, i+1, run.Attempt)
				}
			}
			if len(runs) != group.attempts {
				e.Errorf("message %q was attempted %d times, want %d", id, len(runs), group.attempts)
			}
		}
	}
	e.atRest(w, 10)
	e.atRest(changed, 10)
	e.checkOnce(w.DeadLetterQueue().Name, append(onFirst, onSecond...))
}

// checkOnce takes all messages of a queue and checks that each id is there once.
func (e *env) checkOnce(queue string, ids []string) {
	e.Helper()
	seen := map[string]int{}
	for _, d := range e.take(queue, len(ids)) {
		seen[d.MessageId]++
	}
	for _, id := range ids {
		if seen[id] != 1 {
			e.Errorf("message %q is %d times in %s, want once", id, seen[id], queue)
		}
	}
}

// The consumer of the old wiring goes on while the new one is declared, as in
// a rolling restart.
func TestEngineChangedInFlight(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		j := newJournal(fail)
		r := e.consume(w, j, consumer.Config{Concurrency: 20})
		ids := e.send(w.Name, 100)
		e.until("the first ones fail", func() bool { return len(j.of("")) >= 20 })
		for _, engine := range []topology.Engine{topology.Republish, topology.Ladder} {
			before := len(j.of(""))
			changed := w
			changed.Engine = engine
			if plan := e.declare(changed); plan.Engines[0].Engine != engine {
				e.Fatalf("engine is %v, want %v", plan.Engines[0], engine)
			}
			ids = append(ids, e.send(w.Name, 50)...)
			e.until("some more fail in the new wiring", func() bool { return len(j.of("")) > before+20 })
			next := e.consume(changed, j, consumer.Config{Concurrency: 20})
			e.halt(r)
			r = next
			ids = append(ids, e.send(w.Name, 50)...)
			before = len(j.of(""))
			e.until("some more fail with the new consumer", func() bool { return len(j.of("")) > before+20 })
		}
		// A rejection by the old consumer in the new wiring may end at once in
		// the DLQ, as the design has it: nothing else is asserted of the way.
		e.until("all are dead letters", func() bool { return e.count(w.DeadLetterQueue().Name) >= len(ids) })
		e.atRest(w, len(ids))
		e.checkOnce(w.DeadLetterQueue().Name, ids)
	}, "engine changed, messages in flight")
}
