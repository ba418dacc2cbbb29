package consumer_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
)

// startBatch runs a consumer of batches; stop, which the end of the test calls, ends it.
func (w *fixture) startBatch(source topology.Source, handler consumer.BatchHandler, batch consumer.Batch, cfg consumer.Config) (c *consumer.Consumer, stop func() error) {
	w.Helper()
	cfg.Traces = append(cfg.Traces, consumer.Trace{Settled: w.journal.note})
	c, err := consumer.NewBatch(w.conn, source, handler, batch, cfg)
	if err != nil {
		w.Fatal(err)
	}
	return c, running(c)
}

// runs is what a BatchHandler was called with.
type runs struct {
	mu    sync.Mutex
	calls [][]string // ids
	times []time.Time
	tries map[string][]int // attempts by id
}

func (r *runs) note(batch []*consumer.Delivery) (call int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tries == nil {
		r.tries = map[string][]int{}
	}
	var ids []string
	for _, d := range batch {
		ids = append(ids, d.ID)
		r.tries[d.ID] = append(r.tries[d.ID], d.Attempt)
	}
	r.calls, r.times = append(r.calls, ids), append(r.times, time.Now())
	return len(r.calls)
}

// attempts returns those at each message.
func (r *runs) attempts() map[string][]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string][]int{}
	for id, tries := range r.tries {
		all[id] = slices.Clone(tries)
	}
	return all
}

func (r *runs) sizes() (sizes []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ids := range r.calls {
		sizes = append(sizes, len(ids))
	}
	return sizes
}

func TestABatchIsHandledAndAckedTogether(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		var r runs
		_, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
			r.note(batch)
			return nil
		}, consumer.Batch{Size: 100, Linger: time.Second}, consumer.Config{})
		time.Sleep(time.Second)
		w.publish(250)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := r.sizes(); !slices.Equal(got, []int{100, 100, 50}) {
			w.Errorf("batches of %v, want 100, 100 and 50", got)
		}
		if took := r.times[2].Sub(r.times[1]); took < 900*time.Millisecond || took > 1200*time.Millisecond {
			w.Errorf("the last batch began %v after the one before, want the second that it lingers", took)
		}
		w.stopped(stop)
		w.has("orders")
		if n := w.journal.count(consumer.DispositionDone); n != 250 {
			w.Errorf("%d messages were said to be done, want 250", n)
		}
	})
}

// What lingers for longer than a message may wait for a slow handler is neither given back
// nor delivered again.
func TestNothingThatLingersIsGivenBack(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		var r runs
		again := 0
		_, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
			for _, d := range batch {
				if d.Redelivered {
					again++
				}
			}
			r.note(batch)
			return nil
		}, consumer.Batch{Size: 50, Linger: 30 * time.Second}, consumer.Config{Concurrency: 4})
		time.Sleep(time.Second)
		for range 20 {
			w.publish(1)
			time.Sleep(time.Second)
		}
		time.Sleep(15 * time.Second)
		w.stopped(stop)
		if got := r.sizes(); !slices.Equal(got, []int{20}) || again > 0 {
			w.Errorf("batches of %v, %d messages redelivered; want one of 20", got, again)
		}
	})
}

func TestWhatLingersAtAStopGoesBackAtOnce(t *testing.T) {
	for _, limit := range []int{0, 1} {
		onEachEngine(t, func(w *fixture) {
			var r runs
			_, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
				r.note(batch)
				return nil
			}, consumer.Batch{Size: 50, Linger: time.Minute}, consumer.Config{KeyLimit: limit})
			w.publish(20)
			time.Sleep(10 * time.Second)
			began := time.Now()
			w.stopped(stop)
			if took := time.Since(began); took > time.Second {
				w.Errorf("the stop took %v", took)
			}
			if len(r.calls) > 0 {
				w.Errorf("batches of %v, want none", r.sizes())
			}
			w.has("orders", ids(20)...)
		})
	}
}

func TestAStopWaitsForBatchesInHand(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		_, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
			time.Sleep(5 * time.Second)
			batch[0].Fail(errBroken)
			return nil
		}, consumer.Batch{Size: 10, Linger: time.Second}, consumer.Config{})
		w.begun()
		time.Sleep(time.Second)
		w.publish(25)
		time.Sleep(time.Second)
		w.stopped(stop)
		w.truthful()
		if done, waits := w.journal.count(consumer.DispositionDone), w.journal.count(consumer.DispositionWait); done != 9 || waits != 1 {
			w.Errorf("%d done, %d wait; want 9 and 1", done, waits)
		}
	})
}

