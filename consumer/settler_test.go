package consumer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
)

// loop is a program with a loop of its own.
type loop struct {
	*fixture
	in      *amqp.Channel
	settler *consumer.Settler
}

func (w *fixture) loop(cfg consumer.SettlerConfig) *loop {
	w.Helper()
	l := &loop{fixture: w}
	session, err := w.conn.Session(w.Context(), connection.Consume)
	if err != nil {
		w.Fatal(err)
	}
	l.in = session.Channel()
	if l.settler, err = consumer.NewSettler(w.conn, w.orders, cfg); err != nil {
		w.Fatal(err)
	}
	return l
}

// closed closes the settler.
func (l *loop) closed() {
	l.Helper()
	if err := l.settler.Close(); err != nil {
		l.Error(err)
	}
}

// next gets a delivery from the work queue.
func (l *loop) next() amqp.Delivery {
	l.Helper()
	for range 1000 {
		d, ok, err := l.in.Get(l.orders.Name, false)
		if err != nil {
			l.Fatal(err)
		}
		if ok {
			return d
		}
		time.Sleep(time.Second)
	}
	l.Fatal("nothing comes")
	return amqp.Delivery{}
}

// settled settles a message, so that the settler knows the route.
func (l *loop) settled() {
	l.Helper()
	l.publish(1)
	if _, err := l.settler.Settle(l.Context(), l.next(), consumer.DeadLetter(errBroken)); err != nil {
		l.Fatal(err)
	}
	l.raw(func(ch *amqp.Channel) error { _, err := ch.QueuePurge("orders.dlq", false); return err })
}

func TestSettlerSettlesByTheSameRules(t *testing.T) {
	for _, version := range []string{"4.0", "4.3"} {
		for _, kind := range []topology.QueueType{topology.Classic, topology.Quorum} {
			on(t, version, kind, func(w *fixture) {
				l := w.loop(consumer.SettlerConfig{})
				defer l.closed()
				w.publish(1)
				for attempt, want := range []consumer.Settlement{
					{Disposition: consumer.DispositionWait, WaitNumber: 1, Wait: time.Minute}, {Disposition: consumer.DispositionWait, WaitNumber: 2, Wait: 5 * time.Minute}, {Disposition: consumer.DispositionDeadLetter, Cause: "exhausted"},
				} {
					d := l.next()
					if got := l.settler.Delivery(d); got.Attempt != attempt+1 || got.RoutingKey != "orders" {
						w.Errorf("attempt %d of %q, want %d of orders", got.Attempt, got.RoutingKey, attempt+1)
					}
					if got, err := l.settler.Settle(w.Context(), d, errBroken); got != want || err != nil {
						w.Errorf("attempt %d: %v, %v; want %v", attempt+1, got, err, want)
					}
				}
				w.has("orders.dlq", "m0")
				w.publish(3)
				for _, tt := range []struct {
					err  error
					want consumer.Settlement
				}{
					{nil, consumer.Settlement{Disposition: consumer.DispositionDone}},
					{consumer.DeadLetter(errBroken), consumer.Settlement{Disposition: consumer.DispositionDeadLetter, Cause: "permanent"}},
					{consumer.Hold(errBroken), consumer.Settlement{Disposition: consumer.DispositionRequeued}},
				} {
					if got, err := l.settler.Settle(w.Context(), l.next(), tt.err); got != tt.want || err != nil {
						w.Errorf("%v: %v, %v; want %v", tt.err, got, err, tt.want)
					}
				}
				w.has("orders.dlq", "m0", "m2")
				synctest.Wait()
				w.has("orders", "m3")
			})
		}
	}
}

