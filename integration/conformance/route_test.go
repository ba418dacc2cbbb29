package conformance

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// Queues that others declared, by a topology.Route written by hand.

func TestForeignQueue(t *testing.T) {
	everywhere(t, func(e *env) {
		queue := e.rawQueue(e.name("foreign"), nil)
		ids := e.send(queue, 3)
		failing := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			switch d.ID {
			case ids[0]:
				return errBroken
			case ids[1]:
				return consumer.DeadLetter(errBroken)
			}
			return consumer.RetryAfter(time.Millisecond, errBroken)
		})
		first := e.consume(topology.Route{Queue: queue}, failing, consumer.Config{})
		for _, id := range ids {
			e.until("it is handled again and again", func() bool { return len(failing.of(id)) >= 3 })
			if got := failing.settlements(id); len(got) != 0 {
				e.Errorf("message %q was settled as %v, want held: there is no place for it", id, got)
			}
		}
		e.halt(first)
		e.until("all are back in their queue", func() bool { return e.count(queue) == len(ids) })
		good := newJournal(succeed)
		e.consume(topology.Route{Queue: queue}, good, consumer.Config{})
		for _, id := range ids {
			e.until("it is done", func() bool { return good.reached(id, consumer.DispositionDone) })
			if got := good.attempts(id); !slices.Equal(got, []int{1}) {
				e.Errorf("message %q was handled as attempts %v, want [1]", id, got)
			}
		}
	}, "foreign queue, nothing known")
}

func TestForeignQueueWithDLQ(t *testing.T) {
	everywhere(t, func(e *env) {
		queue := e.rawQueue(e.name("foreign"), nil)
		dlq := topology.DeadLetterQueue{Name: e.name("letters"), Type: e.queue, Exchange: e.name("dead")}
		e.declare(dlq)
		route := topology.Route{Queue: queue, DeadLetter: topology.Address{Exchange: dlq.Exchange, RoutingKey: "any"}}
		since := time.Now()
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			switch d.Type {
			case "permanent":
				return consumer.DeadLetter(errBroken)
			case "later":
				return consumer.RetryAfter(time.Millisecond, errBroken)
			}
			return errBroken
		})
		e.consume(route, j, consumer.Config{})
		for kind, cause := range map[string]rehop.Cause{
			"plain": rehop.CauseExhausted, "permanent": rehop.CausePermanent, "later": rehop.CauseExhausted,
		} {
			sent := e.fullMessage("", queue)
			sent.Type = kind
			e.publish(sent)
			d := e.take(dlq.Name, 1)[0]
			e.checkLetter(topology.WorkQueue{Name: queue}, d, wantLetter{
				cause: cause, attempts: 1, err: errBroken.Error(), errorType: "*errors.errorString", key: queue, since: since,
			})
			e.checkRaw(d, sent)
		}
		e.until("the queue is empty", func() bool { return e.count(queue) == 0 })
	}, "foreign queue with a DLQ")
}

func TestForeignQueueWithWaits(t *testing.T) {
	everywhere(t, func(e *env) {
		queue := e.rawQueue(e.name("foreign"), nil)
		letters := e.rawQueue(e.name("letters"), nil)
		route := topology.Route{Queue: queue, Waits: delay.Schedule{scaled[0], scaled[1]}, DeadLetter: topology.Address{RoutingKey: letters}}
		for i, wait := range route.Waits {
			name := e.rawQueue(e.name("wait"+string(rune('1'+i))), amqp.Table{
				"x-message-ttl": wait.Milliseconds(), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue,
			})
			route.WaitAt = append(route.WaitAt, topology.Address{RoutingKey: name})
		}
		since := time.Now()
		j := newJournal(fail)
		e.consume(route, j, consumer.Config{})
		sent := producer.Message{RoutingKey: queue, Body: []byte("body"), Headers: amqp.Table{"own": "header"}}
		id := e.publish(sent)
		e.until("it is a dead letter", func() bool { return j.reached(id, consumer.DispositionDeadLetter) })
		e.checkAttempts(j, topology.WorkQueue{Waits: route.Waits}, id, 3)
		d := e.take(letters, 1)[0]
		e.checkLetter(topology.WorkQueue{Name: queue}, d, wantLetter{
			cause: rehop.CauseExhausted, attempts: 3, err: errBroken.Error(), errorType: "*errors.errorString",
			key: queue, since: since, firstGap: scaled[0] + scaled[1],
		})
		for _, run := range j.of(id) {
			if run.Exchange != "" || run.RoutingKey != queue {
				e.Errorf("attempt %d came with exchange %q, key %q, want the producer's", run.Attempt, run.Exchange, run.RoutingKey)
			}
		}
		// By hand back from the DLQ: a life of its own.
		e.republish(queue, d)
		e.until("it is a dead letter again", func() bool { return len(j.of(id)) == 6 })
		if got, want := j.attempts(id), []int{1, 2, 3, 1, 2, 3}; !slices.Equal(got, want) {
			e.Errorf("attempts are %v, want %v", got, want)
		}
		e.take(letters, 1)
	}, "foreign queue with waits")
}

