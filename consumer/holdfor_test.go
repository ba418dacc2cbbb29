package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/topology"
)

var errBusy = errors.New("429 Too Many Requests")

// told is what handlers have been told, in the order of their runs.
type told struct {
	mu    sync.Mutex
	began time.Time
	runs  []string
}

func newTold() *told { return &told{began: time.Now()} }

// note notes a run, and returns how many came before for the message.
func (o *told) note(d *consumer.Delivery) (before int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.runs {
		if strings.HasPrefix(r, d.ID+" ") {
			before++
		}
	}
	o.runs = append(o.runs, fmt.Sprintf("%s attempt %d, %v", d.ID, d.Attempt, time.Since(o.began).Round(time.Second)))
	return before
}

func (o *told) all() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.runs)
}

// In order a message that is to come back later keeps its place, its attempt and its key, and
// messages of other keys go on. Twice as many answers as there are attempts make no letter.
func TestHoldForKeepsPlaceAndAttempt(t *testing.T) {
	busy := func(o *told) consumer.Handler {
		return func(_ context.Context, d *consumer.Delivery) error {
			if o.note(d) < 6 && d.ID == id(0) {
				return consumer.HoldFor(20*time.Second, errBusy)
			}
			return nil
		}
	}
	for name, cfg := range map[string]consumer.Config{
		"keys":           {Concurrency: 4, KeyLimit: 1},
		"keys, in place": {Concurrency: 4, KeyLimit: 1, RetryInPlace: true},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(w *fixture) {
				w.publish(2, keyed("k"))
				w.publish(1, keyed("other"))
				o := newTold()
				c, stop := w.start(busy(o), cfg)
				time.Sleep(time.Minute)
				if err := c.Health(); err != nil {
					w.Errorf("Health: %v, want nil: the service answers, and other keys go on", err)
				}
				time.Sleep(5 * time.Minute)
				w.stopped(stop)
				got := o.all()
				first := slices.DeleteFunc(slices.Clone(got), func(r string) bool { return r == "m2 attempt 1, 0s" })
				want := []string{"m0 attempt 1, 0s", "m0 attempt 1, 20s", "m0 attempt 1, 40s", "m0 attempt 1, 1m0s", "m0 attempt 1, 1m20s", "m0 attempt 1, 1m40s", "m0 attempt 1, 2m0s", "m1 attempt 1, 2m0s"}
				if !slices.Equal(first, want) || len(got) != len(want)+1 {
					w.Errorf("runs: %q\nwant %q, and m2 at once", got, want)
				}
				if s := w.journal.of(id(0)); len(s) != 1 || s[0].Disposition != consumer.DispositionDone {
					w.Errorf("settled as %+v, want once, done", s)
				}
				w.truthful()
			})
		})
	}
	t.Run("single active consumer", func(t *testing.T) {
		onQuorumQueues(t, func(w *fixture) {
			w.orders = topology.WorkQueue{Name: "single", Type: topology.Quorum, Waits: w.orders.Waits, SingleActiveConsumer: true}
			w.declare(w.orders)
			w.publish(2)
			o := newTold()
			_, stop := w.start(busy(o), consumer.Config{})
			time.Sleep(5 * time.Minute)
			w.stopped(stop)
			want := []string{"m0 attempt 1, 0s", "m0 attempt 1, 20s", "m0 attempt 1, 40s", "m0 attempt 1, 1m0s", "m0 attempt 1, 1m20s", "m0 attempt 1, 1m40s", "m0 attempt 1, 2m0s", "m1 attempt 1, 2m0s"}
			if got := o.all(); !slices.Equal(got, want) {
				w.Errorf("runs: %q\nwant %q", got, want)
			}
			w.truthful()
		})
	})
}

// A failure between answers spends the attempt that it is, and in place no answer changes the count.
func TestHoldForBetweenAttemptsInPlace(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		w.publish(1, keyed("k"))
		o := newTold()
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			if o.note(d)%2 == 0 {
				return consumer.HoldFor(10*time.Second, errBusy)
			}
			return errBroken
		}, consumer.Config{KeyLimit: 1, RetryInPlace: true})
		time.Sleep(10 * time.Minute)
		w.stopped(stop)
		want := []string{"m0 attempt 1, 0s", "m0 attempt 1, 10s", "m0 attempt 2, 1m10s", "m0 attempt 2, 1m20s", "m0 attempt 3, 6m20s", "m0 attempt 3, 6m30s"}
		if got := o.all(); !slices.Equal(got, want) {
			w.Errorf("runs: %q\nwant %q", got, want)
		}
		w.has("orders.dlq", id(0))
		w.truthful()
	})
}

