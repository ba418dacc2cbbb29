package consumer_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

func TestBatchesKeepTheOrderOfKeys(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		o := newOrdered()
		var r runs
		_, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
			call := r.note(batch)
			var all sync.WaitGroup
			for _, d := range batch {
				all.Go(func() { o.handle(d.OrderKey, d.ID, 50*time.Millisecond) })
			}
			all.Wait()
			if call == 1 {
				return consumer.Hold(errBroken)
			}
			return nil
		}, consumer.Batch{Size: 10, Linger: 100 * time.Millisecond}, consumer.Config{Concurrency: 4, KeyLimit: 1})
		want := map[string][]string{}
		for n := range 300 {
			key := fmt.Sprintf("k%d", n%7)
			w.publish(1, keyed(key))
			want[key] = append(want[key], id(n))
		}
		time.Sleep(time.Minute)
		w.stopped(stop)
		for key := range want {
			if got := slices.Compact(o.got[key]); !slices.Equal(got, want[key]) || o.most[key] != 1 {
				w.Errorf("key %s: %d at a time, in the order %v", key, o.most[key], few(o.got[key]))
			}
		}
		w.has("orders")
	})
}

func TestAnOutageWithBatches(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		g := &gateway{took: time.Millisecond}
		c, stop := w.startBatch(w.orders, func(ctx context.Context, batch []*consumer.Delivery) error {
			for _, d := range batch {
				d.Fail(g.handle(ctx, d))
			}
			return nil
		}, consumer.Batch{Size: 10, Linger: 100 * time.Millisecond}, consumer.Config{Concurrency: 2})
		feed := func(seconds int) {
			for range seconds * 10 {
				w.publish(10)
				time.Sleep(100 * time.Millisecond)
			}
		}
		feed(2)
		g.away.Store(true)
		feed(1)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if status, err := health(c); status != "degraded" || !strings.Contains(err.Error(), "outage, one message at a time is tried: the gateway is away") {
			w.Errorf("in the outage: %s, %v", status, err)
		}
		before, _ := g.counts()
		time.Sleep(time.Minute)
		synctest.Wait()
		if calls, _ := g.counts(); calls-before > 300 {
			w.Errorf("%d messages were handled in a minute of outage, want batches that are held, one at a time after growing pauses", calls-before)
		}
		g.away.Store(false)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if status, err := health(c); status != "healthy" {
			w.Errorf("after the outage: %s, %v", status, err)
		}
		w.stopped(stop)
		if _, done := g.counts(); done != w.sent || g.attempts[1] != w.sent {
			w.Errorf("%d of %d messages done, %v by their attempts", done, w.sent, g.attempts)
		}
		w.has("orders.dlq")
		w.has("orders")
	})
}

func TestAFewHeldMessagesAreNoOutage(t *testing.T) {
	onNewest(t, func(w *fixture) {
		var mu sync.Mutex
		away := true
		c, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			for _, d := range batch {
				if away && d.Type == "tenant" {
					d.Fail(consumer.Hold(errAway))
				}
			}
			return nil
		}, consumer.Batch{Size: 20, Linger: 100 * time.Millisecond}, consumer.Config{Concurrency: 4})
		time.Sleep(time.Second)
		for n := range 60 {
			w.publish(1, func(m *rehoptest.Message) {
				if n%30 == 0 {
					m.Type = "tenant"
				}
			})
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if done := w.journal.count(consumer.DispositionDone); done != 58 {
			w.Errorf("%d are done, want all but 2", done)
		}
		if status, err := health(c); status != "healthy" {
			w.Errorf("with 2 held messages: %s, %v", status, err)
		}
		mu.Lock()
		away = false
		mu.Unlock()
		time.Sleep(time.Minute)
		w.stopped(stop)
		w.has("orders")
	})
}

func TestBatchesOfLanes(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		l := w.lanes()
		var r runs
		var mu sync.Mutex
		var lanes []string
		_, stop := w.startBatch(l, func(_ context.Context, batch []*consumer.Delivery) error {
			r.note(batch)
			for _, d := range batch {
				if d.Queue != batch[0].Queue {
					w.Errorf("a batch has messages of %s and %s", d.Queue, batch[0].Queue)
				}
			}
			mu.Lock()
			lanes = append(lanes, batch[0].Queue)
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			return nil
		}, consumer.Batch{Size: 10, Linger: 50 * time.Millisecond}, consumer.Config{})
		time.Sleep(5 * time.Second)
		w.fill("bulk", 100)
		time.Sleep(350 * time.Millisecond)
		w.fill("vip", 20)
		time.Sleep(10 * time.Second)
		w.stopped(stop)
		at := slices.Index(lanes, "sms.vip")
		if at < 0 || at > 6 || lanes[at+1] != "sms.vip" || len(lanes) > 14 {
			w.Errorf("batches of the lanes %v, want those of the high lane as soon as a handler is free", lanes)
		}
	})
}

