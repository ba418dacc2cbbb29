package conformance

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/xdeath"
)

// Consumers that die with the message in their hands.

func TestCrashesAreNotAttempts(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		id := e.send(w.Name, 1)[0]
		for range 5 {
			e.crashOnce(w.Name)
		}
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			if d.Attempt <= 2 {
				return errBroken
			}
			return nil
		})
		e.consume(w, j, consumer.Config{})
		e.until("it is done", func() bool { return j.reached(id, consumer.DispositionDone) })
		e.checkAttempts(j, w, id, 3)
		if !j.of(id)[0].Redelivered {
			e.Error("the first run after five crashes is not marked as redelivered")
		}
		e.atRest(w, 0)
	}, "crashes are not attempts")
}

// crashOnce waits until there is a message and crashes with it.
func (e *env) crashOnce(queue string) (d amqp.Delivery) {
	e.Helper()
	e.until("a message to crash with in "+queue, func() bool {
		var ok bool
		d, ok = e.crash(queue)
		return ok
	})
	return d
}

func TestCrashLoopEndsInDLQ(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		dlq := w.DeadLetterQueue()
		id := e.send(w.Name, 1)[0]
		crashes := 0
		e.until("the message is a dead letter", func() bool {
			if _, ok := e.crash(w.Name); ok {
				crashes++
			}
			return e.count(dlq.Name) == 1
		})
		// A limit of 20 allows 20 returns; the 21st is one too many.
		if crashes != route.DeliveryLimit+1 {
			e.Errorf("dead-lettered after %d crashes, want %d", crashes, route.DeliveryLimit+1)
		}
		j := newJournal(succeed)
		e.consume(dlq, j, consumer.Config{})
		e.until("the letter is handled", func() bool { return j.reached(id, consumer.DispositionDone) })
		if got := j.of(id)[0].History; got.Count(w.Name, xdeath.ReasonDeliveryLimit) != 1 {
			e.Errorf("letter's deaths are %v, want one by delivery_limit in %s", got.Deaths, w.Name)
		}
		e.atRest(w, 0)
	}, "crash loop ends in the DLQ")
}

func TestCrashLoopAfterRetriesEndsInDLQ(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work", waits(50*time.Millisecond, 50*time.Millisecond))
		e.declare(w)
		e.send(w.Name, 1)
		back := make(chan struct{})
		j := newJournal(func(ctx context.Context, d *consumer.Delivery) error {
			if d.Attempt == 2 { // it is back from its wait, and is given back
				close(back)
				<-ctx.Done()
			}
			return errBroken
		})
		first := e.consume(w, j, consumer.Config{Concurrency: 1, DrainTimeout: 100 * time.Millisecond})
		e.until("it is back from its wait", func() bool {
			select {
			case <-back:
				return true
			default:
				return false
			}
		})
		e.halt(first)
		e.until("the message is a dead letter", func() bool {
			e.crash(w.Name)
			return e.count(w.DeadLetterQueue().Name) == 1
		})
		d := e.letter(w)
		if h := e.parse(d); h.Count(w.Name, xdeath.ReasonDeliveryLimit) != 1 {
			e.Errorf("letter's deaths are %v, want one by delivery_limit in %s", h.Deaths, w.Name)
		}
		e.atRest(w, 0)
	}, "crash loop ends in the DLQ")
}

func TestCrashLoopIsUnbounded(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		id := e.send(w.Name, 1)[0]
		for i := range 25 {
			if d := e.crashOnce(w.Name); d.MessageId != id || d.Redelivered != (i > 0) {
				e.Errorf("delivery %d is message %q, redelivered %v, want %q, %v", i+1, d.MessageId, d.Redelivered, id, i > 0)
			}
		}
		j := newJournal(succeed)
		e.consume(w, j, consumer.Config{})
		e.until("it is done", func() bool { return j.reached(id, consumer.DispositionDone) })
		e.checkAttempts(j, w, id, 1)
		e.atRest(w, 0)
	}, "crash loop is unbounded")
}

