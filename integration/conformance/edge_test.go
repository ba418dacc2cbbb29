package conformance

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/faultproxy"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// What a user's code, or somebody else's queue, may do that nobody means to.

// unreadable is an error whose text cannot be had: here by its nil pointer.
type unreadable struct{ reason string }

func (u *unreadable) Error() string { return u.reason }

func TestErrorThatCannotBeRead(t *testing.T) {
	onEveryEngine(t, func(e *env) {
		w := e.workQueue("work", waits(100*time.Millisecond))
		e.declare(w)
		id := e.send(w.Name, 1)[0]
		j := newJournal(func(context.Context, *consumer.Delivery) error {
			var nobody *unreadable
			return nobody
		})
		e.consume(w, j, consumer.Config{})
		e.until("it is a dead letter", func() bool { return j.reached(id, consumer.DispositionDeadLetter) })
		if got := j.attempts(id); len(got) != 2 {
			e.Errorf("attempts %v, want 1 and 2", got)
		}
	}, "an error that cannot be read is a failure")
}

func TestLetterMovedByTheBrokerSaysWhy(t *testing.T) {
	everywhere(t, func(e *env) {
		exchange, w := e.shop("work")
		e.declare(topology.Exchange{Name: exchange}, w)
		id := e.publish(producer.Message{Exchange: exchange, RoutingKey: "order.paid", Expiration: time.Millisecond})
		j := newJournal(succeed)
		e.consume(w.DeadLetterQueue(), j, consumer.Config{})
		e.until("the letter is read", func() bool { return j.reached(id, consumer.DispositionDone) })
		got := j.of(id)[0]
		if got.History.Failure.Cause != rehop.CauseExpired || got.History.Queue != w.Name || got.Exchange != exchange || got.RoutingKey != "order.paid" {
			e.Errorf("the letter says %q of queue %q, from %q with %q; want expired, of %q, from %q with order.paid",
				got.History.Failure.Cause, got.History.Queue, got.Exchange, got.RoutingKey, w.Name, exchange)
		}
	}, "letter moved by the broker says why")
}

func TestRetryAfterWhereNothingWaits(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work", waits())
		e.declare(w)
		id := e.send(w.DeadLetterQueue().Name, 1)[0]
		const after = time.Second
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error { return consumer.RetryAfter(after, errBroken) })
		e.consume(w.DeadLetterQueue(), j, consumer.Config{})
		e.until("it is handled again", func() bool { return len(j.of(id)) >= 2 })
		if runs := j.of(id); runs[1].began.Sub(runs[0].ended) < after {
			e.Errorf("handled again after %v, want %v at least", runs[1].began.Sub(runs[0].ended), after)
		}
	}, "RetryAfter where nothing waits is held so long")
}

// Its waits would have no way back and its nacks no dead-letter exchange.
func TestQueueThatOthersDeclaredIsRefused(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.rawQueue(w.Name, amqp.Table{"x-queue-type": string(e.queue)})
		e.send(w.Name, 1)
		c, err := consumer.New(e.conn, w, fail, consumer.Config{})
		if err != nil {
			e.Fatal(err)
		}
		err = c.Run(e.Context())
		var conflict *topology.ConflictError
		if !errors.As(err, &conflict) || conflict.Name != w.Name {
			e.Errorf("Run: %v, want a conflict about queue %s", err, w.Name)
		}
		if n := e.count(w.Name); n != 1 {
			e.Errorf("%d messages in the queue, want the 1 that was there", n)
		}
	}, "a queue that others declared is refused")
}

func TestMissingExchangeHarmsNoOther(t *testing.T) {
	everywhere(t, func(e *env) {
		queue := e.rawQueue(e.name("good"), amqp.Table{"x-queue-type": string(e.queue)})
		p := e.newProducer(producer.Config{})
		const each, goroutines = 10, 32
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				for range each {
					r, err := p.Publish(e.Context(), producer.Message{RoutingKey: queue})
					if err != nil || r.MaybeDuplicate {
						e.Errorf("Publish: %+v, %v; want confirmed and single", r, err)
					}
				}
			})
			wg.Go(func() {
				r, err := p.Publish(e.Context(), producer.Message{Exchange: e.name("missing"), RoutingKey: "k"})
				e.checkOutcome(r, err, producer.ErrReturned)
				if r.MaybeDuplicate {
					e.Errorf("Publish to a missing exchange: %+v; it is in no queue", r)
				}
			})
		}
		wg.Wait()
		e.until("all are there", func() bool { return e.count(queue) >= each*goroutines })
		if n := e.count(queue); n != each*goroutines {
			e.Errorf("%d messages in the queue, want %d", n, each*goroutines)
		}
	}, "publish: missing exchange harms no other")
}

