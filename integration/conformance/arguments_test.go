package conformance

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/matrix"
	"github.com/rehop/rehop/topology"
)

// argumentRules are those of the broker's arguments.
var argumentRules = []matrix.Rule{
	{Name: "single active consumer: never two at work, in order through stops"},
	{Name: "single active consumer: another value is a conflict that names it"},
	{Name: "single active consumer: a queue from before 4.3", Except: only43Quorum},
	{Name: "consumer priority: the higher one is served first"},
	{Name: "consumer timeout of a work queue: known, longer than the broker's", Except: only43Quorum},
	{Name: "consumer timeout of a work queue: accepted, or refused with the reason"},
}

func TestSingleActiveConsumer(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work", func(w *topology.WorkQueue) { w.SingleActiveConsumer = true })
		e.declare(w)
		var atWork, most atomic.Int32
		handle := func(context.Context, *consumer.Delivery) error {
			if n := atWork.Add(1); n > most.Load() {
				most.Store(n)
			}
			<-time.After(20 * time.Millisecond)
			atWork.Add(-1)
			return nil
		}
		ids := e.send(w.Name, 60)
		j := newJournal(handle)
		// There is work until the next one waits, however long that takes.
		meanwhile := func(done func() bool) func() bool {
			return func() bool {
				ids = append(ids, e.send(w.Name, 1)...)
				return done()
			}
		}
		for range 3 { // each is stopped in the middle, with the next one waiting
			before := len(j.of(""))
			first := e.consume(w, j, consumer.Config{Concurrency: 1})
			e.until("it is at work", meanwhile(func() bool { return len(j.of("")) > before }))
			second := e.consume(w, j, consumer.Config{Concurrency: 1})
			e.until("both consume", meanwhile(func() bool { return second.Health() == nil }))
			e.halt(first)
			e.halt(second)
		}
		e.consume(w, j, consumer.Config{Concurrency: 1})
		e.until("all are done", func() bool { return j.done() >= len(ids) })
		var got []string
		for _, run := range j.of("") {
			got = append(got, run.ID)
		}
		if most.Load() != 1 || !slices.Equal(slices.Compact(got), ids) {
			e.Errorf("%d at a time, in the order %v; want one, in the order of the queue", most.Load(), got)
		}
		e.atRest(w, 0)
	}, "single active consumer: never two at work, in order through stops")
}

func TestAnotherSingleActiveConsumerIsAConflict(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		w.SingleActiveConsumer = true
		err := topology.Declare(e.Context(), e.conn, w)
		var c *topology.ConflictError
		if !errors.As(err, &c) || c.Name != w.Name || c.Argument != "x-single-active-consumer" || c.Want != "true" || c.Have != "none" {
			e.Errorf("Declare: %v, want a conflict about x-single-active-consumer", err)
		}
	}, "single active consumer: another value is a conflict that names it")
}

func TestAQueueFromBefore43WithASingleActiveConsumer(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work.v2", func(w *topology.WorkQueue) { w.SingleActiveConsumer = true })
		held := func(d topology.Difference) bool { return d.Code == "consumer-held" }
		conn := e.connectManaged(e.node.ManagementURL(), slog.New(slog.DiscardHandler))
		e.declare(w)
		drift, err := topology.Verify(e.Context(), conn, w)
		if err != nil || slices.ContainsFunc(drift.Differences, held) {
			e.Errorf("a queue that was declared on 4.3: %v\n%s", err, drift)
		}
		if _, err := e.channel().QueueDelete(w.Name, false, false, false); err != nil {
			e.Fatal(err)
		}
		e.rawQueue(w.Name, amqp.Table{
			"x-dead-letter-exchange": w.Name + ".rehop.dlx", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
			"x-delivery-limit": 20, "x-single-active-consumer": true,
		})
		plan, err := topology.DeclarePlan(e.Context(), conn, w)
		if err != nil {
			e.Fatal(err)
		}
		drift, err = topology.Verify(e.Context(), conn, w)
		line := policyLine(plan)
		if at := slices.IndexFunc(drift.Differences, held); err != nil || !drift.OK() || at < 0 || line == "" || !strings.Contains(drift.Differences[at].Remedy, line) {
			e.Fatalf("%v\n%s\n%s\nwant both to have the policy", err, drift, plan)
		}
		name := "rehop " + w.Name
		e.Cleanup(func() { // t.Context has ended
			_, err := e.node.Exec(context.Background(), "rabbitmqctl", "clear_policy", name)
			e.noError("clear the policy", err)
		})
		if out, err := e.node.Exec(e.Context(), "sh", "-c", line); err != nil {
			e.Fatalf("the advised line\n%s\nfailed: %v %s", line, err, out)
		}
		e.until("Verify sees the policy", func() bool {
			drift, err := topology.Verify(e.Context(), conn, w)
			return err == nil && drift.OK() && !slices.ContainsFunc(drift.Differences, held)
		})
		if plan, err = topology.DeclarePlan(e.Context(), conn, w); err != nil || policyLine(plan) != "" {
			e.Errorf("under the policy: %v\n%s\nwant no note of it", err, plan)
		}
		goThroughWaits(e, w, topology.EngineNack)
	}, "single active consumer: a queue from before 4.3")
}