// However many messages are to come back later, and however often, there is no outage: the
// service answers. Each runs again at its times.
func TestHoldForIsNoOutage(t *testing.T) {
	const times, n = 30, 12
	for _, batches := range []bool{false, true} {
		t.Run(map[bool]string{false: "messages", true: "batches"}[batches], func(t *testing.T) {
			onNewest(t, func(w *fixture) {
				var log lines
				w.publish(n)
				o := newTold()
				handler := func(_ context.Context, d *consumer.Delivery) error {
					if o.note(d) < times {
						return consumer.HoldFor(time.Second, errBusy)
					}
					return nil
				}
				cfg := consumer.Config{Concurrency: 4, Logger: log.logger()}
				var c *consumer.Consumer
				var stop func() error
				if batches {
					c, stop = w.startBatch(w.orders, func(ctx context.Context, batch []*consumer.Delivery) error {
						for _, d := range batch {
							d.Fail(handler(ctx, d))
						}
						return nil
					}, consumer.Batch{Size: 2}, cfg)
				} else {
					c, stop = w.start(handler, cfg)
				}
				for range 3 * n * times / 4 {
					time.Sleep(500 * time.Millisecond)
					if status, err := health(c); status != "healthy" && !strings.Contains(err.Error(), "every slot") {
						w.Errorf("Health: %v", err)
					}
				}
				w.stopped(stop)
				if got := o.all(); len(got) != n*(times+1) {
					w.Fatalf("%d runs in %v, want %d", len(got), time.Since(o.began), n*(times+1))
				}
				for i := range n { // when a message begins depends on the batches that its fellows came in
					var at []time.Duration
					for _, run := range o.all() {
						if of, when, _ := strings.Cut(run, " attempt 1, "); of == id(i) {
							d, err := time.ParseDuration(when)
							if err != nil {
								w.Fatal(err)
							}
							at = append(at, d)
						}
					}
					if len(at) != times+1 || at[times]-at[0] != times*time.Second {
						w.Errorf("runs of %s: %v, want %d with 1 s between them", id(i), at, times+1)
					}
				}
				if found := log.with("outage"); len(found) > 0 {
					w.Errorf("%q, want no outage", found)
				}
				if found := log.with("held, for the time that the handler has named", "again_in=1s", errBusy.Error()); len(found) == 0 {
					w.Errorf("no record of a message that is held, and for how long")
				}
				w.has("orders")
				w.truthful()
			})
		})
	}
}

func TestHoldForEndsAnOutage(t *testing.T) {
	onNewest(t, func(w *fixture) {
		var log lines
		over := time.Now().Add(5 * time.Minute)
		var mu sync.Mutex
		answered := map[string]time.Time{}
		w.publish(8)
		c, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			at, ok := answered[d.ID]
			switch {
			case time.Now().Before(over):
				return consumer.Hold(errAway)
			case !ok:
				answered[d.ID] = time.Now()
				return consumer.HoldFor(time.Minute, errBusy)
			case time.Since(at) < time.Minute:
				w.Errorf("%s runs again after %v, want 1m", d.ID, time.Since(at))
			}
			return nil
		}, consumer.Config{Concurrency: 4, Logger: log.logger()})
		time.Sleep(4 * time.Minute)
		if status, err := health(c); status != "degraded" {
			w.Errorf("in the outage: %s, %v", status, err)
		}
		time.Sleep(90 * time.Second)
		if found := log.with("outage over"); len(found) != 1 {
			w.Errorf("half a minute after the first answer: %d records that the outage is over, want 1", len(found))
		}
		time.Sleep(5 * time.Minute)
		w.stopped(stop)
		w.has("orders")
		w.truthful()
	})
}

