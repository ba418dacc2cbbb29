package conformance

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

var errBroken = errors.New("the printer is broken")

func succeed(context.Context, *consumer.Delivery) error { return nil }
func fail(context.Context, *consumer.Delivery) error    { return errBroken }

func TestSuccess(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		j := newJournal(succeed)
		ids := e.send(w.Name, 20)
		e.consume(w, j, consumer.Config{})
		e.until("all are done", func() bool { return j.done() >= len(ids) })
		for _, id := range ids {
			if got := j.attempts(id); !slices.Equal(got, []int{1}) {
				e.Errorf("message %q was handled as attempts %v, want [1]", id, got)
			}
			if !j.reached(id, consumer.DispositionDone) {
				e.Errorf("message %q was settled as %v, want done", id, j.settlements(id))
			}
		}
		e.atRest(w, 0)
	}, "success")
}

func TestFailsThenSucceeds(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		goThroughWaits(e, w, topology.EngineAuto)
	}, "fails k times, then succeeds", "attempts are 1, 2, 3, ...", "waits are never early")
}

func TestRepublishAskedFor(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work", func(w *topology.WorkQueue) { w.Engine = topology.EngineRepublish })
		if plan := e.declare(w); plan.Engines[0].Engine != topology.EngineRepublish {
			e.Fatalf("engine is %v, want republish as asked for", plan.Engines[0])
		}
		goThroughWaits(e, w, topology.EngineRepublish)
	}, "republish asked for")
}

// goThroughWaits sends messages that fail once, twice and so on, up to as often as
// there are waits, and a last one that never succeeds.
func goThroughWaits(e *env, w topology.WorkQueue, engine topology.Engine) {
	j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
		if failures, _ := strconv.Atoi(string(d.Body)); d.Attempt <= failures {
			return errBroken
		}
		return nil
	})
	ids := map[string]int{}
	var messages []producer.Message
	for range 5 { // for the lateness, too
		for k := 1; k <= len(w.Waits)+1; k++ {
			messages = append(messages, producer.Message{RoutingKey: w.Name, Body: []byte(strconv.Itoa(k))})
		}
	}
	for i, id := range e.publishAll(messages) {
		ids[id] = i%(len(w.Waits)+1) + 1
	}
	r := e.consume(w, j, consumer.Config{Concurrency: 30})
	e.until("all have reached their end", func() bool {
		for id := range ids {
			if !j.reached(id, consumer.DispositionDone) && !j.reached(id, consumer.DispositionDeadLetter) {
				return false
			}
		}
		return true
	})
	exhausted := 0
	for id, k := range ids {
		e.checkAttempts(j, w, id, min(k, len(w.Waits))+1)
		last := consumer.DispositionDone
		if k > len(w.Waits) {
			last = consumer.DispositionDeadLetter
			exhausted++
		}
		if !j.reached(id, last) {
			e.Errorf("message %q, which fails %d times, was settled as %v, want %v at last", id, k, j.settlements(id), last)
		}
	}
	e.halt(r)
	e.atRest(w, exhausted)
}

func TestTheNackEngineIsRefused(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work", func(w *topology.WorkQueue) { w.Engine = topology.EngineNack })
		err := topology.Declare(e.Context(), e.conn, w)
		if err == nil {
			e.deleteAtEnd([]string{w.Name}, nil)
			e.Fatal("Declare with the engine nack succeeded, want an error with the reason")
		}
		reason := "broker 3."
		if e.queue == topology.Classic {
			reason = "classic queue's dead letters are not confirmed"
		}
		for _, want := range []string{w.Name, "nack", reason, "republish"} {
			if !strings.Contains(err.Error(), want) {
				e.Errorf("Declare: %v; want %q in it", err, want)
			}
		}
	}, "nack refused")
}

func TestDiscard(t *testing.T) {
	onEveryEngine(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			if d.Attempt == 1 {
				return errBroken
			}
			return consumer.Discard("not ours")
		})
		id := e.send(w.Name, 1)[0]
		e.consume(w, j, consumer.Config{})
		e.until("it is discarded", func() bool { return j.reached(id, consumer.DispositionDone) })
		e.checkAttempts(j, w, id, 2)
		e.atRest(w, 0)
	}, "discard")
}

