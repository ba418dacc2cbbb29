package consumer_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// A queue of dead letters has no place for a message that failed, so its consumer holds them:
// each message of a batch for its own time, whatever its neighbours said.
func TestEachMessageOfABatchIsHeldForItsOwnTime(t *testing.T) {
	for _, c := range []struct {
		rule    string
		says    []error // of each message, the first time; nil: done
		earlier []time.Duration
		want    []time.Duration // from the first run to the second; 0: none
		within  time.Duration
	}{
		{"a short wait is not made longer", []error{consumer.RetryAfter(time.Second, errBroken), consumer.RetryAfter(time.Minute, errBroken)}, nil, []time.Duration{time.Second, time.Minute}, 2 * time.Second},
		{"a hold waits for no neighbour", []error{consumer.Hold(errAway), consumer.RetryAfter(time.Minute, errBroken), nil}, nil, []time.Duration{100 * time.Millisecond, time.Minute, 0}, 2 * time.Second},
		{"a long one beside one of an earlier hour", []error{consumer.RetryAfter(time.Minute, errBroken), consumer.RetryAfter(10*time.Minute, errBroken)}, []time.Duration{6 * time.Minute}, []time.Duration{time.Minute, 10 * time.Minute}, 2 * time.Second},
	} {
		t.Run(c.rule, func(t *testing.T) {
			everywhere(t, func(w *fixture) {
				w.declare(w.orders)
				w.orders.Name = "orders.dlq" // for publish
				var mu sync.Mutex
				runs := map[string][]time.Time{}
				var sizes []int
				begun, release := make(chan struct{}), make(chan struct{})
				_, stop := w.startBatch(topology.DeadLetterQueue{Name: "orders.dlq"}, func(_ context.Context, batch []*consumer.Delivery) error {
					if batch[0].Type == "first" {
						close(begun)
						<-release // so that the others wait for their slot
						return nil
					}
					mu.Lock()
					defer mu.Unlock()
					sizes = append(sizes, len(batch))
					for _, d := range batch {
						runs[d.ID] = append(runs[d.ID], time.Now())
						if n := slices.Index([]string{id(1), id(2), id(3)}, d.ID); len(runs[d.ID]) == 1 {
							d.Fail(c.says[n])
						}
					}
					return nil
				}, consumer.Batch{Size: 3}, consumer.Config{Concurrency: 1})
				time.Sleep(time.Second)
				w.publish(1, func(m *rehoptest.Message) { m.Type = "first" })
				<-begun
				for n := range c.says {
					w.publish(1)
					if n < len(c.earlier) {
						time.Sleep(c.earlier[n])
					}
				}
				time.Sleep(5 * time.Second)
				close(release)
				time.Sleep(40 * time.Minute)
				w.stopped(stop)
				for n, want := range c.want {
					at := runs[id(n+1)]
					switch {
					case want == 0 && len(at) != 1:
						w.Errorf("message %d ran %d times, want once", n+1, len(at))
					case want > 0 && (len(at) != 2 || at[1].Sub(at[0]) < want || at[1].Sub(at[0]) > want+c.within):
						w.Errorf("message %d ran at %v, want twice, %v apart", n+1, at, want)
					}
				}
				if sizes[0] != len(c.says) {
					w.Errorf("batches of %v, want the first of %d", sizes, len(c.says))
				}
			})
		})
	}
}

// An outage lets the messages be tried that it holds, and no message sooner whose error has
// named a time.
func TestAnOutageEndsNoWaitOfABatch(t *testing.T) {
	everywhere(t, func(w *fixture) {
		w.declare(w.orders)
		w.orders.Name = "orders.dlq"
		var mu sync.Mutex
		runs := map[string][]time.Time{}
		_, stop := w.startBatch(topology.DeadLetterQueue{Name: "orders.dlq"}, func(_ context.Context, batch []*consumer.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			for _, d := range batch {
				runs[d.ID] = append(runs[d.ID], time.Now())
				switch {
				case d.ID == id(0):
					d.Fail(consumer.RetryAfter(time.Minute, errBroken))
				default:
					d.Fail(consumer.Hold(errAway))
				}
			}
			return nil
		}, consumer.Batch{Size: 3, Linger: time.Minute}, consumer.Config{Concurrency: 1, Prefetch: 10})
		time.Sleep(time.Second)
		w.publish(3)
		time.Sleep(10 * time.Minute)
		w.stopped(stop)
		at := runs[id(0)]
		if len(at) < 3 || len(runs[id(1)]) <= len(at) {
			w.Errorf("the message with a time ran %d times in 10 min, and one that is held %d times; want once a minute, and more often", len(at), len(runs[id(1)]))
		}
		for i := 1; i < len(at); i++ {
			if gap := at[i].Sub(at[i-1]); gap < time.Minute {
				w.Errorf("it ran again after %v, want 1m or more", gap)
			}
		}
	})
}