// A time that ends past the hold limit keeps no message for longer: in order it goes back to its
// place at the limit, and a warning says so; without an order it is put off.
func TestHoldForBeyondTheHoldLimit(t *testing.T) {
	long := func(o *told, d time.Duration) consumer.Handler {
		return func(_ context.Context, m *consumer.Delivery) error {
			if o.note(m) < 2 && m.ID == id(0) {
				return consumer.HoldFor(d, errBusy)
			}
			return nil
		}
	}
	t.Run("in order", func(t *testing.T) {
		everywhere(t, func(w *fixture) {
			var log lines
			w.publish(2, keyed("k"))
			o := newTold()
			_, stop := w.start(long(o, 20*time.Minute), consumer.Config{Concurrency: 4, KeyLimit: 1, Logger: log.logger()})
			time.Sleep(time.Hour)
			w.stopped(stop)
			got := o.all()
			want := []string{"m0 attempt 1, 0s", "m0 attempt 1, 15m", "m0 attempt 1, 30m", "m1 attempt 1, 30m"}
			if len(got) != len(want) {
				w.Fatalf("runs: %q, want %q", got, want)
			}
			for i := range want { // a new session takes some time
				if !strings.HasPrefix(got[i], want[i]) {
					w.Errorf("run %d: %q, want %q", i, got[i], want[i])
				}
			}
			if found := log.with("level=WARN", "hold limit", "asked=20m0s", "hold_limit=15m0s", "held=15m0s", errBusy.Error()); len(found) == 0 {
				w.Errorf("no warning that names the time and the bound in %q", log.with("held"))
			}
			s := w.journal.of(id(0))
			if len(s) != 3 || s[0].Disposition != consumer.DispositionRequeued || s[1].Disposition != consumer.DispositionRequeued || s[2].Disposition != consumer.DispositionDone {
				w.Errorf("settled as %+v, want back twice, then done", s)
			}
			w.has("orders.dlq")
			w.truthful()
		})
	})
	t.Run("without an order", func(t *testing.T) {
		everywhere(t, func(w *fixture) {
			var log lines
			w.publish(2)
			o := newTold()
			_, stop := w.start(long(o, 20*time.Minute), consumer.Config{Logger: log.logger()})
			time.Sleep(time.Hour)
			w.stopped(stop)
			want := []string{"m0 attempt 1, 0s", "m1 attempt 1, 0s", "m0 attempt 1, 20m0s", "m0 attempt 1, 40m0s"}
			if got := o.all(); !slices.Equal(got, want) {
				w.Errorf("runs: %q\nwant %q", got, want)
			}
			snoozed := 0
			for _, s := range w.journal.of(id(0)) {
				if s.Snoozed {
					snoozed++
				}
			}
			if snoozed != 2 {
				w.Errorf("settled as %+v, want 2 snoozes", w.journal.of(id(0)))
			}
			if found := log.with("message snoozed, it cannot be held for so long", "for=20m0s", "hold_limit=15m0s", errBusy.Error()); len(found) == 0 {
				w.Errorf("no record that names the time and the bound in %q", log.with("snoozed"))
			}
			w.has("orders.dlq")
			w.truthful()
		})
	})
}

// A pause lets the time pass, and begins with no message; a stop and a lost session end the holding.
func TestHoldForInAPauseAStopAndALostSession(t *testing.T) {
	held := func(o *told) consumer.Handler {
		return func(_ context.Context, d *consumer.Delivery) error {
			if o.note(d) == 0 {
				return consumer.HoldFor(2*time.Minute, errBusy)
			}
			return nil
		}
	}
	for _, c := range []struct {
		rule string
		then func(w *fixture, c *consumer.Consumer, stop func() error)
		want []string
	}{
		{"a pause that is over before", func(_ *fixture, c *consumer.Consumer, _ func() error) {
			c.Pause()
			time.Sleep(30 * time.Second)
			c.Resume()
		}, []string{"m0 attempt 1, 0s", "m0 attempt 1, 2m0s"}},
		{"a pause that is over later", func(_ *fixture, c *consumer.Consumer, _ func() error) {
			c.Pause()
			time.Sleep(3 * time.Minute)
			c.Resume()
		}, []string{"m0 attempt 1, 0s", "m0 attempt 1, 4m0s"}},
		{"a stop", func(w *fixture, _ *consumer.Consumer, stop func() error) {
			began := time.Now()
			w.stopped(stop)
			if took := time.Since(began); took > 10*time.Second {
				w.Errorf("the stop took %v", took)
			}
			w.has("orders", id(0))
		}, []string{"m0 attempt 1, 0s"}},
		{"a lost session", func(w *fixture, _ *consumer.Consumer, _ func() error) { w.broker.Cut("") }, []string{"m0 attempt 1, 0s", "m0 attempt 1, 1m"}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			for _, cfg := range []consumer.Config{{Concurrency: 2}, {Concurrency: 2, KeyLimit: 1}} {
				t.Run(fmt.Sprint("KeyLimit ", cfg.KeyLimit), func(t *testing.T) {
					onEachEngine(t, func(w *fixture) {
						w.publish(1, keyed("k"))
						o := newTold()
						one, stop := w.start(held(o), cfg)
						time.Sleep(time.Minute)
						c.then(w, one, stop)
						time.Sleep(10 * time.Minute)
						w.stopped(stop)
						got := o.all()
						if len(got) != len(c.want) {
							w.Fatalf("runs: %q, want %q", got, c.want)
						}
						for i, want := range c.want {
							if !strings.HasPrefix(got[i], want) {
								w.Errorf("run %d: %q, want %q", i, got[i], want)
							}
						}
						w.has("orders.dlq")
						w.truthful()
					})
				})
			}
		})
	}
}

