package conformance

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/topology"
)

// Schedules and engines that change while messages wait.

// Both versions of a service are alive, and declare in turns.
func TestChangedSchedulesSideBySide(t *testing.T) {
	everywhere(t, func(e *env) {
		old := e.workQueue("work", waits(400*time.Millisecond, 1500*time.Millisecond, 300*time.Millisecond))
		for name, schedule := range map[string][]time.Duration{
			"longer":        {400 * time.Millisecond, 1500 * time.Millisecond, 300 * time.Millisecond, 900 * time.Millisecond, 200 * time.Millisecond},
			"changed waits": {900 * time.Millisecond, 300 * time.Millisecond, 300 * time.Millisecond},
		} {
			old.Name = e.name(name)
			changed := old
			changed.Waits = schedule
			e.sideBySide(old, changed)
		}
	}, "changed schedule, both alive")
}

// sideBySide lets consumers of two versions of a work queue fail the same
// messages, of which each must wait as long as the one wants that it failed in.
func (e *env) sideBySide(versions ...topology.WorkQueue) {
	e.Helper()
	const each = 30
	journals := make([]*journal, len(versions))
	plans := make([]topology.Plan, len(versions))
	longest := 0
	for i, w := range versions {
		plans[i] = e.declare(w)
		journals[i] = newJournal(fail)
		e.consumeOn(e.connect(e.node.AMQPURL()), w, journals[i], consumer.Config{Concurrency: 20})
		longest = max(longest, len(w.Waits))
	}
	var ids []string
	for i := range 3 * len(versions) {
		w := versions[i%len(versions)]
		if err := topology.Declare(e.Context(), e.conn, w); err != nil {
			e.Fatal(err)
		}
		ids = append(ids, e.send(w.Name, each/3)...)
	}
	type run struct {
		entry
		by int
	}
	dead := func() (n int) {
		for _, j := range journals {
			for _, s := range j.settlements("") {
				if s.Disposition == consumer.DispositionDeadLetter {
					n++
				}
			}
		}
		return n
	}
	e.until("all are dead letters, and every settlement is told", func() bool {
		runs, settlements := 0, 0
		for _, j := range journals {
			runs, settlements = runs+len(j.of("")), settlements+len(j.settlements(""))
		}
		return dead() >= len(ids) && settlements >= runs
	})
	for _, id := range ids {
		var runs []run
		for i, j := range journals {
			for _, en := range j.of(id) {
				runs = append(runs, run{en, i})
			}
		}
		slices.SortFunc(runs, func(a, b run) int { return a.began.Compare(b.began) })
		for i, r := range runs {
			if r.Attempt != i+1 {
				e.Errorf("message %q: run %d is attempt %d: lost count, or a second copy", id, i+1, r.Attempt)
			}
			if i == 0 {
				continue
			}
			if before := runs[i-1]; before.Attempt <= len(versions[before.by].Waits) {
				e.checkWait(e.T, id, r.Attempt, r.began.Sub(before.ended), versions[before.by].Waits[before.Attempt-1])
			}
		}
		e.checkReports(id, journals, plans)
		if len(runs) > longest+1 {
			e.Errorf("message %q was attempted %d times, want at most %d", id, len(runs), longest+1)
		}
	}
	for i, plan := range plans {
		for _, q := range plan.Engines[0].Waits {
			e.until("queue "+q+" is empty", func() bool { return e.count(q) == 0 })
		}
		if n := e.count(versions[i].DeadLetterQueue().Name); n != len(ids) {
			e.Errorf("%d dead letters, want %d", n, len(ids))
		}
	}
	e.checkOnce(versions[0].DeadLetterQueue().Name, ids)
}

// checkReports checks that each version has said of a message what the next run
// shows: that it is in the wait of the attempt that failed, in the queue that this
// version uses for it, and in the end a letter.
func (e *env) checkReports(id string, journals []*journal, plans []topology.Plan) {
	e.Helper()
	var all []entry
	letters := 0
	for _, j := range journals {
		all = append(all, j.of(id)...)
	}
	for i, j := range journals {
		said, runs := j.settlements(id), j.of(id)
		if len(said) != len(runs) {
			e.Errorf("message %q: %d runs of one version, and it says %v", id, len(runs), said)
			continue
		}
		for k, run := range runs {
			if said[k].Disposition == consumer.DispositionDeadLetter {
				letters++
				continue
			}
			if said[k] != (consumer.Settlement{Disposition: consumer.DispositionWait, WaitNumber: run.Attempt}) {
				e.Errorf("message %q: attempt %d is said to be in %+v", id, run.Attempt, said[k])
				continue
			}
			wait := plans[i].Engines[0].Waits[run.Attempt-1]
			for _, next := range all {
				if last := next.History.Last; next.Attempt == run.Attempt+1 && e.version != "3.10" && last.Queue != wait { // there nothing expires
					e.Errorf("message %q: attempt %d came from %q, said was %q", id, next.Attempt, last.Queue, wait)
				}
			}
		}
	}
	if letters != 1 {
		e.Errorf("message %q is said to be a letter %d times", id, letters)
	}
}