func TestEachMessageOfABatchHasItsHooks(t *testing.T) {
	onNewest(t, func(w *fixture) {
		type key struct{}
		var mu sync.Mutex
		var told []string
		tell := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, fmt.Sprintf(format, args...))
		}
		trace := consumer.Trace{
			Received: func(ctx context.Context, d *consumer.Delivery) context.Context {
				tell("received %s", d.ID)
				return context.WithValue(ctx, key{}, d.ID)
			},
			Batched: func(ctx context.Context, b consumer.Batched) context.Context {
				var ids []any
				for i, d := range b.Deliveries {
					if of := b.Contexts[i]; of.Value(key{}) != d.ID {
						w.Errorf("the ctx of message %s is of %v", d.ID, of.Value(key{}))
					}
					ids = append(ids, d.ID)
				}
				tell("batched %v", ids)
				return context.WithValue(ctx, key{}, "batch")
			},
			BatchHandled: func(ctx context.Context, b consumer.BatchHandled) {
				tell("batch handled %d %v %v %v", len(b.Deliveries), b.Err, b.Took, ctx.Value(key{}))
			},
			Handled: func(ctx context.Context, h consumer.Handled) {
				tell("handled %s %v %v %v", h.Delivery.ID, h.Err, h.Took, ctx.Value(key{}))
			},
			Settled: func(ctx context.Context, s consumer.Settled) {
				tell("settled %s %v %v", s.Delivery.ID, s.Disposition, ctx.Value(key{}))
			},
		}
		_, stop := w.startBatch(w.orders, func(ctx context.Context, batch []*consumer.Delivery) error {
			if ctx.Value(key{}) != "batch" {
				w.Errorf("the handler has the ctx of %v", ctx.Value(key{}))
			}
			time.Sleep(time.Second)
			for _, d := range batch {
				if d.ID == id(0) {
					return errBroken
				}
			}
			return nil
		}, consumer.Batch{Size: 2, Linger: time.Second}, consumer.Config{Traces: []consumer.Trace{trace, {}}})
		time.Sleep(time.Second)
		w.publish(2)
		time.Sleep(5 * time.Second)
		w.stopped(stop)
		// What is settled is told beside the next run.
		for subject, want := range map[string][]string{
			"batch": {"batched [m0 m1]", "batch handled 2 broken 1s batch", "batched [m0]", "batch handled 1 broken 1s batch", "batched [m1]", "batch handled 1 <nil> 1s batch"},
			"ed m0": {"received m0", "handled m0 broken 1s m0", "settled m0 wait m0"},
			"ed m1": {"received m1", "handled m1 <nil> 1s m1", "settled m1 done m1"},
		} {
			if got := slices.DeleteFunc(slices.Clone(told), func(line string) bool { return !strings.Contains(line, subject) }); !slices.Equal(got, want) {
				w.Errorf("hooks\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	})
}

func TestCopiesOfBatchesAreBounded(t *testing.T) {
	on(t, "4.0", topology.Classic, func(w *fixture) {
		c, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
			for _, d := range batch {
				d.Fail(errBroken)
			}
			return nil
		}, consumer.Batch{Size: 10, Linger: time.Second}, consumer.Config{Concurrency: 2})
		time.Sleep(time.Second)
		w.broker.Refuse("orders.wait.1", true)
		w.publish(100)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if status, err := health(c); status != "unhealthy" || !strings.Contains(err.Error(), "20 messages in hand, as many as Config.Concurrency allows") {
			w.Errorf("when that has lasted: %s, %v", status, err)
		}
		q, _ := w.broker.Queue("orders")
		if n := len(q.Unacked); n != 30 {
			w.Errorf("%d messages are unsettled, want 30: two batches, and one that is ready", n)
		}
		w.broker.Refuse("orders.wait.1", false)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if status, err := health(c); status != "healthy" {
			w.Errorf("after it: %s, %v", status, err)
		}
		time.Sleep(20 * time.Minute)
		w.stopped(stop)
		w.has("orders.dlq", ids(100)...)
	})
}

func TestSuspectsAreHandledAlone(t *testing.T) {
	on(t, "4.3", topology.Quorum, func(w *fixture) {
		var r runs
		_, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
			r.note(batch)
			for _, d := range batch {
				if d.History.DeliveryCount >= 10 && len(batch) > 1 {
					return fmt.Errorf("message %s was delivered %d times before, and is in a batch of %d", d.ID, d.History.DeliveryCount, len(batch))
				}
			}
			return nil
		}, consumer.Batch{Size: 10, Linger: time.Second}, consumer.Config{})
		time.Sleep(time.Second)
		for n := range 40 {
			w.publish(1, func(m *rehoptest.Message) {
				m.Headers = amqp.Table{header.DeliveryCount: int64(n % 2 * 12)}
			})
		}
		time.Sleep(time.Minute)
		w.stopped(stop)
		w.has("orders")
		alone := 0
		for _, n := range r.sizes() {
			if n == 1 {
				alone++
			}
		}
		if alone < 20 {
			w.Errorf("runs with %v messages, want 20 alone", r.sizes())
		}
	})
}