// Each message of a batch is held for its own time, whether the error is its own, by a rule, or
// of the call; in order, none is put off.
func TestHoldForInBatches(t *testing.T) {
	rule, err := consumer.ClassifyBatch(consumer.Rule{Is: errBusy, Then: consumer.Outcome{Action: consumer.ActionHoldFor, After: 20 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rule    string
		handler func(o *told) consumer.BatchHandler
		want    []string
	}{
		{"an error of its own", func(o *told) consumer.BatchHandler {
			return func(_ context.Context, batch []*consumer.Delivery) error {
				for _, d := range batch {
					n := slices.Index([]string{id(0), id(1)}, d.ID)
					if o.note(d) < 2 && n >= 0 {
						d.Fail(consumer.HoldFor([]time.Duration{20 * time.Second, 50 * time.Second}[n], errBusy))
					}
				}
				return nil
			}
		}, []string{"m0 attempt 1, 0s", "m0 attempt 1, 20s", "m0 attempt 1, 40s", "m1 attempt 1, 0s", "m1 attempt 1, 1m40s", "m1 attempt 1, 50s", "m2 attempt 1, 0s"}},
		{"the error of the call is of each", func(o *told) consumer.BatchHandler {
			return func(_ context.Context, batch []*consumer.Delivery) error {
				before := 0
				for _, d := range batch {
					before = o.note(d)
				}
				if before == 0 {
					return consumer.HoldFor(20*time.Second, errBusy)
				}
				return nil
			}
		}, []string{"m0 attempt 1, 0s", "m0 attempt 1, 20s", "m1 attempt 1, 0s", "m1 attempt 1, 20s", "m2 attempt 1, 0s", "m2 attempt 1, 20s"}},
		{"by a rule", func(o *told) consumer.BatchHandler {
			return rule(func(_ context.Context, batch []*consumer.Delivery) error {
				before := 0
				for _, d := range batch {
					before = o.note(d)
				}
				if before == 0 {
					return errBusy
				}
				return nil
			})
		}, []string{"m0 attempt 1, 0s", "m0 attempt 1, 20s", "m1 attempt 1, 0s", "m1 attempt 1, 20s", "m2 attempt 1, 0s", "m2 attempt 1, 20s"}},
		{"past the hold limit each goes back to its place", func(o *told) consumer.BatchHandler {
			return func(_ context.Context, batch []*consumer.Delivery) error {
				for _, d := range batch {
					if o.note(d) < 1 && d.ID == id(0) {
						d.Fail(consumer.HoldFor(time.Hour, errBusy))
					}
				}
				return nil
			}
		}, []string{"m0 attempt 1, 0s", "m0 attempt 1, 15m", "m1 attempt 1, 0s", "m2 attempt 1, 0s"}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			onEachEngine(t, func(w *fixture) {
				var log lines
				for _, key := range []string{"a", "b", "c"} {
					w.publish(1, keyed(key))
				}
				o := newTold()
				_, stop := w.startBatch(w.orders, c.handler(o), consumer.Batch{Size: 3, Linger: time.Second}, consumer.Config{KeyLimit: 1, Logger: log.logger()})
				time.Sleep(40 * time.Minute)
				w.stopped(stop)
				got := o.all()
				slices.Sort(got)
				if len(got) != len(c.want) {
					w.Fatalf("runs: %q, want %q", got, c.want)
				}
				for i, want := range c.want {
					if !strings.HasPrefix(got[i], want) {
						w.Errorf("run %d: %q, want %q", i, got[i], want)
					}
				}
				if found := log.with("outage"); len(found) > 0 {
					w.Errorf("%q, want no outage", found)
				}
				w.has("orders.dlq")
				w.truthful()
			})
		})
	}
}

// Without an order a message of a batch that cannot be held for so long is put off, and its
// neighbours are settled.
func TestHoldForPutsOffAMessageOfABatch(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		w.publish(3)
		o := newTold()
		_, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
			for _, d := range batch {
				if o.note(d) == 0 && d.ID == id(1) {
					d.Fail(consumer.HoldFor(20*time.Minute, errBusy))
				}
			}
			return nil
		}, consumer.Batch{Size: 3}, consumer.Config{})
		time.Sleep(40 * time.Minute)
		w.stopped(stop)
		s := w.journal.of(id(1))
		if len(s) < 2 || !s[0].Snoozed || s[len(s)-1].Disposition != consumer.DispositionDone {
			w.Errorf("settled as %+v, want snoozed, then done", s)
		}
		if got := o.all(); len(got) != 4 || got[3] != "m1 attempt 1, 20m0s" {
			w.Errorf("runs: %q", got)
		}
		w.truthful()
	})
}