func TestConsumerPriority(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		low, high := newJournal(succeed), newJournal(succeed)
		l := e.consume(w, low, consumer.Config{Priority: -999})
		h := e.consume(w, high, consumer.Config{Priority: 999})
		e.until("both consume", func() bool { return l.Health() == nil && h.Health() == nil })
		e.send(w.Name, 1)
		e.until("it is done", func() bool { return high.done()+low.done() > 0 })
		// A session begins with room for one message, which the ack of the one before frees late.
		e.until("the higher one has room for several", func() bool { return high.prefetch.Load() >= 10 })
		for n := range 20 { // with room in the higher one each time
			e.send(w.Name, 1)
			e.until("it is done", func() bool { return high.done()+low.done() > n+1 })
			<-time.After(20 * time.Millisecond)
		}
		if n := len(low.settlements("")); n > 0 {
			e.Errorf("the lower one got %d of 21 messages, want none", n)
		}
		e.halt(h)
		e.send(w.Name, 1)
		e.until("the lower one has it", func() bool { return low.done() == 1 })
		e.atRest(w, 0)
	}, "consumer priority: the higher one is served first")
}

// A stream is read from its end where nobody names an offset, so what was in it before, and
// what comes while no consumer is there, would never be handled.
func TestAStreamIsRefused(t *testing.T) {
	inColumns(t, onlyClassic, func(e *env) {
		name := e.rawQueue(e.name("stream"), amqp.Table{"x-queue-type": "stream"})
		for kind, source := range map[string]topology.Source{"Route": topology.Route{Queue: name}, "DeadLetterQueue": topology.DeadLetterQueue{Name: name}} {
			c, err := consumer.New(e.conn, source, succeed, consumer.Config{})
			e.noError("make the consumer", err)
			if err := c.Run(e.Context()); err == nil || rehop.ClassOf(err) != rehop.ClassConfiguration || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "is a stream") {
				e.Errorf("%s: Run = %v, want that the queue is a stream", kind, err)
			}
		}
	}, []string{"a stream is refused"})
}

func TestConsumerTimeoutOfAWorkQueue(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work", func(w *topology.WorkQueue) { w.ConsumerTimeout = 5 * time.Second })
		e.declare(w)
		var after atomic.Int64
		j := newJournal(func(ctx context.Context, _ *consumer.Delivery) error {
			began := time.Now()
			<-ctx.Done()
			if after.CompareAndSwap(0, int64(time.Since(began))); !errors.Is(context.Cause(ctx), consumer.ErrConsumerTimeout) {
				e.Errorf("the ctx of the handler ended by %v, want the consumer timeout", context.Cause(ctx))
			}
			return nil
		})
		c := e.consume(w, j, consumer.Config{Concurrency: 1})
		id := e.send(w.Name, 1)[0]
		e.until("it is done", func() bool { return j.reached(id, consumer.DispositionDone) })
		if d := time.Duration(after.Load()); d < 2*time.Second || len(j.of(id)) != 1 { // the time counts from the arrival, which a busy machine puts far before the handler
			e.Errorf("the handler ran %d times, the first for %v; want once, and four fifths of 5s less its wait for the handler", len(j.of(id)), d)
		}
		e.halt(c)
		w.ConsumerTimeout = time.Minute // of a queue that exists
		e.declare(w)
		slow := newJournal(func(ctx context.Context, _ *consumer.Delivery) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(6 * time.Second): // longer than before
				return nil
			}
		})
		e.consume(w, slow, consumer.Config{})
		id = e.send(w.Name, 1)[0]
		e.until("it is done", func() bool { return slow.reached(id, consumer.DispositionDone) })
		if n := len(slow.of(id)); n != 1 {
			e.Errorf("the handler ran %d times, want once", n)
		}
		e.atRest(w, 0)
	}, "consumer timeout of a work queue: known, longer than the broker's")
}

func TestConsumerTimeoutIsAcceptedOrRefused(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work", func(w *topology.WorkQueue) { w.ConsumerTimeout = time.Hour })
		err := topology.Declare(e.Context(), e.conn, w)
		if e.version == "3.10" {
			if err == nil || rehop.ClassOf(err) != rehop.ClassBug {
				e.Errorf("Declare: %v, want that it is refused", err)
			}
			return
		}
		e.noError("declare", err)
		e.declare(w)
		w.ConsumerTimeout = 2 * time.Hour
		e.declare(w)
		j := newJournal(succeed)
		e.consume(w, j, consumer.Config{Concurrency: 1})
		id := e.send(w.Name, 1)[0]
		e.until("it is done", func() bool { return j.reached(id, consumer.DispositionDone) })
		e.atRest(w, 0)
	}, "consumer timeout of a work queue: accepted, or refused with the reason")
}