// A session that is lost while a batch is at work spends no attempt.
func TestABatchWhoseSessionIsLost(t *testing.T) {
	everywhere(t, func(w *fixture) {
		var r runs
		_, stop := w.startBatch(w.orders, func(ctx context.Context, batch []*consumer.Delivery) error {
			if r.note(batch) == 1 {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		}, consumer.Batch{Size: 10, Linger: time.Second}, consumer.Config{})
		time.Sleep(time.Second)
		w.publish(20)
		time.Sleep(2 * time.Second)
		w.broker.Cut("")
		time.Sleep(30 * time.Second)
		w.stopped(stop)
		w.has("orders")
		w.has("orders.dlq")
		for id, tries := range r.attempts() {
			if slices.Max(tries) != 1 {
				w.Errorf("attempts at %s: %v, want no attempt spent", id, tries)
			}
		}
		if len(r.attempts()) != 20 {
			w.Errorf("%d messages were handled, want 20", len(r.attempts()))
		}
	})
}

// A message that comes too early waits on, and the others of its batch are handled.
func TestABatchWithMessagesThatAreNotDue(t *testing.T) {
	on(t, "4.3", topology.Quorum, func(w *fixture) {
		w.orders.Waits = nil
		w.orders.Name = "plain"
		w.declare(w.orders)
		var r runs
		_, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
			r.note(batch)
			for _, d := range batch {
				if d.ID == id(1) && d.History.Snoozes == 0 {
					d.Fail(consumer.Snooze(time.Minute, "not its turn"))
				}
			}
			return nil
		}, consumer.Batch{Size: 5, Linger: time.Second}, consumer.Config{Concurrency: 2})
		time.Sleep(time.Second)
		w.publish(5)
		time.Sleep(30 * time.Second)
		w.publish(10)
		time.Sleep(2 * time.Minute)
		w.stopped(stop)
		if got := len(r.attempts()[id(1)]); got != 2 || len(r.attempts()) != 15 {
			w.Errorf("the message that was put off was handled %d times, want 2; %d messages were, want 15", got, len(r.attempts()))
		}
		w.has("plain")
	})
}

func TestBatchesAreRefused(t *testing.T) {
	onNewest(t, func(w *fixture) {
		w.orders.Waits = delay.Schedule{time.Second}
		handler := func(context.Context, []*consumer.Delivery) error { return nil }
		for want, c := range map[string]struct {
			batch consumer.Batch
			cfg   consumer.Config
		}{
			"consumer: Batch.Size is -1, want 1 to 10000, or 0 for 100":                                             {batch: consumer.Batch{Size: -1}},
			"consumer: Batch.Linger is 2m0s, want 0 to 1m0s":                                                        {batch: consumer.Batch{Linger: 2 * time.Minute}},
			"consumer: Batch.MaxBytes is -1, want 1 or more, or 0 for 16 MiB":                                       {batch: consumer.Batch{MaxBytes: -1}},
			"consumer: Config.RetryInPlace is not for batches: one message that failed would keep the slot of all":  {cfg: consumer.Config{RetryInPlace: true}},
			"consumer: Config.Prefetch is 99, want at least Batch.Size, which is 100, or 0: no batch would be full": {cfg: consumer.Config{Prefetch: 99}},
			"consumer: Config.Concurrency is 100 and Batch.Size 1000, want at most 65535 for Size times one more than Concurrency: the broker sends no more ahead": {
				consumer.Batch{Size: 1000}, consumer.Config{Concurrency: 100}},
		} {
			_, err := consumer.NewBatch(w.conn, w.orders, handler, c.batch, c.cfg)
			if err == nil || err.Error() != want || rehop.ClassOf(err) != rehop.ClassBug {
				w.Errorf("NewBatch = %v\nwant %s", err, want)
			}
		}
		if _, err := consumer.NewBatch(nil, w.orders, nil, consumer.Batch{}, consumer.Config{}); err == nil || !strings.Contains(err.Error(), "handler is nil") || !strings.Contains(err.Error(), "conn is nil") {
			w.Errorf("NewBatch = %v, want all faults", err)
		}
	})
}