// A consumer of dead letters has no other place for them: it holds a letter for the time too.
func TestHoldForOfLetters(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		w.orders.Name = "orders.dlq" // for publish
		w.publish(1)
		o := newTold()
		_, stop := w.startOn(topology.DeadLetterQueue{Name: "orders.dlq"}, func(_ context.Context, d *consumer.Delivery) error {
			switch o.note(d) {
			case 0, 1:
				return consumer.HoldFor(3*time.Second, errBusy)
			case 2:
				return consumer.HoldFor(time.Hour, errBusy)
			}
			return nil
		}, consumer.Config{})
		time.Sleep(2 * time.Hour)
		w.stopped(stop)
		got := o.all()
		if len(got) != 4 || got[1] != "m0 attempt 1, 3s" || got[2] != "m0 attempt 1, 6s" || !strings.HasPrefix(got[3], "m0 attempt 1, 1h0m") {
			w.Errorf("runs: %q, want them after 0s, 3s, 6s and an hour more", got)
		}
		w.has("orders.dlq")
	})
}

// A time that has gone by asks for nothing: the pauses of Hold grow, and there is no outage.
func TestHoldForATimeGoneBy(t *testing.T) {
	onNewest(t, func(w *fixture) {
		var log lines
		w.publish(4)
		o := newTold()
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			o.note(d)
			return consumer.HoldFor(-time.Second, errBusy)
		}, consumer.Config{Concurrency: 4, Logger: log.logger()})
		time.Sleep(10 * time.Minute)
		w.stopped(stop)
		if n := len(o.all()); n < 4*15 || n > 4*60 {
			w.Errorf("%d runs of 4 messages in 10 min, want growing pauses of up to half a minute", n)
		}
		if found := log.with("outage"); len(found) > 0 {
			w.Errorf("%q, want no outage", found)
		}
		w.truthful()
	})
}

// A wrapper and Fail hand the outcome on, and OutcomeOf tells it to hooks.
func TestHoldForIsToldToHooks(t *testing.T) {
	onNewest(t, func(w *fixture) {
		var mu sync.Mutex
		var got []consumer.Outcome
		w.publish(1)
		_, stop := w.start(consumer.Mux{"": func(_ context.Context, d *consumer.Delivery) error {
			if d.Err() == nil {
				mu.Lock()
				defer mu.Unlock()
				if len(got) == 0 {
					d.Fail(fmt.Errorf("gateway: %w", consumer.HoldFor(time.Minute, errBusy)))
				}
			}
			return nil
		}}.Handle, consumer.Config{Traces: []consumer.Trace{{Handled: func(_ context.Context, h consumer.Handled) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, consumer.OutcomeOf(h.Err))
		}}}})
		time.Sleep(2 * time.Minute)
		w.stopped(stop)
		mu.Lock()
		defer mu.Unlock()
		if want := []consumer.Outcome{{Action: consumer.ActionHoldFor, After: time.Minute}, {Action: consumer.ActionDone}}; !slices.Equal(got, want) {
			w.Errorf("hooks were told %v, want %v", got, want)
		}
	})
}
