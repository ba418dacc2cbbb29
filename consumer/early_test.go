package consumer_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/topology"
)

// A service is rolled out without waits while messages are put off for longer than
// every wait, and for more turns than the delivery limit allows.
func TestAConsumerWithoutWaitsKeepsToARetryAfterOfAnother(t *testing.T) {
	everywhere(t, func(w *fixture) {
		const off, puts = time.Hour, 3
		w.publish(puts)
		_, stop := w.start(func(context.Context, *consumer.Delivery) error {
			return consumer.RetryAfter(off, errBroken)
		}, consumer.Config{})
		synctest.Wait()
		began := time.Now()
		time.Sleep(time.Minute)
		w.stopped(stop)

		w.orders = topology.WorkQueue{Name: w.orders.Name, Type: w.orders.Type}
		w.declare(w.orders)
		handled := map[string]time.Duration{}
		_, stop = w.start(func(_ context.Context, d *consumer.Delivery) error {
			handled[d.ID] = time.Since(began)
			switch {
			case d.ID == id(puts) && d.Attempt != 1, d.ID != id(puts) && d.Attempt != 2:
				w.Errorf("%s is handled in attempt %d", d.ID, d.Attempt)
			case d.ID != id(puts) && time.Since(began) < off:
				w.Errorf("%s comes back after %v, want %v", d.ID, time.Since(began), off)
			}
			return nil
		}, consumer.Config{Concurrency: 1})
		time.Sleep(20 * time.Minute)
		w.publish(1)
		time.Sleep((puts + 1) * 10 * time.Second)
		synctest.Wait()
		if _, ok := handled[id(puts)]; !ok {
			w.Error("what is put off keeps a message that is not from being handled")
		}
		time.Sleep(off)
		w.stopped(stop)
		if len(handled) != puts+1 {
			w.Errorf("handled are %v", handled)
		}
		w.has(w.orders.Name)
		w.has(w.orders.DeadLetterQueue().Name)
	})
}

// A stop gives back what is held.
func TestAConsumerWithoutWaitsStopsAtOnce(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		w.publish(1)
		_, stop := w.start(func(context.Context, *consumer.Delivery) error {
			return consumer.RetryAfter(time.Hour, errBroken)
		}, consumer.Config{})
		time.Sleep(time.Second)
		w.stopped(stop)
		w.orders = topology.WorkQueue{Name: w.orders.Name, Type: w.orders.Type}
		w.declare(w.orders)
		_, stop = w.start(func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{})
		time.Sleep(5*time.Minute + 3*time.Second)
		began := time.Now()
		w.stopped(stop)
		if took := time.Since(began); took > time.Second {
			w.Errorf("Run has taken %v to return", took)
		}
		w.has(w.orders.Name, id(0))
		w.truthful()
	})
}

// A wait queue is deleted while a consumer nacks: the broker brings the message to
// the first wait, which is shorter. What is left of the wait, 4m, is in the shortest
// wait that is no shorter, 5m.
func TestAWaitThatIsDeletedIsNotCutShort(t *testing.T) {
	for _, version := range sampled(t, []string{"4.0", "4.3"}) {
		on(t, version, topology.Quorum, func(w *fixture) {
			w.orders = topology.WorkQueue{Name: "nacked", Type: topology.Quorum, Waits: w.orders.Waits, Engine: topology.EngineNack}
			w.declare(w.orders)
			w.publish(1)
			var a attempts
			_, stop := w.start(a.handler, consumer.Config{})
			synctest.Wait()
			w.broker.DeleteQueue(route.WaitQueue(w.orders.Name, 2))
			time.Sleep(90 * time.Second)
			w.declare(w.orders)
			time.Sleep(time.Hour)
			w.stopped(stop)
			a.want(w, id(0), "1 at 0s", "2 at 1m0s", "3 at 7m0s")
			w.has(w.orders.Name)
		})
	}
}

// A message that waits on after a RetryAfter has been in hand through many lost sessions, and so goes to the end of
// its queue by a copy. The copy keeps the time before which nobody may handle it.
func TestAMessageThatGoesToTheEndIsNotHandledTooEarly(t *testing.T) {
	onQuorumQueues(t, func(w *fixture) {
		const off = 3 * time.Hour
		w.publish(1)
		began := time.Now()
		release := make(chan struct{})
		var after atomic.Int64
		c, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
			switch {
			case d.ID == id(0) && d.Attempt == 1:
				return consumer.RetryAfter(off, errBroken)
			case d.ID == id(0):
				after.Store(int64(time.Since(began)))
				return nil
			}
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, consumer.Config{Concurrency: 1, Prefetch: 2})
		time.Sleep(30 * time.Second)
		w.publish(1) // which keeps the only handler
		time.Sleep(5 * time.Minute)
		for range 10 { // half of the delivery limit
			w.broker.Cut("")
			time.Sleep(90 * time.Second) // until another message comes beside one of which consumers may have died
		}
		if unacked, ready := w.inHand(); unacked != 2 {
			w.Fatalf("%d messages are in hand and %d in the queue, want both in hand", unacked, ready)
		}
		c.Pause()
		time.Sleep(time.Second)
		c.Resume()
		close(release)
		time.Sleep(2 * off)
		if handled := time.Duration(after.Load()); handled < off || handled > off+10*time.Minute {
			w.Errorf("it is handled after %v, want %v or little more", handled, off)
		}
		w.stopped(stop)
		w.has(w.orders.Name)
		w.has(w.orders.DeadLetterQueue().Name)
	})
}