// An outage dead-letters no message, however long it lasts, also where the broker counts
// what goes back.
func TestSettlerHoldsWithoutAnEnd(t *testing.T) {
	for _, existing := range []bool{false, true} {
		onQuorumQueues(t, func(w *fixture) {
			if existing {
				w.orders = topology.WorkQueue{Name: "theirs", Existing: true, Waits: w.orders.Waits}
				w.raw(func(ch *amqp.Channel) error {
					_, err := ch.QueueDeclare("theirs", true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
					return err
				})
				w.declare(w.orders)
			}
			l := w.loop(consumer.SettlerConfig{})
			defer l.closed()
			w.publish(1)
			for n := range 100 {
				d := l.next()
				if got := l.settler.Delivery(d); got.Attempt != 1 {
					w.Errorf("hold %d: attempt %d, want 1", n+1, got.Attempt)
				}
				if got, err := l.settler.Settle(w.Context(), d, consumer.Hold(errAway)); err != nil || got.Disposition != consumer.DispositionRequeued {
					w.Fatalf("hold %d: %v, %v", n+1, got, err)
				}
			}
			synctest.Wait()
			w.has(w.orders.Name + ".dlq")
			w.has(w.orders.Name, id(0))
		})
	}
}

func TestSettlerSettlesNothingWhoseCopyIsNotConfirmed(t *testing.T) {
	on(t, "4.3", topology.Classic, func(w *fixture) {
		l := w.loop(consumer.SettlerConfig{CopyTimeout: 10 * time.Second})
		defer l.closed()
		l.settled()
		w.publish(1)
		d := l.next()
		fails := func(why string) {
			w.Helper()
			got, err := l.settler.Settle(w.Context(), d, consumer.DeadLetter(errBroken))
			if err == nil || got != (consumer.Settlement{}) || !strings.Contains(err.Error(), why) {
				w.Errorf("%v, %v; want an error with %q", got, err, why)
			}
			w.has("orders", "m1")
		}
		w.broker.Refuse("orders.dlq", true)
		fails("no answer in time")
		w.broker.Refuse("orders.dlq", false)
		w.raw(func(ch *amqp.Channel) error { _, err := ch.QueueDelete("orders.dlq", false, false, false); return err })
		fails("returned")
		w.raw(func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare("orders.dlq", true, false, false, false, amqp.Table{"x-queue-type": "classic", "x-max-length": int32(0), "x-overflow": "reject-publish"})
			return err
		})
		fails("nacked")
		w.raw(func(ch *amqp.Channel) error { _, err := ch.QueueDelete("orders.dlq", false, false, false); return err })
		w.declare(w.orders)
		if got, err := l.settler.Settle(w.Context(), d, consumer.DeadLetter(errBroken)); err != nil || got.Disposition != consumer.DispositionDeadLetter {
			w.Errorf("with the queue back: %v, %v", got, err)
		}
		synctest.Wait()
		w.has("orders.dlq", "m1")
		w.has("orders")
		w.publish(1)
		d = l.next()
		if err := l.in.Close(); err != nil {
			w.Error(err)
		}
		if _, err := l.settler.Settle(w.Context(), d, nil); rehop.ClassOf(err) != rehop.ClassTransient {
			w.Errorf("a delivery whose channel is closed: %v (%v)", err, rehop.ClassOf(err))
		}
	})
}

// The broker's answers come later than the Settler waits.
func TestALateReturnIsOfItsOwnCopy(t *testing.T) {
	on(t, "4.3", topology.Classic, func(w *fixture) {
		l := w.loop(consumer.SettlerConfig{CopyTimeout: 4 * time.Second})
		defer l.closed()
		l.settled()
		w.publish(2)
		unroutable, other := l.next(), l.next()
		w.raw(func(ch *amqp.Channel) error { _, err := ch.QueueDelete("orders.dlq", false, false, false); return err })
		w.broker.Slow(6 * time.Second)
		if got, err := l.settler.Settle(w.Context(), unroutable, consumer.DeadLetter(errBroken)); err == nil {
			w.Errorf("a copy without an answer: %v", got)
		}
		w.broker.Slow(0) // for what is sent from now on; it comes after the return of the first
		want := consumer.Settlement{Disposition: consumer.DispositionWait, WaitNumber: 1, Wait: time.Minute}
		if got, err := l.settler.Settle(w.Context(), other, errBroken); got != want || err != nil {
			w.Errorf("the next copy: %v, %v; want %v", got, err, want)
		}
		synctest.Wait()
		w.has("orders.wait.1", "m2")
		w.has("orders", "m1")
	})
}

// Returns that nobody reads would stop the reading of the whole connection.
func TestManyLateReturnsStopNothing(t *testing.T) {
	on(t, "4.3", topology.Classic, func(w *fixture) {
		l := w.loop(consumer.SettlerConfig{CopyTimeout: 10 * time.Millisecond})
		defer l.closed()
		const n = 200
		l.settled()
		w.publish(n + 1)
		var held []amqp.Delivery
		for range n {
			held = append(held, l.next())
		}
		w.raw(func(ch *amqp.Channel) error { _, err := ch.QueueDelete("orders.dlq", false, false, false); return err })
		w.broker.Slow(8 * time.Second)
		for _, d := range held {
			if got, err := l.settler.Settle(w.Context(), d, consumer.DeadLetter(errBroken)); rehop.ClassOf(err) != rehop.ClassTransient {
				w.Fatalf("a copy without an answer: %v, %v (%v)", got, err, rehop.ClassOf(err))
			}
		}
		w.broker.Slow(0)
		time.Sleep(10 * time.Second) // what was slow has come
		if d := l.next(); d.MessageId != id(n+1) {
			w.Errorf("the next delivery is %s", d.MessageId)
		}
		w.declare(w.orders)
		for _, d := range held {
			if _, err := l.settler.Settle(w.Context(), d, consumer.DeadLetter(errBroken)); err != nil {
				w.Fatalf("%s, with its dead-letter queue back: %v", d.MessageId, err)
			}
		}
		synctest.Wait()
		w.has("orders.dlq", ids(n + 1)[1:]...)
	})
}