// One message cuts the connection whenever it is handled. The others, which
// are in other handlers' hands then, must not die of it.
func TestCrashLoopSparesNeighbours(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		p := e.startProxy()
		conn, err := connection.Open(e.Context(), connection.Config{
			URLs: []string{p.url}, Name: e.prefix, OpenTimeout: patience, Logger: e.log(),
			Backoff: func(int) time.Duration { return 50 * time.Millisecond }, // by default it grows to seconds with each cut
		})
		if err != nil {
			e.Fatal(err)
		}
		e.closeLater(conn)
		var neighbours []string
		neighbours = append(neighbours, e.send(w.Name, 20)...)
		guilty := e.publish(producer.Message{RoutingKey: w.Name, Type: "guilty"})
		neighbours = append(neighbours, e.send(w.Name, 20)...)
		inHand, firstCut := make(chan struct{}), make(chan struct{})
		begun, cut := sync.OnceFunc(func() { close(inHand) }), sync.OnceFunc(func() { close(firstCut) })
		j := newJournal(func(ctx context.Context, d *consumer.Delivery) error {
			if d.Type == "guilty" {
				select {
				case <-inHand:
				case <-ctx.Done():
				}
				cut()
				p.cut()
				<-ctx.Done()
				return context.Cause(ctx)
			}
			var over <-chan time.Time // before the first cut a neighbour is in hand until the connection goes
			select {
			case <-firstCut:
				over = time.After(150 * time.Millisecond)
			default:
				begun()
			}
			select {
			case <-over:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		e.consumeOn(conn, w, j, consumer.Config{Concurrency: 50})
		e.until("the guilty message is a dead letter", func() bool { return e.count(w.DeadLetterQueue().Name) > 0 })
		e.until("its neighbours are done", func() bool {
			for _, id := range neighbours {
				if !j.reached(id, consumer.DispositionDone) {
					return e.count(w.DeadLetterQueue().Name) > 1 // will not come any more
				}
			}
			return true
		})
		if d := e.letter(w); d.MessageId != guilty {
			e.Errorf("the dead letter is message %q, want the guilty %q", d.MessageId, guilty)
		}
		taken := false
		for _, run := range j.of("") {
			if run.ID != guilty && errors.Is(run.err, run.cause) && run.cause != nil {
				taken = true
			}
			if run.Attempt != 1 {
				e.Errorf("message %q was handled as attempt %d, want 1: a crash spends none", run.ID, run.Attempt)
			}
		}
		if !taken {
			e.Error("no neighbour was in hand when the connection was cut: the test tests nothing")
		}
		e.atRest(w, 0)
	}, "crash loop spares its neighbours")
}

// Suspects whose handlers fail stay in hand until their next attempt. Each makes room for one more, and never for two: a crash
// would count against both.
func TestSuspectsThatStayInHandBringOneUntriedAtATime(t *testing.T) {
	everywhere(t, func(e *env) {
		const suspects = 8
		w := e.workQueue("work", waits(3*time.Second))
		e.declare(w)
		ids := e.send(w.Name, suspects)
		for range route.DeliveryLimit / 2 {
			ch := e.channel()
			for taken := 0; taken < suspects; {
				e.until("a message to crash with", func() bool {
					_, ok, err := ch.Get(w.Name, false)
					e.noError("get", err)
					return ok
				})
				taken++
			}
			_ = ch.Close()
		}
		var mu sync.Mutex
		untried, most := 0, 0
		j := newJournal(func(ctx context.Context, d *consumer.Delivery) error {
			if d.Attempt > 1 {
				return nil
			}
			mu.Lock()
			untried++
			most = max(most, untried)
			mu.Unlock()
			select {
			case <-time.After(100 * time.Millisecond): // another one begins meanwhile, if it has come
			case <-ctx.Done():
			}
			mu.Lock()
			defer mu.Unlock()
			untried--
			return errBroken
		})
		e.consume(w, j, consumer.Config{Concurrency: suspects, RetryInPlace: true})
		for _, id := range ids {
			e.until("all are done", func() bool { return j.reached(id, consumer.DispositionDone) })
			e.checkAttempts(j, w, id, 2)
		}
		if most != 1 {
			e.Errorf("%d messages were handled for the first time at once, want 1", most)
		}
		e.atRest(w, 0)
	}, "suspects that stay in hand bring one untried at a time")
}