func TestAddedWait(t *testing.T) {
	everywhere(t, func(e *env) {
		changeWaits(e, 4, 4, firstWait, secondWait, 300*time.Millisecond)
	}, "added wait, messages waiting")
}

func TestRemovedWait(t *testing.T) {
	everywhere(t, func(e *env) {
		changeWaits(e, 2, 3, firstWait)
	}, "removed wait, messages waiting")
}

// The waits before they change. Messages must still be in both when the consumer has
// stopped, which a busy machine does seconds after it was given the last of them.
const firstWait, secondWait = 6 * time.Second, 9 * time.Second

// changeWaits redeclares a work queue with two waits while messages are in
// both, and checks that each ends in the DLQ once, after as many attempts as
// the new schedule allows: those in wait 1 after first, those in
// wait 2 after second.
func changeWaits(e *env, first, second int, schedule ...time.Duration) {
	w := e.workQueue("work", waits(firstWait, secondWait))
	e.declare(w)
	j := newJournal(fail)
	old := e.consume(w, j, consumer.Config{})
	onSecond := e.send(w.Name, 5)
	for _, id := range onSecond {
		e.until("it is in wait 2", func() bool { return len(j.settlements(id)) >= 2 })
	}
	onFirst := e.send(w.Name, 5)
	for _, id := range onFirst {
		e.until("it is in wait 1", func() bool { return len(j.settlements(id)) >= 1 })
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
			e.until("it is a dead letter", func() bool { return rest.reached(id, consumer.DispositionDeadLetter) })
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

// checkLetters takes all letters of a work queue and checks that each id is there,
// and once, unless it may be doubled.
func (e *env) checkLetters(w topology.WorkQueue, ids []string, doubled map[string]bool) {
	e.Helper()
	ch := e.channel()
	defer ch.Close()
	seen := map[string]int{}
	e.until("each message is a dead letter, and no more come", func() bool {
		for _, d := range e.takeAll(ch, w.DeadLetterQueue().Name) {
			seen[d.MessageId]++
		}
		return len(seen) == len(ids) && e.count(w.Name) == 0
	})
	for id, n := range seen {
		if n > 1 && !doubled[id] {
			e.Errorf("message %q is %d times in %s, want once", id, n, w.DeadLetterQueue().Name)
		}
	}
}

// The consumer of one engine goes on while the other is declared, as in a rolling
// restart: whether a nack leads to a wait is a matter of the queue, not of who declares.
func TestEngineChangedInFlight(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		j := newJournal(fail)
		j.countCopies()
		r := e.consume(w, j, consumer.Config{Concurrency: 20})
		ids := e.send(w.Name, 100)
		e.until("the first ones fail", func() bool { return len(j.of("")) >= 20 })
		for _, engine := range []topology.Engine{topology.EngineRepublish, topology.EngineNack} {
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
		e.until("all are dead letters", func() bool { return e.count(w.DeadLetterQueue().Name) >= len(ids) })
		// A broker that answers nothing for a second has what is behind sent again.
		doubled := j.unconfirmed()
		if len(doubled) > 0 {
			e.Logf("%d messages may be doubled: their copies were not confirmed", len(doubled))
			e.checkLetters(w, ids, doubled)
		} else {
			e.atRest(w, len(ids))
			e.checkOnce(w.DeadLetterQueue().Name, ids)
		}
		ids = slices.DeleteFunc(ids, func(id string) bool { return doubled[id] })
		for _, id := range ids {
			e.until("every settlement is told", func() bool { return j.settledAs(id, len(w.Waits)+1, consumer.DispositionDeadLetter) })
			said := map[consumer.Settlement]int{}
			for _, s := range j.settlements(id) {
				said[s]++
			}
			if said[consumer.Settlement{Disposition: consumer.DispositionRequeued}] == 0 {
				e.checkAttempts(j, w, id, len(w.Waits)+1)
			} else if got := slices.Compact(j.attempts(id)); len(got) != len(w.Waits)+1 || !slices.IsSorted(got) {
				e.Errorf("message %q was given back by a consumer that stopped, and handled as attempts %v%s", id, j.attempts(id), j.story(id))
			}
			want := map[consumer.Settlement]int{{Disposition: consumer.DispositionDeadLetter, Cause: rehop.CauseExhausted}: 1}
			for i := range w.Waits {
				want[consumer.Settlement{Disposition: consumer.DispositionWait, WaitNumber: i + 1}] = 1
			}
			delete(said, consumer.Settlement{Disposition: consumer.DispositionRequeued}) // by a consumer that stops
			if !maps.Equal(said, want) {
				e.Errorf("message %q is said to be in %v, want %v", id, said, want)
			}
		}
	}, "engine changed, messages in flight")
}