// The first run of a batch that was held ends an outage. Its messages are told apart by further
// runs, which take long: other workers begin meanwhile.
func TestNobodyWaitsForABatchThatEndedAnOutage(t *testing.T) {
	onNewest(t, func(w *fixture) {
		var mu sync.Mutex
		var began, m2 time.Time
		runs := 0
		_, stop := w.startBatch(w.orders, func(_ context.Context, ds []*consumer.Delivery) error {
			mu.Lock()
			runs++
			switch {
			case ds[0].ID == id(2):
				m2 = time.Now()
			case runs == 1:
				mu.Unlock()
				return consumer.Hold(errAway)
			case len(ds) > 1:
				began = time.Now()
				mu.Unlock()
				return errBroken
			default:
				mu.Unlock()
				time.Sleep(time.Minute)
				return nil
			}
			mu.Unlock()
			return nil
		}, consumer.Batch{Size: 2, Linger: time.Second}, consumer.Config{Concurrency: 4, Outage: consumer.Outage{Runs: 1}})
		time.Sleep(time.Minute)
		w.publish(2)
		synctest.Wait()
		w.publish(1)
		time.Sleep(5 * time.Minute)
		w.has("orders")
		if began.IsZero() || m2.IsZero() || m2.Sub(began) > 5*time.Second {
			w.Errorf("the batch was over its outage at %v, and the next message handled at %v; want at once", began, m2)
		}
		w.stopped(stop)
	})
}

// Of a batch in an outage, one message reaches its hold limit and goes back. The other one waits
// for a time of its own, and may be no probe: no handler would run on it. Other messages find out
// meanwhile whether the outage is over.
func TestAMessageThatWaitsForATimeOfItsOwnIsNoProbe(t *testing.T) {
	onNewest(t, func(w *fixture) {
		var mu sync.Mutex
		var over atomic.Bool
		runs := map[string][]time.Duration{}
		began := time.Now()
		c, err := consumer.NewBatch(w.conn, topology.Route{Queue: "orders"}, func(_ context.Context, ds []*consumer.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			for _, d := range ds {
				runs[d.ID] = append(runs[d.ID], time.Since(began))
				switch {
				case d.ID == "m1" && len(runs["m1"]) == 1:
					d.Fail(consumer.RetryAfter(14*time.Minute+55*time.Second, errBroken)) // until 15m35s
				case !over.Load():
					d.Fail(consumer.Hold(errBroken))
				}
			}
			return nil
		}, consumer.Batch{Size: 2, Linger: 50 * time.Second}, consumer.Config{Concurrency: 2, Outage: consumer.Outage{Runs: 2, MaxPause: time.Second}})
		if err != nil {
			w.Fatal(err)
		}
		stop := running(c)
		synctest.Wait()
		w.publish(1) // m0
		time.Sleep(40 * time.Second)
		w.publish(1) // m1, in one batch with it
		time.Sleep(20 * time.Second)
		w.publish(2) // another batch, or two
		time.Sleep(14*time.Minute + 10*time.Second)
		over.Store(true) // at 15m10s
		time.Sleep(20 * time.Second)
		mu.Lock()
		if m2 := runs["m2"]; m2[len(m2)-1] < 15*time.Minute+10*time.Second {
			w.Errorf("m2 ran last at %v: nobody has found out that the outage is over", m2[len(m2)-1])
		}
		mu.Unlock()
		time.Sleep(20 * time.Minute)
		w.stopped(stop)
		w.has("orders")
	})
}
