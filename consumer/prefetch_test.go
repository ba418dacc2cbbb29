package consumer_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// A message is held through connection losses until half its delivery limit is
// used up. It stops nobody else.
func TestASuspectThatIsHeldStopsNobody(t *testing.T) {
	onQuorumQueues(t, func(w *fixture) {
		w.publish(1)
		var outage atomic.Bool
		outage.Store(true)
		c, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			if d.ID == "m0" && outage.Load() {
				return consumer.Hold(errBroken)
			}
			return nil
		}, consumer.Config{Concurrency: 16})
		for range 12 {
			time.Sleep(20 * time.Second)
			w.broker.Cut("")
		}
		time.Sleep(20 * time.Second)
		w.publish(60)
		time.Sleep(time.Minute)
		if done := w.journal.count(consumer.DispositionDone); done != 60 {
			w.Errorf("%d of 60 others are done", done)
		}
		if status, err := health(c); status != "healthy" {
			w.Errorf("%s: %v", status, err)
		}
		outage.Store(false)
		time.Sleep(time.Minute)
		w.has("orders")
		w.has("orders.dlq")
		w.stopped(stop)
	})
}

// A message that cuts the connection whenever it is handled takes nobody along.
func TestACrashLoopSparesItsNeighbours(t *testing.T) {
	for _, version := range sampled(t, []string{"4.0", "4.3"}) {
		on(t, version, topology.Quorum, func(w *fixture) {
			w.publish(10)
			w.publish(1, func(m *rehoptest.Message) { m.Type = "guilty" })
			w.publish(10)
			_, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
				if d.Type == "guilty" {
					time.Sleep(10 * time.Millisecond)
					w.broker.Cut("")
					<-ctx.Done()
					return context.Cause(ctx)
				}
				return slowly(100*time.Millisecond)(ctx, d)
			}, consumer.Config{Concurrency: 30})
			time.Sleep(5 * time.Minute)
			w.has("orders.dlq", "m10")
			w.has("orders")
			if done := w.journal.count(consumer.DispositionDone); done != 20 {
				w.Errorf("%d neighbours are done, want 20", done)
			}
			w.stopped(stop)
		})
	}
}

// A suspect that a handler has been at work on for long does not keep the others
// away for ever.
func TestASuspectThatTakesLong(t *testing.T) {
	on(t, "4.3", topology.Quorum, func(w *fixture) {
		w.publish(1)
		c, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
			if d.ID == "m0" {
				return slowly(20*time.Minute)(ctx, d)
			}
			return nil
		}, consumer.Config{Concurrency: 8})
		for range 12 {
			time.Sleep(20 * time.Second)
			w.broker.Cut("")
		}
		time.Sleep(10 * time.Second)
		w.publish(20)
		time.Sleep(2 * time.Second)
		if done := w.journal.count(consumer.DispositionDone); done != 0 {
			w.Errorf("%d others are handled beside a suspect", done)
		}
		time.Sleep(2 * time.Minute)
		if done := w.journal.count(consumer.DispositionDone); done != 20 {
			w.Errorf("%d of 20 others are done", done)
		}
		if status, err := health(c); status != "healthy" {
			w.Errorf("%s: %v", status, err)
		}
		if err := stop(); err != nil {
			w.Error(err)
		}
	})
}

func TestPrefetchFollowsTheHandlers(t *testing.T) {
	on(t, "4.3", topology.Quorum, func(w *fixture) {
		// The network is slow: without more in advance, a quick handler waits for it.
		w.broker.Slow(10 * time.Millisecond)
		var took, most, runs atomic.Int64
		_, stop := w.start(func(ctx context.Context, _ *consumer.Delivery) error {
			if runs.Add(1)%500 == 0 {
				q, _ := w.broker.Queue("orders")
				most.Store(max(most.Load(), int64(len(q.Unacked))))
			}
			time.Sleep(time.Duration(took.Load()))
			return nil
		}, consumer.Config{})
		took.Store(int64(100 * time.Microsecond))
		time.Sleep(2 * time.Second)
		w.publish(20_000)
		time.Sleep(10 * time.Second)
		if done := w.journal.count(consumer.DispositionDone); done != 20_000 {
			w.Errorf("%d of 20,000 done in 10 s", done)
		}
		if most.Load() < 200 || most.Load() > 2100 {
			w.Errorf("at most %d were sent ahead", most.Load())
		}
		// A slow one hoards nothing.
		most.Store(0)
		took.Store(int64(10 * time.Second))
		w.publish(100)
		time.Sleep(5 * time.Second)
		q, _ := w.broker.Queue("orders")
		if len(q.Unacked) > 3 {
			w.Errorf("%d are kept from others", len(q.Unacked))
		}
		time.Sleep(20 * time.Minute)
		w.has("orders")
		w.stopped(stop)
	})
}