// A changed wait has a queue beside the one of the earlier schedule, until DeleteWaits.
func TestSettlerUsesTheWaitsThatAreOnTheBroker(t *testing.T) {
	everywhere(t, func(w *fixture) {
		earlier := w.orders
		w.orders.Waits = delay.Schedule{3 * time.Minute, 5 * time.Minute}
		w.declare(w.orders)
		l := w.loop(consumer.SettlerConfig{})
		defer l.closed()
		w.publish(1)
		want := consumer.Settlement{Disposition: consumer.DispositionWait, WaitNumber: 1, Wait: 3 * time.Minute}
		settle := func() error {
			w.Helper()
			got, err := l.settler.Settle(w.Context(), l.next(), errBroken)
			if err == nil && got != want {
				w.Errorf("%v, want %v", got, want)
			}
			return err
		}
		if err := settle(); err != nil {
			w.Error(err)
		}
		synctest.Wait()
		for name, n := range map[string]int{"orders.wait.1": 0, "orders.wait.1.3m": 1, "orders.wait.1.2": 1} {
			if q, ok := w.broker.Queue(name); ok && len(q.Ready) != n {
				w.Errorf("%s has %d messages, want %d", name, len(q.Ready), n)
			}
		}
		if w.version == "3.10" { // its waits have no TTL, so only a consumer ends them
			return
		}
		d := l.next()
		for _, former := range []topology.WorkQueue{earlier, w.orders} {
			if err := topology.DeleteWaits(w.Context(), w.conn, former, w.orders); err != nil {
				w.Fatal(err)
			}
		}
		w.publish(1)
		next := l.next()
		if _, err := l.settler.Settle(w.Context(), next, errBroken); err == nil || !strings.Contains(err.Error(), "returned") {
			w.Errorf("without the queue that it knows: %v", err)
		}
		if got, err := l.settler.Settle(w.Context(), next, errBroken); got != want || err != nil {
			w.Errorf("the next try: %v, %v; want %v", got, err, want)
		}
		synctest.Wait()
		w.has("orders.wait.1", next.MessageId)
		if err := d.Ack(false); err != nil {
			w.Error(err)
		}
	})
}

func TestSettlerUsesExactDelays(t *testing.T) {
	on(t, "4.3", topology.Quorum, func(w *fixture) {
		w.declare(w.orders, topology.Delays{})
		l := w.loop(consumer.SettlerConfig{})
		defer l.closed()
		w.publish(1)
		began := time.Now()
		if got, err := l.settler.Settle(w.Context(), l.next(), consumer.RetryAfter(10*time.Second, errBroken)); err != nil || got.Wait != 10*time.Second {
			w.Errorf("%v, %v; want a wait of 10s", got, err)
		}
		if d := l.next(); time.Since(began) > 12*time.Second {
			w.Errorf("attempt %d after %v", l.settler.Delivery(d).Attempt, time.Since(began))
		}
	})
}

func TestNoCallOfSettleWaitsForTheQuestionOfAnotherBeyondItsCtx(t *testing.T) {
	onNewest(t, func(w *fixture) {
		l := w.loop(consumer.SettlerConfig{})
		defer l.closed()
		w.publish(2)
		one, other := l.next(), l.next()
		w.broker.Slow(5 * time.Second)
		asked := make(chan error, 1)
		go func() {
			_, err := l.settler.Settle(w.Context(), one, errBroken)
			asked <- err
		}()
		synctest.Wait()
		began := time.Now()
		ctx, cancel := context.WithTimeout(w.Context(), 2*time.Second)
		defer cancel()
		if _, err := l.settler.Settle(ctx, other, errBroken); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 2*time.Second {
			w.Errorf("%v after %v", err, time.Since(began))
		}
		w.broker.Slow(0)
		if err := <-asked; err != nil {
			w.Error(err)
		}
		if _, err := l.settler.Settle(w.Context(), other, errBroken); err != nil {
			w.Error(err)
		}
	})
}

func TestNewSettlerNamesEveryFault(t *testing.T) {
	_, err := consumer.NewSettler(nil, nil, consumer.SettlerConfig{CopyTimeout: -1})
	for _, want := range []string{"conn is nil", "source is nil", "SettlerConfig.CopyTimeout is -1ns, want 0 (the default) or more"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewSettler: %v, want also %q", err, want)
		}
	}
}
