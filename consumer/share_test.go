package consumer_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// A KeyLimit of 2 and more is a share of a key. It promises no order, and pays for none.

// inHand returns how many messages of the work queue consumers have, and how many nobody has.
func (w *fixture) inHand() (unacked, ready int) {
	q, _ := w.broker.Queue(w.orders.Name)
	return len(q.Unacked), len(q.Ready)
}

// While handlers end, another consumer can have the messages that none has begun, and those
// that wait for their key.
func TestAStopWithSharesGivesBackAtOnce(t *testing.T) {
	everywhere(t, func(w *fixture) {
		_, stop := w.start(slowly(10*time.Second), consumer.Config{Concurrency: 4, KeyLimit: 2})
		w.begun()
		w.publish(20, keyed("loud"))
		time.Sleep(time.Second)
		ended := make(chan error)
		go func() { ended <- stop() }()
		time.Sleep(time.Second)
		if unacked, ready := w.inHand(); unacked != 2 || ready != 18 {
			w.Errorf("while the handlers end, %d messages are in hand and %d in the queue, want 2 and 18", unacked, ready)
		}
		if err := <-ended; err != nil {
			w.Error(err)
		}
		w.truthful()
	})
}

func TestAPauseWithSharesGivesBackAtOnce(t *testing.T) {
	everywhere(t, func(w *fixture) {
		c, stop := w.start(slowly(10*time.Second), consumer.Config{Concurrency: 4, KeyLimit: 2})
		w.begun()
		w.publish(20, keyed("loud"))
		time.Sleep(time.Second)
		c.Pause()
		time.Sleep(time.Second)
		if unacked, ready := w.inHand(); unacked != 2 || ready != 18 {
			w.Errorf("while paused, %d messages are in hand and %d in the queue, want 2 and 18", unacked, ready)
		}
		c.Resume()
		time.Sleep(3 * time.Minute)
		w.has("orders")
		w.stopped(stop)
		w.truthful()
	})
}

// In an outage the consumer keeps the messages that its handlers hold, and at most one more. This
// one may wait for its key: it goes back no more often than any other.
func TestAnOutageWithSharesHoardsNothing(t *testing.T) {
	everywhere(t, func(w *fixture) {
		g := &gateway{took: time.Millisecond}
		_, stop := w.start(g.handle, consumer.Config{Concurrency: 4, KeyLimit: 2})
		w.begun()
		g.away.Store(true)
		w.publish(4, keyed("loud"))
		for i := range 20 {
			w.publish(1, keyed(fmt.Sprint(i%3)))
		}
		time.Sleep(30 * time.Second)
		if unacked, ready := w.inHand(); unacked > 5 || ready < 19 {
			w.Errorf("in an outage, %d messages are in hand and %d in the queue, want at most 5 in hand", unacked, ready)
		}
		g.away.Store(false)
		time.Sleep(time.Minute)
		w.has("orders")
		w.has("orders.dlq")
		w.stopped(stop)
		w.truthful()
	})
}

// A message that waits for its key in an outage does not go back at each try.
func TestAShareThatIsUsedUpInAnOutageCostsNoReturns(t *testing.T) {
	onQuorumQueues(t, func(w *fixture) {
		var most atomic.Int64
		g := &gateway{took: time.Millisecond}
		_, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
			most.Store(max(most.Load(), int64(d.History.DeliveryCount)))
			return g.handle(ctx, d)
		}, consumer.Config{Concurrency: 4, KeyLimit: 2, Outage: consumer.Outage{Runs: 2}})
		w.begun()
		g.away.Store(true)
		w.publish(8, keyed("loud"))
		time.Sleep(10 * time.Minute)
		g.away.Store(false)
		time.Sleep(time.Minute)
		if n := most.Load(); n > 3 {
			w.Errorf("a message came back %d times in an outage of ten minutes, want 3 at most", n)
		}
		w.has("orders")
		w.has("orders.dlq")
		w.stopped(stop)
	})
}