// A queue that is full is read ahead long before durations.Calm is over.
func TestPrefetchFollowsSoon(t *testing.T) {
	on(t, "4.3", topology.Quorum, func(w *fixture) {
		w.broker.Slow(500 * time.Microsecond)
		w.publish(20_000)
		_, stop := w.start(succeed, consumer.Config{})
		most := 0
		for range 80 {
			time.Sleep(10 * time.Millisecond)
			q, _ := w.broker.Queue("orders")
			most = max(most, len(q.Unacked))
		}
		if most < 200 || most > 2100 {
			w.Errorf("at most %d were sent ahead in 0.8 s", most)
		}
		w.stopped(stop)
	})
}

// Where nothing was delivered before, one message comes alone, and the prefetch that
// the user asks for is there two round trips later: the end of the one consumer, and the start of the next.
func TestAPrefetchIsThereFromTheFirstMessageOn(t *testing.T) {
	on(t, "4.3", topology.Quorum, func(w *fixture) {
		const trip, prefetch, took = 20 * time.Millisecond, 100, 20 * time.Microsecond
		w.publish(10 * prefetch)
		w.broker.Slow(trip)
		var started []time.Time
		_, stop := w.start(func(context.Context, *consumer.Delivery) error {
			started = append(started, time.Now())
			time.Sleep(took)
			return nil
		}, consumer.Config{Prefetch: prefetch})
		time.Sleep(time.Minute)
		w.broker.Slow(0)
		w.stopped(stop)
		w.has("orders")
		if after := started[prefetch-1].Sub(started[0]); after > 2*trip+prefetch*took {
			w.Errorf("the message number %d starts %v after the first, want two round trips of %v at most and what the handlers take", prefetch, after, trip)
		}
	})
}

// But not while a message is in hand that may have ended the session before.
func TestPrefetchDoesNotFollowWhileASuspectIsInHand(t *testing.T) {
	on(t, "4.3", topology.Quorum, func(w *fixture) {
		w.broker.Slow(500 * time.Microsecond)
		var inHand, others, came atomic.Int64
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			if d.Type != "slow" {
				others.Add(inHand.Load())
				return nil
			}
			if d.Redelivered {
				came.Store(time.Now().UnixMilli())
				inHand.Store(1)
				defer inHand.Store(0)
			}
			time.Sleep(500 * time.Millisecond)
			return nil
		}, consumer.Config{Concurrency: 2})
		w.publish(1, func(m *rehoptest.Message) { m.Type = "slow" })
		time.Sleep(300 * time.Millisecond)
		w.broker.Cut("")
		w.publish(20_000)
		ahead := func() int { // which copies a long queue
			q, _ := w.broker.Queue("orders")
			return len(q.Unacked)
		}
		most, soon := 0, 0
		for range 150 {
			time.Sleep(20 * time.Millisecond)
			if inHand.Load() > 0 {
				most = max(most, ahead())
			} else if at := came.Load(); at > 0 {
				if time.Now().UnixMilli() >= at+900 { // durations.Calm is over soon
					break
				}
				soon = max(soon, ahead())
			}
		}
		if most < 1 || most > 3 || others.Load() < 200 {
			w.Errorf("at most %d were sent ahead, want 2 and one of the consumer before; %d others were handled meanwhile", most, others.Load())
		}
		if soon < 100 {
			w.Errorf("at most %d were sent ahead once its handler had returned", soon)
		}
		w.stopped(stop)
	})
}

// Where all slots are taken by messages that are held, other consumers can have
// the rest.
func TestAnOutageHoardsNothing(t *testing.T) {
	on(t, "4.3", topology.Quorum, func(w *fixture) {
		w.broker.Slow(time.Millisecond)
		var out atomic.Bool
		_, stop := w.start(func(context.Context, *consumer.Delivery) error {
			if out.Load() {
				return consumer.Hold(errors.New("the database is away"))
			}
			return nil
		}, consumer.Config{Concurrency: 4})
		w.publish(10_000)
		for range 1000 {
			time.Sleep(5 * time.Millisecond)
			if q, _ := w.broker.Queue("orders"); len(q.Unacked) > 100 {
				break
			}
		}
		out.Store(true)
		time.Sleep(5 * time.Second)
		if q, _ := w.broker.Queue("orders"); len(q.Unacked) > 8 || len(q.Ready) < 1000 {
			w.Errorf("%d are kept from others, want 4 and as many for the consumer that replaced the first", len(q.Unacked))
		}
		out.Store(false)
		time.Sleep(10 * time.Minute)
		w.has("orders")
		w.stopped(stop)
	})
}

