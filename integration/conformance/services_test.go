package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/matrix"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// serviceRules are those of what handlers are made of beyond one function for one
// message.
var serviceRules = []matrix.Rule{
	{Name: "types: undecodable and unhandled at the first attempt", Except: matrix.OncePerEngine},
	{Name: "classify: a rule dead-letters by age", Except: matrix.OncePerEngine},
	{Name: "snooze: comes back unspent, not early"},
	{Name: "keys: one at a time, in the order of the queue", Except: matrix.OncePerEngine},
	{Name: "keys: handled in order and once where they wait for long", Except: asksForTimeout},
	{Name: "keys: in the order of the queue through stops"},
	{Name: "keys: in the order of a queue of others through stops"},
	{Name: "keys: in order where many messages come to an idle queue"},
	{Name: "keys: in the order of the queue where the consumer before is just ending"},
	{Name: "keys: a held message keeps its place through stops"},
	{Name: "outage: no attempt spent, the others' work not kept, over within one try"},
	{Name: "outage: Health says no more of it when there is no message to try"},
	{Name: "pause: nothing is handled or kept, and all after it"},
	{Name: "batches: each message has its outcome", Except: matrix.OncePerEngine},
	{Name: "batches: only the message at fault fails", Except: matrix.OncePerEngine},
}

func TestTypesAndDispatch(t *testing.T) {
	onEveryEngine(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		type order struct{ Number int }
		j := newJournal(consumer.Mux{"paid": consumer.JSON(func(_ context.Context, _ *consumer.Delivery, o order) error {
			if o.Number != 7 {
				return fmt.Errorf("number %d, want 7", o.Number)
			}
			return nil
		})}.Handle)
		good, err := producer.Message{RoutingKey: w.Name, Type: "paid"}.JSON(order{7})
		e.noError("encode", err)
		bad, unknown := good, good
		bad.Body, unknown.Type = []byte(`{"Number": "seven"}`), "lost"
		want := map[string]rehop.Cause{e.publish(bad): rehop.CauseUndecodable, e.publish(unknown): rehop.CauseUnhandled}
		done := e.publish(good)
		e.consume(w, j, consumer.Config{})
		e.until("all are settled", func() bool { return len(j.settlements("")) >= 3 })
		if !j.reached(done, consumer.DispositionDone) {
			e.Errorf("the good message was settled as %v, want done", j.settlements(done))
		}
		for id, cause := range want {
			if got := j.settlements(id); !slices.Equal(got, []consumer.Settlement{{Disposition: consumer.DispositionDeadLetter, Cause: cause}}) {
				e.Errorf("message %q was settled as %v, want a dead letter, %s", id, got, cause)
			}
		}
		for _, letter := range e.take(w.DeadLetterQueue().Name, len(want)) {
			if h := e.parse(letter); h.Failure.Cause != want[letter.MessageId] || h.FinalAttempts != 1 {
				e.Errorf("letter %q says %q after %d attempts, want %q after 1", letter.MessageId, h.Failure.Cause, h.FinalAttempts, want[letter.MessageId])
			}
		}
		e.atRest(w, 0)
	}, "types: undecodable and unhandled at the first attempt")
}

// sendKeys publishes n messages in order, with as many keys in turns.
func (e *env) sendKeys(queue string, n, keys int) {
	e.Helper()
	messages := make([]producer.Message, n)
	for i := range messages {
		messages[i] = producer.Message{RoutingKey: queue, OrderKey: fmt.Sprint(i % keys), ID: fmt.Sprintf("%s-%03d", e.prefix, i)}
	}
	e.publishAll(messages)
}

func TestKeys(t *testing.T) {
	onEveryEngine(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		j := newJournal(func(context.Context, *consumer.Delivery) error {
			<-time.After(5 * time.Millisecond)
			return nil
		})
		const messages, keys = 120, 4
		e.sendKeys(w.Name, messages, keys)
		e.consume(w, j, consumer.Config{Concurrency: 10, KeyLimit: 1})
		e.until("all are done", func() bool { return j.done() >= messages })
		last := map[string]entry{}
		for _, run := range j.of("") { // as they began
			if before := last[run.OrderKey]; before.ID >= run.ID || before.ended.After(run.began) {
				e.Errorf("message %q of key %s began at %v, after %q, which ended at %v", run.ID, run.OrderKey, run.began, before.ID, before.ended)
			}
			last[run.OrderKey] = run
		}
		if len(last) != keys {
			e.Errorf("messages of %d keys were handled, want %d", len(last), keys)
		}
		e.atRest(w, 0)
	}, "keys: one at a time, in the order of the queue")
}