// The broker confirms nothing for a queue whose process stands still.
func TestAWaitThatDoesNotAnswerHoldsNoOtherUp(t *testing.T) {
	everywhere(t, func(e *env) {
		route := topology.Route{Queue: e.rawQueue(e.name("foreign"), nil), Waits: delay.Schedule{time.Minute, 2 * time.Minute}}
		for i := range route.Waits {
			route.WaitAt = append(route.WaitAt, topology.Address{RoutingKey: e.rawQueue(e.name(fmt.Sprintf("wait%d", i+1)), nil)})
		}
		const stuck, free = 3, 5
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			if d.Type == "free" {
				return consumer.RetryAfter(90*time.Second, errBroken)
			}
			return errBroken
		})
		j.countCopies()
		in := func(waitNumber int) (n int) {
			for _, s := range j.settlements("") {
				if s == (consumer.Settlement{Disposition: consumer.DispositionWait, WaitNumber: waitNumber}) {
					n++
				}
			}
			return n
		}
		e.consume(route, j, consumer.Config{CopyTimeout: 3 * patience})
		// The first message of a channel to a quorum queue waits for the queue
		// within the broker, and everything behind it on the channel does.
		e.send(route.Queue, 1)
		e.until("the first is in its wait", func() bool { return in(1) == 1 })
		resume := e.suspend(route.WaitAt[0].RoutingKey)
		ids := e.send(route.Queue, stuck)
		for range free {
			e.publish(producer.Message{RoutingKey: route.Queue, Type: "free"})
		}
		e.until("those of the other wait are in it", func() bool { return in(2) == free })
		if n := in(1); n > 1 {
			e.Errorf("%d copies to a queue that stands still count as confirmed", n-1)
		}
		resume()
		e.until("the rest is in its wait", func() bool { return in(1) == 1+stuck })
		there, doubled := map[string]int{}, j.unconfirmed()
		for _, d := range e.take(route.WaitAt[0].RoutingKey, e.count(route.WaitAt[0].RoutingKey)) {
			there[d.MessageId]++
		}
		for _, id := range ids {
			if there[id] == 0 || there[id] > 1 && !doubled[id] {
				e.Errorf("message %q is %d times in the wait that stood still, want once", id, there[id])
			}
		}
		if len(there) != 1+stuck {
			e.Errorf("%d messages are in the wait that stood still, want %d", len(there), 1+stuck)
		}
	}, "a wait that does not answer holds no other up")
}

// A full wait nacks all copies that were sent together, several times over.
func TestCopiesThatTheWaitNacksAreSentAgain(t *testing.T) {
	everywhere(t, func(e *env) {
		const n = 8
		// Classic in every column: a quorum queue may take some more at first.
		full := e.rawQueue(e.name("full"), amqp.Table{"x-queue-type": "classic", "x-max-length": n, "x-overflow": "reject-publish"})
		route := topology.Route{Queue: e.rawQueue(e.name("foreign"), nil), Waits: delay.Schedule{time.Minute}, WaitAt: []topology.Address{{RoutingKey: full}}}
		e.send(full, n)
		e.until("the wait is full", func() bool { return e.count(full) == n })
		var nacked, begun atomic.Int64
		together := make(chan struct{})
		j := newJournal(func(ctx context.Context, _ *consumer.Delivery) error {
			if begun.Add(1) == n {
				close(together)
			}
			select {
			case <-together:
			case <-ctx.Done():
			}
			return errBroken
		})
		refusals := slog.New(countingHandler{&nacked})
		e.consume(route, j, consumer.Config{Concurrency: n, Logger: refusals})
		e.send(route.Queue, n)
		e.until("each copy was nacked twice", func() bool { return nacked.Load() >= 2*n })
		if got := j.settlements(""); len(got) > 0 {
			e.Errorf("settled while the wait is full: %v", got)
		}
		e.purge(full)
		e.until("all are in their wait", func() bool { return len(j.settlements("")) == n })
		if got := e.count(full); got != n {
			e.Errorf("%d messages are in the wait, want %d", got, n)
		}
	}, "copies that the wait nacks are sent again")
}

// countingHandler counts the copies that were not confirmed.
type countingHandler struct{ n *atomic.Int64 }

func (h countingHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h countingHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h countingHandler) WithGroup(string) slog.Handler            { return h }
func (h countingHandler) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "copy not confirmed") {
		h.n.Add(1)
	}
	return nil
}

// purge empties a queue.
func (e *env) purge(queue string) {
	e.Helper()
	ch := e.channel()
	defer ch.Close()
	if _, err := ch.QueuePurge(queue, false); err != nil {
		e.Fatal(err)
	}
}

// suspendFor has the process of a queue stand still for a time.
func (e *env) suspendFor(d time.Duration, queue string) {
	e.Helper()
	out, err := e.node.Exec(e.Context(), "rabbitmqctl", "eval", fmt.Sprintf(`
		{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"%s">>)),
		P = case amqqueue:get_pid(Q) of {Name, _} -> Name; Pid -> Pid end,
		sys:suspend(P), timer:apply_after(%d, sys, resume, [P]).`, queue, d.Milliseconds()))
	if err != nil {
		e.Fatal(err, out)
	}
}

// suspend has the process of a queue stand still until resume is called.
func (e *env) suspend(queue string) (resume func()) {
	e.Helper()
	tell := func(ctx context.Context, verb string) error {
		if b := e.node.process; b != nil {
			b.Refuse(queue, verb == "suspend")
			return nil
		}
		out, err := e.node.Exec(ctx, "rabbitmqctl", "eval", fmt.Sprintf(`
			{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"%s">>)),
			sys:%s(case amqqueue:get_pid(Q) of {Name, _} -> Name; Pid -> Pid end).`, queue, verb))
		if err != nil {
			return fmt.Errorf("%s queue %s: %w: %s", verb, queue, err, out)
		}
		return nil
	}
	if err := tell(e.Context(), "suspend"); err != nil {
		e.Fatal(err)
	}
	resume = sync.OnceFunc(func() { e.noError("let it go on", tell(context.Background(), "resume")) })
	e.Cleanup(resume)
	return resume
}