func TestPrefetchStays(t *testing.T) {
	most := func(w *fixture, source topology.Source, cfg consumer.Config) int {
		var most atomic.Int64
		w.publish(500)
		_, stop := w.startOn(source, func(context.Context, *consumer.Delivery) error {
			q, _ := w.broker.Queue("orders")
			most.Store(max(most.Load(), int64(len(q.Unacked))))
			time.Sleep(10 * time.Millisecond)
			return nil
		}, cfg)
		time.Sleep(time.Minute)
		w.stopped(stop)
		return int(most.Load())
	}
	on(t, "4.3", topology.Quorum, func(w *fixture) {
		if n := most(w, w.orders, consumer.Config{Concurrency: 4, Prefetch: 50}); n < 40 || n > 51 { // one was sent to the consumer before
			w.Errorf("Prefetch 50: %d sent ahead", n)
		}
		first := w.orders
		first.NativePriority = true
		if n := most(w, first, consumer.Config{Concurrency: 4}); n > 5 {
			w.Errorf("with priorities: %d sent ahead, want at most 4 and one of the consumer before", n)
		}
	})
}

// Two consumers of one queue: what is sent ahead to one is not kept from the
// other for long.
func TestNobodyHoards(t *testing.T) {
	on(t, "4.3", topology.Classic, func(w *fixture) {
		var quick, slow atomic.Int64
		w.publish(400)
		_, stop := w.start(func(context.Context, *consumer.Delivery) error { slow.Add(1); time.Sleep(2 * time.Second); return nil }, consumer.Config{})
		_, stop2 := w.start(func(context.Context, *consumer.Delivery) error {
			quick.Add(1)
			time.Sleep(10 * time.Millisecond)
			return nil
		}, consumer.Config{})
		time.Sleep(10 * time.Second)
		w.has("orders")
		if slow.Load() > 6 {
			w.Errorf("%d messages waited for the slow one", slow.Load())
		}
		w.stopped(stop)
		w.stopped(stop2)
	})
}

// A tenant has 3,000 messages in the queue before another tenant has one.
func TestABacklogOfOneShareKeepsNoOtherKeyAway(t *testing.T) {
	onQuorumQueues(t, func(w *fixture) {
		const took, trip = 20 * time.Millisecond, time.Millisecond
		w.publish(3000, keyed("a"))
		w.publish(1, keyed("b"))
		w.broker.Slow(trip)
		began := time.Now()
		var mu sync.Mutex
		var firstOfB time.Duration
		var most, atWork, largest int
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			mu.Lock()
			if d.OrderKey == "b" {
				firstOfB = time.Since(began)
			} else {
				atWork++
				most = max(most, atWork)
			}
			mu.Unlock()
			time.Sleep(took)
			mu.Lock()
			defer mu.Unlock()
			if d.OrderKey == "a" {
				atWork--
			}
			return nil
		}, consumer.Config{Concurrency: 16, KeyLimit: 4, Traces: []consumer.Trace{{Fetching: func(f consumer.Fetching) {
			mu.Lock()
			defer mu.Unlock()
			largest = max(largest, f.Prefetch)
		}}}})
		time.Sleep(time.Minute)
		w.broker.Slow(0)
		w.stopped(stop)
		w.has("orders")
		mu.Lock()
		defer mu.Unlock()
		if firstOfB == 0 || firstOfB > time.Second || most != 4 || largest < 1000 {
			w.Errorf("the first message of the other key begins after %v, %d of one key at a time, a prefetch of %d; want 1 s at most, 4, and 1000 or more",
				firstOfB, most, largest)
		}
	})
}

// More messages of a key are in the queue than may be in hand, or than an ordered consumer fetches.
func TestAKeyThatKeepsOthersAwayIsNamed(t *testing.T) {
	for _, tt := range []struct {
		rule     string
		limit, n int
	}{
		{"a share", 4, 11_000},
		{"in order", 1, 200},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			on(t, "4.3", topology.Quorum, func(w *fixture) {
				w.publish(tt.n, keyed("tenant a"))
				var log lines
				c, stop := w.start(slowly(3*time.Second), consumer.Config{Concurrency: 16, KeyLimit: tt.limit, Logger: log.logger()})
				time.Sleep(50 * time.Second)
				if err := c.Health(); err != nil {
					w.Errorf("after 50 s: %v", err)
				}
				time.Sleep(20 * time.Second)
				var h *rehop.HealthError
				if err := c.Health(); !errors.As(err, &h) || !h.Degraded || !strings.Contains(err.Error(), `for key "tenant a"`) {
					w.Errorf("after 70 s: %v, want that it is degraded, with the key", err)
				}
				if text := strings.Join(log.with("other keys"), ""); strings.Count(text, "other keys are kept away") != 1 || !strings.Contains(text, `key="tenant a"`) {
					w.Errorf("the log says %s", text)
				}
				w.stopped(stop)
			})
		})
	}
}