func TestOutage(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		var away atomic.Bool
		away.Store(true)
		broken := newJournal(func(context.Context, *consumer.Delivery) error {
			if away.Load() {
				return consumer.Hold(errBroken)
			}
			return nil
		})
		const slots, messages = 4, 100
		cfg := consumer.Config{Concurrency: slots, Outage: consumer.Outage{MaxPause: time.Second}}
		e.send(w.Name, messages)
		c := e.consume(w, broken, cfg)
		e.until("there is an outage", func() bool { return strings.Contains(fmt.Sprint(c.Health()), "outage") })
		good := newJournal(succeed)
		other := e.consume(w, good, consumer.Config{Concurrency: slots})
		e.until("the other consumer has taken the work", func() bool { return good.done() >= messages-slots-1 })
		e.halt(other)
		e.send(w.Name, messages)
		away.Store(false)
		e.until("all are done", func() bool { return good.done()+broken.done() >= 2*messages })
		e.until("it is healthy", func() bool { return c.Health() == nil })
		for _, run := range append(broken.of(""), good.of("")...) {
			if run.Attempt != 1 {
				e.Errorf("message %q was handled as attempt %d, want 1: an outage spends none", run.ID, run.Attempt)
			}
		}
		e.atRest(w, 0)
	}, "outage: no attempt spent, the others' work not kept, over within one try")
}

// TestAnOutageWithoutAMessageToTry: the other consumer has handled them all, also those
// that this one held when it lost its connection.
func TestAnOutageWithoutAMessageToTry(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		broken := newJournal(func(context.Context, *consumer.Delivery) error { return consumer.Hold(errBroken) })
		cfg := consumer.Config{Concurrency: 4, Outage: consumer.Outage{MaxPause: time.Second}}
		const messages = 20
		e.send(w.Name, messages)
		line := e.startProxy()
		c := e.consumeOn(e.connect(line.url), w, broken, cfg)
		outage := func() bool {
			err := c.Health()
			return err != nil && strings.Contains(err.Error(), "outage")
		}
		e.until("there is an outage", outage)
		good := newJournal(succeed)
		other := e.consume(w, good, consumer.Config{Concurrency: 4})
		cut := time.Now()
		e.until("the other consumer has taken the work", func() bool {
			if time.Since(cut) > time.Second {
				line.cut() // what is held goes back, and each time counts towards the delivery limit
				cut = time.Now()
			}
			return good.done() >= messages
		})
		e.until("nothing is said of the outage", func() bool { return c.Health() == nil })
		other.Pause()
		e.until("the other consumer is paused", func() bool { return other.Health() != nil })
		e.send(w.Name, 1)
		e.until("a message has failed", outage)
		other.Resume()
		e.halt(c)
		e.until("all are done", func() bool { return good.done() >= messages+1 })
		e.atRest(w, 0)
	}, "outage: Health says no more of it when there is no message to try")
}

func TestPause(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		j := newJournal(succeed)
		c := e.consume(w, j, consumer.Config{Concurrency: 2})
		e.until("it consumes", func() bool { return c.Health() == nil })
		c.Pause()
		e.until("it says so", func() bool { return c.Health() != nil })
		const messages = 50
		e.send(w.Name, messages)
		<-time.After(500 * time.Millisecond)
		before := len(j.of(""))
		<-time.After(time.Second)
		if after := len(j.of("")); after > before {
			e.Errorf("%d messages were handled while paused", after-before)
		}
		other := newJournal(succeed)
		second := e.consume(w, other, consumer.Config{Concurrency: 2})
		e.until("another consumer has them all", func() bool { return other.done()+before >= messages })
		e.halt(second)
		c.Resume()
		ids := e.send(w.Name, messages)
		e.until("all are done after Resume", func() bool {
			return !slices.ContainsFunc(ids, func(id string) bool { return !j.reached(id, consumer.DispositionDone) })
		})
		e.atRest(w, 0)
	}, "pause: nothing is handled or kept, and all after it")
}

func TestClassifyByAge(t *testing.T) {
	onEveryEngine(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		classify, err := consumer.Classify(consumer.Rule{OlderThan: time.Hour, Then: consumer.Outcome{Action: consumer.ActionDeadLetter, Cause: rehop.CauseExpired}})
		e.noError("make the wrapper", err)
		j := newJournal(consumer.Wrap(fail, classify))
		id := e.publish(producer.Message{RoutingKey: w.Name, Timestamp: time.Now().Add(-2 * time.Hour)})
		e.consume(w, j, consumer.Config{})
		e.until("it is a dead letter", func() bool { return j.reached(id, consumer.DispositionDeadLetter) })
		if h := e.parse(e.letter(w)); h.Failure.Cause != rehop.CauseExpired || h.FinalAttempts != 1 {
			e.Errorf("letter says %q after %d attempts, want expired after 1", h.Failure.Cause, h.FinalAttempts)
		}
		e.atRest(w, 0)
	}, "classify: a rule dead-letters by age")
}