// Messages that wait long for their key go back, while handlers of all keys go on.
func TestMessagesThatWaitForTheirShareHoldUpNoOtherKey(t *testing.T) {
	everywhere(t, func(w *fixture) {
		var mu sync.Mutex
		handled := map[string]bool{}
		_, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
			if d.OrderKey == "slow" {
				return slowly(20*time.Minute)(ctx, d)
			}
			mu.Lock()
			defer mu.Unlock()
			handled[d.ID] = true
			return nil
		}, consumer.Config{Concurrency: 16, KeyLimit: 2, DrainTimeout: time.Second})
		w.begun()
		w.publish(4, keyed("slow"))
		for i := range 60 {
			w.publish(1, keyed(fmt.Sprint(i%10)))
			time.Sleep(time.Minute)
			mu.Lock()
			if len(handled) != i+1 {
				w.Errorf("after %d minutes %d messages of other keys are handled", i+1, len(handled))
			}
			mu.Unlock()
			if w.Failed() {
				break
			}
		}
		w.stopped(stop)
		w.has("orders")
		w.has("orders.dlq")
	})
}

// A backlog that is not handled in a quarter of the consumer timeout goes back and comes again. It
// keeps no other key away either.
func TestASlowBacklogOfOneShareKeepsNoOtherKeyAway(t *testing.T) {
	on(t, "4.3", topology.Quorum, func(w *fixture) {
		w.publish(1000, keyed("slow"))
		var mu sync.Mutex
		handled := 0
		_, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
			if d.OrderKey == "slow" {
				return slowly(10*time.Second)(ctx, d)
			}
			mu.Lock()
			defer mu.Unlock()
			handled++
			return nil
		}, consumer.Config{Concurrency: 16, KeyLimit: 4})
		for i := range 30 {
			time.Sleep(time.Minute)
			w.publish(1, keyed("other"))
			time.Sleep(time.Second)
			mu.Lock()
			if handled != i+1 {
				w.Errorf("after %d minutes %d messages of another key are handled", i+1, handled)
			}
			mu.Unlock()
			if w.Failed() {
				break
			}
		}
		w.stopped(stop)
	})
}

// A message that cuts the connection whenever it is handled takes nobody along.
func TestACrashLoopWithSharesSparesItsNeighbours(t *testing.T) {
	for _, version := range sampled(t, []string{"4.0", "4.3"}) {
		on(t, version, topology.Quorum, func(w *fixture) {
			for i := range 40 {
				w.publish(1, keyed(fmt.Sprint(i%5)))
			}
			w.publish(1, keyed("3"), func(m *rehoptest.Message) { m.Type = "guilty" })
			for i := range 40 {
				w.publish(1, keyed(fmt.Sprint(i%5)))
			}
			_, stop := w.start(w.crashing(100*time.Millisecond), consumer.Config{Concurrency: 16, KeyLimit: 4})
			time.Sleep(5 * time.Minute)
			w.has("orders.dlq", "m40")
			w.has("orders")
			if done := w.journal.count(consumer.DispositionDone); done != 80 {
				w.Errorf("%d neighbours are done, want 80", done)
			}
			w.stopped(stop)
		})
	}
}

// Behind a backlog of one key, which the consumer has fetched past, it takes few along to where they
// would be handled one at a time.
func TestACrashLoopBehindABacklogOfOneShareSparesMost(t *testing.T) {
	for _, version := range sampled(t, []string{"4.0", "4.3"}) {
		on(t, version, topology.Quorum, func(w *fixture) {
			w.publish(1000, keyed("a"))
			w.publish(1, keyed("b"), func(m *rehoptest.Message) { m.Type = "guilty" })
			var mu sync.Mutex
			often := map[string]bool{}
			handle := w.crashing(20 * time.Millisecond)
			_, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
				if d.History.DeliveryCount >= 10 {
					mu.Lock()
					often[d.ID] = true
					mu.Unlock()
				}
				return handle(ctx, d)
			}, consumer.Config{Concurrency: 16, KeyLimit: 4})
			time.Sleep(5 * time.Minute)
			w.has("orders.dlq", "m1000")
			w.has("orders")
			mu.Lock()
			if len(often) > 100 {
				w.Errorf("%d messages have used up half of their delivery limit, want 100 at most", len(often))
			}
			mu.Unlock()
			w.stopped(stop)
		})
	}
}

// crashing returns a handler that takes so long, and cuts the connection of all when a message
// is guilty.
func (w *fixture) crashing(took time.Duration) consumer.Handler {
	return func(ctx context.Context, d *consumer.Delivery) error {
		if d.Type == "guilty" {
			time.Sleep(10 * time.Millisecond)
			w.broker.Cut("")
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return slowly(took)(ctx, d)
	}
}