// A wait that kept the bindings of both schedules would double every message that
// leaves it.
func TestTwoSchedulesDeclaredAtOnce(t *testing.T) {
	everywhere(t, func(e *env) {
		short := e.workQueue("work", waits(100*time.Millisecond, 100*time.Millisecond))
		long := short
		long.Waits = []time.Duration{100 * time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond}
		e.declare(long)
		other := e.connect(e.node.AMQPURL())
		for range 5 {
			var wg sync.WaitGroup
			wg.Go(func() { e.noError("declare the short one", topology.Declare(e.Context(), e.conn, short)) })
			wg.Go(func() { e.noError("declare the long one", topology.Declare(e.Context(), other, long)) })
			wg.Wait()
		}
		// Only a nack goes by the bindings, so the consumer has the longer
		// schedule. The second message gives a double of the first one time.
		e.consume(long, newJournal(fail), consumer.Config{})
		for n := 1; n <= 2; n++ {
			e.send(long.Name, 1)
			e.until("it is a dead letter", func() bool { return e.count(long.DeadLetterQueue().Name) >= n })
		}
		e.atRest(long, 2)
	}, "two schedules declared at once")
}

func TestAcksBesideTheCloseOfTheirSession(t *testing.T) {
	onEveryEngine(t, func(e *env) {
		session := func() *connection.Session {
			s, err := e.conn.Session(e.Context(), connection.Consume)
			if err != nil {
				e.Fatal(err)
			}
			return s
		}
		neighbour := session()
		defer neighbour.Close()
		for range 50 {
			s := session()
			acking := make(chan struct{})
			var acks sync.WaitGroup
			acks.Go(func() {
				close(acking)
				for s.Channel().Ack(0, true) == nil { // of all messages in hand, of which there are none
				}
			})
			<-acking
			e.noError("close the session", s.Close())
			acks.Wait()
			if err := neighbour.Err(); err != nil {
				e.Fatalf("the session beside it: %v", err)
			}
		}
	}, "session: acks beside its close harm no other")
}

func TestCtxEndsAWriteNobodyReads(t *testing.T) {
	onNewest(t, func(e *env) {
		broker, err := url.Parse(e.node.AMQPURL())
		if err != nil {
			e.Fatal(err)
		}
		proxy, err := faultproxy.Start(broker.Host)
		if err != nil {
			e.Fatal(err)
		}
		e.Cleanup(proxy.Close)
		broker.Host = proxy.Addr()
		conn, err := connection.Open(e.Context(), connection.Config{URLs: []string{broker.String()}, OpenTimeout: patience})
		if err != nil {
			e.Fatal(err)
		}
		e.Cleanup(func() { _ = conn.Close() }) // its broker does not answer
		p, err := producer.New(conn, producer.Config{})
		if err != nil {
			e.Fatal(err)
		}
		queue := e.rawQueue(e.name("slow"), amqp.Table{"x-queue-type": string(e.queue)})
		if _, err := p.Publish(e.Context(), producer.Message{RoutingKey: queue}); err != nil {
			e.Fatal(err)
		}
		proxy.Throttle(faultproxy.ToBroker, 1)
		ctx, cancel := context.WithTimeout(e.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err = p.Publish(ctx, producer.Message{RoutingKey: queue, Body: make([]byte, 8<<20)})
		if took := time.Since(began); took > 15*time.Second || !errors.Is(err, producer.ErrUnconfirmed) {
			e.Errorf("Publish with a ctx of 1 s returned after %v: %v; want unconfirmed, soon", took, err)
		}
		ctx, cancel = context.WithTimeout(e.Context(), time.Second)
		defer cancel()
		began = time.Now()
		receipts, err := p.PublishAll(ctx, []producer.Message{{RoutingKey: queue, Body: make([]byte, 1<<20)}, {RoutingKey: queue}})
		if took := time.Since(began); took > 15*time.Second || len(receipts) != 2 || !errors.Is(err, context.DeadlineExceeded) {
			e.Errorf("PublishAll with a ctx of 1 s returned after %v: %v; want two receipts and the end of ctx, soon", took, err)
		}
		for _, r := range receipts {
			e.checkOutcome(r, r.Err, r.Err)
			if errors.Is(r.Err, producer.ErrUnconfirmed) {
				e.Errorf("a message behind one that is stuck: %v; want that it was never sent", r.Err)
			}
		}
		proxy.Reset()
		_ = p.Close() // whatever it says, it must return
	}, "publish: ctx ends a write nobody reads", "batch: ctx ends it where nobody reads")
}