func TestSnooze(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		const d = 200 * time.Millisecond // rounded up to the second wait
		j := newJournal(func(_ context.Context, m *consumer.Delivery) error {
			switch {
			case m.Attempt == 1:
				return errBroken
			case m.History.Snoozes < 2:
				return consumer.Snooze(d, "not its turn")
			}
			return nil
		})
		e.consume(w, j, consumer.Config{})
		ids := e.send(w.Name, 10)
		e.until("all are done", func() bool {
			return !slices.ContainsFunc(ids, func(id string) bool { return !j.reached(id, consumer.DispositionDone) })
		})
		for _, id := range ids {
			runs := j.of(id)
			if got := j.attempts(id); !slices.Equal(got, []int{1, 2, 2, 2}) {
				e.Errorf("message %q was handled as attempts %v, want [1 2 2 2]", id, got)
				continue
			}
			for i := 2; i < len(runs); i++ {
				if runs[i].History.Snoozes != i-1 {
					e.Errorf("message %q was snoozed %d times at its run %d, want %d", id, runs[i].History.Snoozes, i, i-1)
				}
				if took := runs[i].began.Sub(runs[i-1].ended); took < d {
					e.Errorf("message %q came back after %v, want %v at least", id, took, d)
				}
			}
		}
		e.atRest(w, 0)
	}, "snooze: comes back unspent, not early")
}

// asksForTimeout: a queue of 3.10 has no consumer timeout of its own.
func asksForTimeout(version, _ string) string {
	if version == "3.10" {
		return "queues have a consumer timeout from 3.12 on"
	}
	return ""
}

// The messages of one key wait in hand for longer than the consumer timeout leaves them.
// They go back to their places, again and again, and each is handled once.
func TestKeysWhoseHandlersAreSlow(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work", func(w *topology.WorkQueue) { w.ConsumerTimeout = 6 * time.Second })
		e.declare(w)
		j := newJournal(func(ctx context.Context, _ *consumer.Delivery) error {
			if ctx.Err() != nil {
				e.Errorf("a handler begins, and its ctx has ended: %v", context.Cause(ctx))
			}
			<-time.After(150 * time.Millisecond)
			return nil
		})
		const messages = 60
		e.sendKeys(w.Name, messages, 1)
		e.consume(w, j, consumer.Config{Concurrency: 4, KeyLimit: 1})
		e.until("all are done", func() bool { return j.done() >= messages })
		for i, run := range j.of("") {
			if run.ID != fmt.Sprintf("%s-%03d", e.prefix, i) || run.Attempt != 1 {
				e.Errorf("run %d is attempt %d at message %q, want each message once and in the order of the queue", i, run.Attempt, run.ID)
			}
		}
		e.atRest(w, 0)
	}, "keys: handled in order and once where they wait for long")
}

func TestKeysThroughStops(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		e.keepsOrderThroughStops(w)
	}, "keys: in the order of the queue through stops")
}

func TestKeysOfAQueueOfOthersThroughStops(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work", func(w *topology.WorkQueue) { w.Existing = true })
		e.rawQueue(w.Name, nil)
		e.declare(w)
		e.keepsOrderThroughStops(w)
	}, "keys: in the order of a queue of others through stops")
}

// keepsOrderThroughStops has the consumer stop in the middle, after more acks than a broker's channel
// passes on at once. The broker sends a message for each ack meanwhile.
func (e *env) keepsOrderThroughStops(w topology.WorkQueue) {
	e.Helper()
	j := newJournal(func(context.Context, *consumer.Delivery) error {
		<-time.After(5 * time.Millisecond)
		return nil
	})
	const messages = 400
	e.sendKeys(w.Name, messages, 1)
	for stops := 1; stops <= 4; stops++ {
		c := e.consume(w, j, consumer.Config{Concurrency: 4, KeyLimit: 1})
		e.until("some are done", func() bool { return j.done() >= min(stops*100-50, messages) })
		e.halt(c)
	}
	e.consume(w, j, consumer.Config{Concurrency: 4, KeyLimit: 1})
	e.until("all are done", func() bool { return j.done() >= messages })
	for i, run := range j.of("") {
		if run.ID != fmt.Sprintf("%s-%03d", e.prefix, i) {
			e.Fatalf("run %d is of message %q, want the order of the queue", i, run.ID)
		}
	}
	e.atRest(w, 0)
}