func TestRequeueHolds(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		runs := 0 // of one message, one after the other
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			runs++
			switch {
			case runs <= 3:
				return consumer.Hold(errors.New("the database is down"))
			case runs == 4:
				return errBroken
			}
			return nil
		})
		id := e.send(w.Name, 1)[0]
		e.consume(w, j, consumer.Config{Concurrency: 1})
		e.until("it is done", func() bool { return j.settledAs(id, 2, consumer.DispositionDone) })
		if got, want := j.attempts(id), []int{1, 1, 1, 1, 2}; !slices.Equal(got, want) {
			e.Errorf("attempts are %v, want %v: three runs on a held message, a failure, a success", got, want)
		}
		if got := j.settlements(id); len(got) != 2 || got[0].Disposition != consumer.DispositionWait {
			e.Errorf("settled as %v, want one wait and done: a held message is settled once", got)
		}
		e.atRest(w, 0)
	}, "Hold holds")
}

// A message that a service wants later keeps its place in order, and its attempt, however often
// that happens.
func TestHoldForKeepsItsPlace(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		const answers, pause = 5, 300 * time.Millisecond
		var mu sync.Mutex
		runs := map[string]int{}
		var order []string
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			runs[d.ID]++
			order = append(order, d.ID)
			if strings.HasSuffix(d.ID, "-000") && runs[d.ID] <= answers {
				return consumer.HoldFor(pause, errors.New("429 Too Many Requests"))
			}
			return nil
		})
		e.sendKeys(w.Name, 3, 1)
		e.consume(w, j, consumer.Config{Concurrency: 3, KeyLimit: 1})
		e.until("all are done", func() bool { return j.done() == 3 })
		first, second, third := e.prefix+"-000", e.prefix+"-001", e.prefix+"-002"
		if want := append(slices.Repeat([]string{first}, answers+1), second, third); !slices.Equal(order, want) {
			e.Errorf("handled in the order %q, want %q", order, want)
		}
		if got, want := j.attempts(first), slices.Repeat([]int{1}, answers+1); !slices.Equal(got, want) {
			e.Errorf("attempts are %v, want %v", got, want)
		}
		if got := j.settlements(first); !slices.Equal(got, []consumer.Settlement{{Disposition: consumer.DispositionDone}}) {
			e.Errorf("settled as %v, want done, once", got)
		}
		held := j.of(first)
		for i := range answers {
			if gap := held[i+1].began.Sub(held[i].ended); gap < pause {
				e.Errorf("it ran again after %v, want %v or more", gap, pause)
			}
		}
		e.atRest(w, 0)
	}, "HoldFor: in its place, the same attempt, never early")
}

func TestRequeueHeldAtStop(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		id := e.send(w.Name, 1)[0]
		down := newJournal(func(context.Context, *consumer.Delivery) error { return consumer.Hold(errBroken) })
		first := e.consume(w, down, consumer.Config{})
		e.until("it is held", func() bool { return len(down.of(id)) > 1 })
		e.halt(first)
		up := newJournal(succeed)
		e.consume(w, up, consumer.Config{})
		e.until("it is done", func() bool { return up.reached(id, consumer.DispositionDone) })
		e.checkAttempts(up, w, id, 1)
		e.atRest(w, 0)
	}, "Hold holds")
}

func TestHandlerTimeout(t *testing.T) {
	onEveryEngine(t, func(e *env) {
		w := e.workQueue("work", waits(150*time.Millisecond))
		e.declare(w)
		const limit, stubborn = time.Second, 200 * time.Millisecond
		j := newJournal(func(ctx context.Context, d *consumer.Delivery) error {
			<-ctx.Done()
			cause := context.Cause(ctx)
			select { // the handler does not return at once: nothing may be settled before it does
			case <-time.After(stubborn):
			case <-e.Context().Done():
			}
			return cause
		})
		id := e.send(w.Name, 1)[0]
		e.consume(w, j, consumer.Config{HandlerTimeout: limit})
		e.until("it is a dead letter", func() bool { return j.reached(id, consumer.DispositionDeadLetter) })
		e.checkAttempts(j, w, id, 2)
		for _, run := range j.of(id) {
			if !errors.Is(run.err, consumer.ErrHandlerTimeout) {
				e.Errorf("the cause of the handler's ctx is %v, want ErrHandlerTimeout", run.err)
			}
			// The limit counts from before the handler is called, which a busy machine does late.
			if took := run.ended.Sub(run.began); took < limit/3+stubborn || took > limit+stubborn+5*time.Second {
				e.Errorf("attempt %d was over after %v, want %v, not sooner and not seconds later", run.Attempt, took, limit+stubborn)
			}
		}
		letter := e.letter(w)
		h := e.parse(letter)
		if h.Failure.Cause != rehop.CauseExhausted || h.FinalAttempts != 2 {
			e.Errorf("letter says %q after %d attempts, want exhausted after 2", h.Failure.Cause, h.FinalAttempts)
		}
		e.atRest(w, 0)
	}, "handler timeout")
}
