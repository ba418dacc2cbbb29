package consumer_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// The broker has a consumer timeout of 4 minutes, and the queue one of its own.
func TestTheConsumerTimeoutOfAWorkQueue(t *testing.T) {
	for _, version := range []string{"4.0", "4.3"} {
		onBroker(t, rehoptest.Config{Version: version, ConsumerTimeout: 4 * time.Minute}, topology.Quorum, func(w *fixture) {
			w.orders.Name, w.orders.ConsumerTimeout = "slow", 40*time.Minute
			w.declare(w.orders)
			runs := 0
			var ended error
			var after time.Duration
			_, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
				runs++
				if d.ID == id(0) {
					time.Sleep(25 * time.Minute)
					return ctx.Err()
				}
				began := time.Now()
				<-ctx.Done()
				ended, after = context.Cause(ctx), time.Since(began)
				return nil
			}, consumer.Config{})
			w.publish(1)
			time.Sleep(30 * time.Minute)
			w.publish(1)
			time.Sleep(40 * time.Minute)
			w.stopped(stop)
			if runs != 2 || !errors.Is(ended, consumer.ErrConsumerTimeout) || after != 32*time.Minute {
				w.Errorf("%d runs, the last one ended after %v by %v; want 2 runs, 32m and ErrConsumerTimeout: four fifths of the queue's own", runs, after, ended)
			}
			w.has("slow")
		})
	}
}

// Two processes consume a queue with a single active consumer: never both at a time,
// whatever the first one does, and in its order.
func TestASingleActiveConsumerKeepsItsQueue(t *testing.T) {
	everywhere(t, func(w *fixture) {
		w.orders.Name, w.orders.SingleActiveConsumer = "single", true
		w.declare(w.orders)
		var inHand [2]atomic.Int32
		var got [2][]string
		var both atomic.Bool
		var away atomic.Bool
		handler := func(me int) consumer.Handler {
			return func(_ context.Context, d *consumer.Delivery) error {
				inHand[me].Add(1)
				defer inHand[me].Add(-1)
				if inHand[1-me].Load() > 0 {
					both.Store(true)
				}
				got[me] = append(got[me], d.ID) // one at a time
				time.Sleep(time.Second)
				if away.Load() {
					return consumer.Hold(errBroken)
				}
				return nil
			}
		}
		first, stop := w.start(handler(0), consumer.Config{})
		w.begun()
		time.Sleep(time.Second)
		second, stopSecond := w.start(handler(1), consumer.Config{})
		w.publish(40)
		time.Sleep(5*time.Second + 500*time.Millisecond)
		first.Pause()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(got[0]) != 6 {
			w.Errorf("%d messages were handled before the pause and in it, want 6", len(got[0]))
		}
		first.Resume()
		time.Sleep(2*time.Second + 500*time.Millisecond)
		away.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(got[1]) > 0 {
			w.Errorf("in the outage of the first one the other one got %d messages, want none", len(got[1]))
		}
		away.Store(false)
		time.Sleep(15 * time.Second)
		w.stopped(stop)
		time.Sleep(2 * time.Minute)
		w.stopped(stopSecond)
		if both.Load() || len(got[1]) == 0 || second.Health() == nil {
			w.Errorf("both were at work at a time: %t; the second got %d messages", both.Load(), len(got[1]))
		}
		all := slices.Compact(slices.Concat(got[0], got[1])) // the held one is handled again and again
		if !inOrder(all, 40) {
			w.Errorf("handled in the order %v and %v", got[0], got[1])
		}
		w.has("single")
	})
}

// inOrder reports whether all are the first n messages in their order.
func inOrder(all []string, n int) bool {
	var want []string
	for i := range n {
		want = append(want, id(i))
	}
	return slices.Equal(all, want)
}

func TestConsumersOfAHigherPriorityAreServedFirst(t *testing.T) {
	everywhere(t, func(w *fixture) {
		count := func(n *atomic.Int32) consumer.Handler {
			return func(context.Context, *consumer.Delivery) error {
				n.Add(1)
				time.Sleep(time.Second)
				return nil
			}
		}
		var low, high atomic.Int32
		_, stopLow := w.start(count(&low), consumer.Config{Priority: -1})
		_, stopHigh := w.start(count(&high), consumer.Config{Priority: 999, Concurrency: 2, Prefetch: 2})
		w.begun()
		time.Sleep(time.Second)
		w.publish(1)            // a session of a quorum queue has room for one until a message has come
		time.Sleep(time.Minute) // visits of idle queues included
		for range 10 {
			w.publish(2)
			time.Sleep(2 * time.Second)
		}
		if low.Load() != 0 || high.Load() != 21 {
			w.Errorf("the lower one got %d, the higher one %d; want none and 21", low.Load(), high.Load())
		}
		w.publish(20)
		time.Sleep(time.Minute)
		if low.Load() == 0 {
			w.Error("the lower one got nothing of what the higher one has no room for")
		}
		w.stopped(stopLow)
		w.stopped(stopHigh)
	})
}