// The broker has not seen the end of the consumer before when the next one starts.
func TestKeysWhereTheConsumerBeforeIsEnding(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		const messages, inHand = 40, 15
		e.sendKeys(w.Name, messages, 1)
		ch := e.channel()
		e.noError("set the prefetch", ch.Qos(inHand, 0, false))
		before, err := ch.Consume(w.Name, "", false, false, false, false, nil)
		e.noError("consume", err)
		for range inHand {
			<-before
		}
		j := newJournal(succeed)
		e.consume(w, j, consumer.Config{Concurrency: 4, KeyLimit: 1})
		<-time.After(500 * time.Millisecond)
		if n := len(j.of("")); n > 0 {
			e.Errorf("%d messages are handled before those that %d of them follow are back", n, inHand)
		}
		e.noError("end the consumer before", ch.Close())
		e.until("all are done", func() bool { return j.done() >= messages })
		for i, run := range j.of("") {
			if run.ID != fmt.Sprintf("%s-%03d", e.prefix, i) {
				e.Fatalf("run %d is of message %q, want the order of the queue", i, run.ID)
			}
		}
		e.atRest(w, 0)
	}, "keys: in the order of the queue where the consumer before is just ending")
}

// The first of five messages of a key is held when the consumer is stopped.
func TestKeysOfHeldMessagesThroughStops(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		var held atomic.Pointer[string] // not by Redelivered, which a message can be when it is handled for the first time
		held.Store(new(string))
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			if d.ID == *held.Load() {
				return consumer.Hold(errBroken)
			}
			return nil
		})
		for stops := range 5 {
			first := fmt.Sprintf("%s-%d-0", e.prefix, stops)
			held.Store(&first)
			batch := make([]producer.Message, 5)
			for i := range batch {
				batch[i] = producer.Message{RoutingKey: w.Name, OrderKey: "k", ID: fmt.Sprintf("%s-%d-%d", e.prefix, stops, i)}
			}
			e.publishAll(batch)
			c := e.consume(w, j, consumer.Config{Concurrency: 4, KeyLimit: 1, Prefetch: 10})
			e.until("the first is held", func() bool { return len(j.of(first)) > 1 })
			e.halt(c)
			held.Store(new(string))
			c = e.consume(w, j, consumer.Config{Concurrency: 4, KeyLimit: 1})
			e.until("all are done", func() bool {
				for i := range 5 {
					if !j.reached(fmt.Sprintf("%s-%d-%d", e.prefix, stops, i), consumer.DispositionDone) {
						return false
					}
				}
				return true
			})
			e.halt(c)
			var done []string
			for _, run := range j.of("") {
				if run.err == nil && strings.HasPrefix(run.ID, fmt.Sprintf("%s-%d-", e.prefix, stops)) {
					done = append(done, run.ID[len(run.ID)-1:])
				}
			}
			if got := strings.Join(done, " "); got != "0 1 2 3 4" {
				e.Errorf("handled in the order %s after stop %d", got, stops)
			}
		}
		e.atRest(w, 0)
	}, "keys: a held message keeps its place through stops")
}

// More messages than the broker may send ahead come to a queue that was idle for so long
// that its consumer asks it for a sign: a little before that, a little after, and so on.
func TestKeysThatComeToAnIdleQueue(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		j := newJournal(func(context.Context, *consumer.Delivery) error { return nil })
		e.consume(w, j, consumer.Config{Concurrency: 2, KeyLimit: 1, Prefetch: 2})
		sent := 0
		rush := func() {
			batch := make([]producer.Message, 60)
			for i := range batch {
				batch[i] = producer.Message{RoutingKey: w.Name, OrderKey: "k", ID: fmt.Sprintf("%s-%03d", e.prefix, sent)}
				sent++
			}
			_, err := e.producer.PublishAll(e.Context(), batch)
			e.noError("publish", err)
			e.until("all are done", func() bool { return j.done() >= sent })
		}
		rush()
		for i := range 3 {
			runs := j.of("")
			<-time.After(time.Until(runs[len(runs)-1].ended.Add(10*time.Second - 3*time.Millisecond + time.Duration(i)*2*time.Millisecond)))
			rush()
		}
		for i, run := range j.of("") {
			if run.ID != fmt.Sprintf("%s-%03d", e.prefix, i) {
				e.Fatalf("run %d is of message %q, want the order of the queue", i, run.ID)
			}
		}
		e.atRest(w, 0)
	}, "keys: in order where many messages come to an idle queue")
}
