package consumer_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/consumer"
)

// The answer to a copy is missing when Run stops, because the socket for publishing
// is lost. The copy is sent again within the stop: given back, the message would be
// in its queue and perhaps in its next place.
func TestAStopAwaitsTheAnswerToACopy(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		_, stop := w.start(permanently, consumer.Config{DrainTimeout: 10 * time.Second})
		w.begun()
		w.broker.Refuse("orders.dlq", true)
		w.publish(1)
		time.Sleep(time.Second)
		w.broker.Cut("publish")
		synctest.Wait()
		w.broker.Refuse("orders.dlq", false)
		w.stopped(stop)
		w.has("orders")
		if letters := slices.Compact(w.in("orders.dlq")); !slices.Equal(letters, ids(1)) {
			w.Errorf("letters %v, want the one", letters)
		}
		if got := w.journal.of(id(0)); len(got) != 1 || got[0].Disposition != consumer.DispositionDeadLetter {
			w.Errorf("settled %v, want as a dead letter", got)
		}
	})
}

// The CopyTimeout of a copy ends during a stop, and its answer comes later. It is
// awaited: another copy would be a second letter.
func TestAStopSendsNoCopyAgainWhoseAnswerMayCome(t *testing.T) {
	for rule, before := range map[string]time.Duration{
		"CopyTimeout ends during the stop": time.Second,
		"CopyTimeout has ended before it":  2*time.Second + 50*time.Millisecond,
	} {
		t.Run(rule, func(t *testing.T) {
			onEachEngine(t, func(w *fixture) {
				_, stop := w.start(permanently, consumer.Config{DrainTimeout: 10 * time.Second, CopyTimeout: 2 * time.Second})
				w.begun()
				w.broker.Refuse("orders.dlq", true)
				w.publish(1)
				time.Sleep(before)
				time.AfterFunc(3*time.Second, func() { w.broker.Refuse("orders.dlq", false) })
				w.stopped(stop)
				w.has("orders")
				w.has("orders.dlq", ids(1)...)
				if got := w.journal.of(id(0)); len(got) != 1 || got[0].Disposition != consumer.DispositionDeadLetter {
					w.Errorf("settled %v, want as a dead letter", got)
				}
			})
		})
	}
}

// The broker does not answer any more, handlers ignore their ctx, and copies have no
// answer.
func TestAStopIsBounded(t *testing.T) {
	for _, tt := range []struct {
		rule       string
		heartbeats bool          // as by default
		grace      time.Duration // beyond DrainTimeout
		amiss      func(*fixture)
	}{
		{"all is well but for a handler", false, 5 * time.Second, func(*fixture) {}},
		{"the broker does not answer, and no heartbeat tells", false, 6 * time.Second, silent(0)},
		{"the broker does not answer, and heartbeats tell during the stop", true, 5 * time.Second, silent(0)},
		{"they have told just before", true, 5 * time.Second, silent(15 * time.Second)},
		{"they have told long before", true, 5 * time.Second, silent(time.Minute)},
		{"copies have no answer", false, 5 * time.Second, func(w *fixture) { w.broker.Refuse("orders.dlq", true); w.publish(3) }},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			onEachEngine(t, func(w *fixture) {
				if tt.heartbeats {
					w.reopen(w.broker.Dial)
				}
				release := make(chan struct{})
				var runs atomic.Int32
				w.publish(1)
				_, stop := w.start(func(context.Context, *consumer.Delivery) error {
					if runs.Add(1) == 1 {
						<-release
					}
					return consumer.DeadLetter(errBroken)
				}, consumer.Config{Concurrency: 8})
				time.Sleep(time.Second)
				tt.amiss(w)
				time.Sleep(time.Second)
				began := time.Now()
				_ = stop() // which says that a handler has not returned
				if took := time.Since(began); took < 15*time.Second || took > 15*time.Second+tt.grace {
					w.Errorf("Run has taken %v to return, want DrainTimeout, which is 15 s, and %v more at most", took, tt.grace)
				}
				began = time.Now()
				_ = w.conn.Close()
				if took := time.Since(began); took > 5*time.Second {
					w.Errorf("the Conn has taken %v to close", took)
				}
				close(release)
				w.broker.Resume()
				synctest.Wait()
			})
		})
	}
}

// silent has the broker fall silent, and waits.
func silent(lasts time.Duration) func(*fixture) {
	return func(w *fixture) {
		w.broker.Stall()
		time.Sleep(lasts)
	}
}

// A hook that does not return keeps no stop for longer than it may last.
func TestAHookThatBlocksDoesNotHoldUpAStop(t *testing.T) {
	for name, trace := range map[string]func(block func()) consumer.Trace{
		"Settled": func(block func()) consumer.Trace {
			return consumer.Trace{Settled: func(context.Context, consumer.Settled) { block() }}
		},
		"Confirmed": func(block func()) consumer.Trace {
			return consumer.Trace{Confirmed: func(context.Context, consumer.Copied) { block() }}
		},
		"Copied": func(block func()) consumer.Trace {
			return consumer.Trace{Copied: func(context.Context, consumer.Copied) { block() }}
		},
		"Fetching": func(block func()) consumer.Trace {
			return consumer.Trace{Fetching: func(f consumer.Fetching) {
				if f.Prefetch == 0 {
					block()
				}
			}}
		},
		"Handled": func(block func()) consumer.Trace {
			return consumer.Trace{Handled: func(context.Context, consumer.Handled) { block() }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			onNewest(t, func(w *fixture) {
				release := make(chan struct{})
				c, stop := w.start(func(context.Context, *consumer.Delivery) error { return consumer.DeadLetter(errBroken) },
					consumer.Config{Concurrency: 2, Traces: []consumer.Trace{trace(func() { <-release })}})
				w.publish(5)
				time.Sleep(time.Second)
				began := time.Now()
				err := stop()
				if took := time.Since(began); took > 21*time.Second {
					w.Errorf("Run has taken %v to return, want DrainTimeout, which is 15 s, and 6 s at most", took)
				}
				if err == nil || !strings.Contains(err.Error(), "a hook of Config.Traces or the Logger") {
					w.Errorf("Run: %v, want that it names the hooks", err)
				}
				close(release)
				synctest.Wait()
				stop = running(c)
				time.Sleep(time.Minute)
				w.stopped(stop)
				w.has("orders")
				if left := slices.Compact(w.in("orders.dlq")); !slices.Equal(left, ids(5)) {
					w.Errorf("letters: %v", left)
				}
			})
		})
	}
}

// A copy is on its way when a handler that has ignored the stop returns at last.
func TestAHandlerThatReturnsAfterRunHarmsNothing(t *testing.T) {
	onNewest(t, func(w *fixture) {
		for range 20 {
			release := make(chan struct{})
			var runs atomic.Int32
			w.publish(4)
			_, stop := w.start(func(context.Context, *consumer.Delivery) error {
				if runs.Add(1)%2 == 1 {
					<-release
				}
				return consumer.DeadLetter(errBroken)
			}, consumer.Config{Concurrency: 4, DrainTimeout: time.Second})
			time.Sleep(time.Second)
			w.broker.Refuse("orders.dlq", true)
			w.publish(4)
			time.Sleep(time.Second)
			if err := stop(); err == nil {
				w.Error("Run does not tell of handlers that have not returned")
			}
			close(release)
			w.broker.Refuse("orders.dlq", false)
			synctest.Wait()
		}
	})
}
