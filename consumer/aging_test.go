package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// slowRuns notes the runs of a handler.
type slowRuns struct {
	mu       sync.Mutex
	begun    []string // ids, and the attempt where it is not the first
	finished []string
	dead     int // whose ctx had ended when they began
}

// handle is a run that takes so long, or until its ctx ends.
func (r *slowRuns) handle(ctx context.Context, d *consumer.Delivery, takes time.Duration) error {
	r.mu.Lock()
	text := d.ID
	if d.Attempt > 1 {
		text = fmt.Sprint(d.ID, " attempt ", d.Attempt)
	}
	r.begun = append(r.begun, text)
	if ctx.Err() != nil {
		r.dead++
	}
	r.mu.Unlock()
	select {
	case <-time.After(takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *slowRuns) finish(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finished = append(r.finished, id)
}

func (r *slowRuns) done() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.finished)
}

// Messages that are sent ahead wait for their key, or for a handler, for longer than the
// broker leaves a message to a consumer.
func TestMessagesThatWaitForSlowHandlers(t *testing.T) {
	for name, c := range map[string]struct {
		cfg     consumer.Config
		timeout time.Duration // of the queue
		takes   time.Duration
		n       int
	}{
		"one key":                      {consumer.Config{Concurrency: 4, KeyLimit: 1}, 0, time.Minute, 70},
		"one key, a large prefetch":    {consumer.Config{Concurrency: 4, KeyLimit: 1, Prefetch: 200}, 0, 40 * time.Second, 150},
		"one key, long handlers":       {consumer.Config{Concurrency: 4, KeyLimit: 1}, 0, 10 * time.Minute, 12},
		"one key, handlers of hours":   {consumer.Config{Concurrency: 4, KeyLimit: 1}, 4 * time.Hour, 90 * time.Minute, 6},
		"one key, a short timeout":     {consumer.Config{Concurrency: 4, KeyLimit: 1}, time.Minute, 2 * time.Second, 70},
		"one handler":                  {consumer.Config{Prefetch: 60}, 0, time.Minute, 70},
		"one handler, a short timeout": {consumer.Config{Prefetch: 100}, time.Minute, 2 * time.Second, 70},
		"batches":                      {consumer.Config{Concurrency: 2, KeyLimit: 1}, 0, time.Minute, 60},
	} {
		t.Run(name, func(t *testing.T) {
			slow := func(w *fixture) {
				cfg := c.cfg
				if c.timeout > 0 {
					w.orders = topology.WorkQueue{Name: "short", Type: w.orders.Type, Waits: w.orders.Waits, ConsumerTimeout: c.timeout}
					w.declare(w.orders)
				}
				r := &slowRuns{}
				w.publish(c.n, keyed("k"))
				var stop func() error
				if name == "batches" {
					_, stop = w.startBatch(w.orders, func(ctx context.Context, ds []*consumer.Delivery) error {
						for _, d := range ds {
							if err := r.handle(ctx, d, c.takes); err != nil {
								return err
							}
							r.finish(d.ID)
						}
						return nil
					}, consumer.Batch{Size: 10}, cfg)
				} else {
					_, stop = w.start(func(ctx context.Context, d *consumer.Delivery) error {
						err := r.handle(ctx, d, c.takes)
						if err == nil {
							r.finish(d.ID)
						}
						return err
					}, cfg)
				}
				for range 24 * 60 {
					if time.Sleep(time.Minute); r.done() == c.n {
						break
					}
				}
				w.stopped(stop)
				w.has(w.orders.Name)
				w.has(w.orders.Name + ".dlq")
				if r.dead > 0 {
					w.Errorf("%d handlers began with a ctx that had ended", r.dead)
				}
				if len(r.finished) != c.n {
					w.Errorf("%d of %d finished", len(r.finished), c.n)
				}
				for i, got := range r.finished {
					if c.cfg.KeyLimit > 0 && got != id(i) {
						w.Fatalf("%s finished as number %d, attempts and messages %v\n%s\n%s", got, i, r.begun, w.broker.Story(got), w.broker.Story(id(i)))
					}
				}
				if len(r.begun) > c.n+1 { // a handler of hours, whose time is not known, is told to end once
					w.Errorf("%d runs for %d messages", len(r.begun), c.n)
				}
			}
			on(t, "4.3", topology.Quorum, slow)
			if c.timeout == 0 { // 3.10 has no such argument
				on(t, "3.10", topology.Quorum, slow)
			} else {
				on(t, "4.0", topology.Quorum, slow)
			}
			if c.cfg.Prefetch == 0 { // what is fetched ahead is in hand on either type
				on(t, "4.3", topology.Classic, slow)
			}
		})
	}
}

// Messages of one key that fail in place keep later ones waiting for long: each of the 50
// that fail has its key for 90 seconds.
func TestRetryInPlaceKeepsTheOrderForHours(t *testing.T) {
	everywhere(t, func(w *fixture) {
		const n = 100
		w.orders = topology.WorkQueue{Name: "bills", Type: w.orders.Type, Waits: delay.Schedule{30 * time.Second, 30 * time.Second, 30 * time.Second, 30 * time.Second}}
		w.declare(w.orders)
		w.publish(n, keyed("k"))
		var got, want []string
		for i := range n {
			for attempt := 1; attempt == 1 || i%2 == 0 && attempt <= 4; attempt++ {
				want = append(want, fmt.Sprint(id(i), " ", attempt))
			}
		}
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			got = append(got, fmt.Sprint(d.ID, " ", d.Attempt))
			if slices.Index(numberedTo(n), d.ID)%2 == 0 && d.Attempt < 4 {
				return errBroken
			}
			return nil
		}, consumer.Config{Concurrency: 16, KeyLimit: 1, RetryInPlace: true})
		time.Sleep(2 * time.Hour)
		w.stopped(stop)
		w.has("bills")
		w.has("bills.dlq")
		if !slices.Equal(got, want) {
			w.Errorf("handled %v\nwant %v", got, want)
		}
	})
}

// An outage lasts for longer than a message is held. The messages take a minute after it.
func TestAnOutageOfAnHourKeepsTheOrderOfAKey(t *testing.T) {
	for name, size := range map[string]int{"one by one": 0, "batches": 5} {
		t.Run(name, func(t *testing.T) {
			columns := everywhere
			if size > 0 {
				columns = onEachEngine
			}
			columns(t, func(w *fixture) {
				const n = 60
				w.publish(n, keyed("k"))
				over := time.Now().Add(time.Hour)
				r := &slowRuns{}
				do := func(ctx context.Context, d *consumer.Delivery) error {
					if time.Now().Before(over) {
						return consumer.Hold(errAway)
					}
					defer r.finish(d.ID)
					return r.handle(ctx, d, time.Second)
				}
				cfg := consumer.Config{Concurrency: 2, KeyLimit: 1}
				var stop func() error
				if size > 0 {
					_, stop = w.startBatch(w.orders, func(ctx context.Context, ds []*consumer.Delivery) error {
						for _, d := range ds {
							d.Fail(do(ctx, d))
						}
						return nil
					}, consumer.Batch{Size: size}, cfg)
				} else {
					_, stop = w.start(do, cfg)
				}
				time.Sleep(90 * time.Minute)
				w.stopped(stop)
				w.has("orders")
				w.has("orders.dlq")
				if !slices.Equal(r.begun, numberedTo(n)) {
					w.Errorf("handled %v", r.begun)
				}
			})
		})
	}
}

// A long pause gives the messages in hand back once. If it gave them back each quarter of an
// hour, they would be letters after five hours.
func TestALongPauseKeepsOrderAndMakesNoLetters(t *testing.T) {
	for name, single := range map[string]bool{"keys": false, "a single active consumer": true} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(w *fixture) {
				const n = 30
				cfg := consumer.Config{Concurrency: 2, KeyLimit: 1}
				if single {
					w.orders = topology.WorkQueue{Name: "bills", Type: w.orders.Type, Waits: w.orders.Waits, SingleActiveConsumer: true}
					w.declare(w.orders)
					cfg = consumer.Config{Concurrency: 1, Prefetch: 10}
				}
				w.publish(n, keyed("k"))
				r := &slowRuns{}
				var consumers atomic.Int32 // that began to fetch
				cfg.Traces = []consumer.Trace{{Fetching: func(f consumer.Fetching) {
					if f.Prefetch > 0 {
						consumers.Add(1)
					}
				}}}
				c, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error { return r.handle(ctx, d, time.Second) }, cfg)
				time.Sleep(9500 * time.Millisecond)
				c.Pause()
				before := consumers.Load()
				time.Sleep(6 * time.Hour)
				w.has(w.orders.Name + ".dlq")
				if q, _ := w.broker.Queue(w.orders.Name); len(q.Ready) < 15 || len(q.Unacked) > 0 {
					w.Errorf("%d messages are in the queue and %d in hand, want all in the queue that no handler had", len(q.Ready), len(q.Unacked))
				}
				if n := consumers.Load() - before; n > 0 {
					w.Errorf("%d consumers began in the pause, and each of them returns the messages once more", n)
				}
				if status, err := health(c); status != "degraded" {
					w.Errorf("paused: %s, %v", status, err)
				}
				c.Resume()
				time.Sleep(time.Minute)
				if status, err := health(c); status != "healthy" {
					w.Errorf("resumed: %s, %v", status, err)
				}
				w.stopped(stop)
				w.has(w.orders.Name)
				w.has(w.orders.Name + ".dlq")
				if !slices.Equal(r.begun, numberedTo(n)) {
					w.Errorf("handled %v", r.begun)
				}
			})
		})
	}
}

// The first message of a key lacks a little of its wait when a long pause begins, and its handler
// has not run. Only the end of the session puts it back into its place.
func TestALongPauseKeepsTheOrderOfAMessageThatIsNotDue(t *testing.T) {
	onQuorumQueues(t, func(w *fixture) {
		w.publish(1, keyed("k"), func(m *rehoptest.Message) {
			m.Exchange, m.RoutingKey = "orders.rehop.return", "orders@1"
			m.Headers[header.Queue], m.Headers[header.Attempts] = "orders", int64(1)
			m.Headers[header.Due] = time.Now().Add(9 * time.Second).UnixMilli()
		})
		w.publish(5, keyed("k"))
		r := &slowRuns{}
		c, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error { return r.handle(ctx, d, time.Second) }, consumer.Config{Concurrency: 2, KeyLimit: 1})
		time.Sleep(5 * time.Second)
		c.Pause()
		time.Sleep(20 * time.Minute)
		c.Resume()
		time.Sleep(time.Minute)
		w.stopped(stop)
		if want := append([]string{"m0 attempt 2"}, numberedTo(6)[1:]...); !slices.Equal(r.begun, want) {
			w.Errorf("handled %v, want %v", r.begun, want)
		}
	})
}

// A lane whose handlers are all taken by a higher one for hours loses nothing. If its messages
// went back each quarter of an hour, they would be letters after five hours.
func TestALaneThatWaitsForHours(t *testing.T) {
	on(t, "4.0", topology.Quorum, func(w *fixture) {
		lanes := topology.Lanes{Name: "sms", Type: w.orders.Type, Lanes: []topology.Lane{{Name: "high"}, {Name: "low"}}}
		w.declare(lanes)
		w.orders.Name = "sms.low"
		w.publish(20)
		w.orders.Name = "sms.high"
		w.publish(6 * 60 * 2)
		r := &slowRuns{}
		_, stop := w.startOn(lanes, func(ctx context.Context, d *consumer.Delivery) error { return r.handle(ctx, d, time.Minute) }, consumer.Config{Concurrency: 2})
		time.Sleep(7 * time.Hour)
		w.stopped(stop)
		w.has("sms.low")
		w.has("sms.low.dlq")
		w.has("sms.high.dlq")
		if n := len(r.begun); n != 20+6*60*2 {
			w.Errorf("%d runs", n)
		}
	})
}

// A lane of its own order is starved: its messages go back a few times, and never become
// letters.
func TestALaneInOrderThatWaitsForHours(t *testing.T) {
	for name, single := range map[string]bool{"keys": false, "a single active consumer": true} {
		t.Run(name, func(t *testing.T) {
			on(t, "4.0", topology.Quorum, func(w *fixture) {
				lanes := topology.Lanes{Name: "sms", Type: w.orders.Type, SingleActiveConsumer: single, Lanes: []topology.Lane{{Name: "high"}, {Name: "low"}}}
				w.declare(lanes)
				w.orders.Name = "sms.low"
				w.publish(20, keyed("k"))
				w.orders.Name = "sms.high"
				w.publish(6 * 60 * 2)
				r := &slowRuns{}
				cfg := consumer.Config{Concurrency: 2}
				if !single {
					cfg.KeyLimit = 1
				}
				_, stop := w.startOn(lanes, func(ctx context.Context, d *consumer.Delivery) error { return r.handle(ctx, d, time.Minute) }, cfg)
				time.Sleep(7 * time.Hour)
				w.stopped(stop)
				w.has("sms.low")
				w.has("sms.low.dlq")
				w.has("sms.high.dlq")
				if n := len(r.begun); n != 20+6*60*2 {
					w.Errorf("%d runs", n)
				}
			})
		})
	}
}

// The queue of others has a delivery limit that rehop does not see, and no dead-letter
// exchange: a message that comes back too often is lost.
func TestMessagesOfOthersThatWaitForSlowHandlers(t *testing.T) {
	for limit, n := range map[int]int{0: 250, 3: 60} { // 0: none, or that of the broker
		onQuorumQueues(t, func(w *fixture) {
			args := amqp.Table{"x-queue-type": "quorum"}
			if limit > 0 {
				args["x-delivery-limit"] = limit
			}
			w.raw(func(ch *amqp.Channel) error {
				_, err := ch.QueueDeclare("theirs", true, false, false, false, args)
				return err
			})
			w.orders.Name = "theirs"
			w.publish(n, keyed("k"))
			r := &slowRuns{}
			_, stop := w.startOn(topology.Route{Queue: "theirs"}, func(ctx context.Context, d *consumer.Delivery) error {
				defer r.finish(d.ID)
				return r.handle(ctx, d, time.Minute)
			}, consumer.Config{Concurrency: 4, KeyLimit: 1, Prefetch: 200})
			for range 24 * 60 {
				if time.Sleep(time.Minute); r.done() == n {
					break
				}
			}
			w.stopped(stop)
			w.has("theirs")
			if len(r.finished) != n {
				w.Errorf("%d of %d finished", len(r.finished), n)
			}
		})
	}
}

// A message that has come back half as often as the broker's own limit allows waits for a slow handler of its
// key, so the session ends to begin anew. No copy of it goes anywhere that the session would have to wait for.
func TestASessionOfOthersEndsWithoutCopies(t *testing.T) {
	on(t, "3.10", topology.Quorum, func(w *fixture) {
		w.raw(func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare("theirs", true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
			return err
		})
		w.orders.Name = "theirs"
		w.publish(2, keyed("k"))
		w.raw(func(ch *amqp.Channel) error {
			for range 2 * 10 {
				m, _, err := ch.Get("theirs", false)
				if err = errors.Join(err, m.Nack(false, true)); err != nil {
					return err
				}
			}
			return nil
		})
		r := &slowRuns{}
		took := map[string]time.Duration{id(0): 20 * time.Minute, id(1): time.Second}
		_, stop := w.startOn(topology.Route{Queue: "theirs"}, func(ctx context.Context, d *consumer.Delivery) error {
			defer r.finish(d.ID)
			return r.handle(ctx, d, took[d.ID])
		}, consumer.Config{Concurrency: 4, KeyLimit: 1, Prefetch: 10})
		time.Sleep(21 * time.Minute)
		if r.done() != 2 {
			w.Errorf("a minute after the slow handler %d of 2 are done", r.done())
		}
		w.stopped(stop)
		w.has("theirs")
	})
}

// A handler hangs, and messages of its key wait behind it. Those of other keys go on.
func TestAHandlerThatHangsKeepsItsKeyAlone(t *testing.T) {
	on(t, "4.3", topology.Quorum, func(w *fixture) {
		w.publish(3, keyed("bad"))
		free, began := make(chan struct{}), time.Now()
		var mu sync.Mutex
		perHour := map[int]int{}
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			if d.OrderKey == "bad" {
				<-free
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			perHour[int(time.Since(began)/time.Hour)]++
			return nil
		}, consumer.Config{Concurrency: 16, KeyLimit: 1})
		for i := range 12 * 60 {
			time.Sleep(time.Minute)
			w.publish(1, keyed(fmt.Sprint("good", i%10)))
		}
		w.has("orders.dlq")
		close(free)
		time.Sleep(time.Hour)
		w.stopped(stop)
		w.has("orders")
		w.has("orders.dlq")
		mu.Lock()
		defer mu.Unlock()
		for hour := 1; hour < 12; hour++ {
			if perHour[hour] < 55 {
				w.Errorf("%d messages of other keys in hour %d, want 60: %v", perHour[hour], hour, perHour)
			}
		}
	})
}

// The handlers of one key take ten times as long as those of another: 100 minutes in all.
func TestKeysOfDifferentSpeed(t *testing.T) {
	onQuorumQueues(t, func(w *fixture) {
		const n = 200
		for i := range n {
			w.publish(1, keyed(fmt.Sprint(i%2)))
		}
		o := newOrdered()
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			takes := time.Minute
			if d.OrderKey == "1" {
				takes = 6 * time.Second
			}
			o.handle(d.OrderKey, d.ID, takes)
			return nil
		}, consumer.Config{Concurrency: 8, KeyLimit: 1})
		time.Sleep(150 * time.Minute)
		w.stopped(stop)
		w.has("orders")
		w.has("orders.dlq")
		for i := range n {
			key, nth := fmt.Sprint(i%2), i/2
			if got := o.got[key]; len(got) != n/2 || got[nth] != id(i) {
				w.Fatalf("key %s: %v", key, got)
			}
		}
	})
}

// endsWithTheConn closes the Conn, and checks that Run returns for it at once.
func (w *fixture) endsWithTheConn(ended <-chan error) {
	w.Helper()
	if err := w.conn.Close(); err != nil {
		w.Error(err)
	}
	closed := time.Now()
	if err := <-ended; !errors.Is(err, connection.ErrClosed) || time.Since(closed) > 0 {
		w.Errorf("Run returned %v after %v, want ErrClosed at once", err, time.Since(closed))
	}
}

// The Conn is closed while a consumer that keeps an order is paused.
func TestRunEndsWithTheConnInALongPause(t *testing.T) {
	onNewest(t, func(w *fixture) {
		w.publish(10, keyed("k"))
		c, err := consumer.New(w.conn, w.orders, func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{KeyLimit: 1})
		if err != nil {
			w.Fatal(err)
		}
		c.Pause()
		ended := make(chan error, 1)
		go func() { ended <- c.Run(context.Background()) }()
		time.Sleep(time.Hour)
		w.endsWithTheConn(ended)
	})
}

// After an outage of hours consuming is as wide as before.
func TestThePrefetchRecovers(t *testing.T) {
	onBroker(t, rehoptest.Config{Version: "4.3"}, topology.Quorum, func(w *fixture) {
		over := time.Now().Add(2 * time.Hour)
		o := newOrdered()
		for i := range 1000 {
			w.publish(1, keyed(fmt.Sprint(i%100)))
		}
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			if time.Now().Before(over) {
				return consumer.Hold(errAway)
			}
			o.handle(d.OrderKey, d.ID, time.Second)
			return nil
		}, consumer.Config{Concurrency: 50, KeyLimit: 1})
		time.Sleep(2*time.Hour + 5*time.Minute)
		o.mu.Lock()
		o.widest = 0
		o.mu.Unlock()
		for i := range 4000 {
			w.publish(1, keyed(fmt.Sprint(i%100)))
		}
		time.Sleep(10 * time.Minute)
		o.mu.Lock()
		if o.widest != 50 {
			w.Errorf("%d handlers at a time minutes after the outage, want 50", o.widest)
		}
		o.mu.Unlock()
		w.stopped(stop)
		w.has("orders")
		w.has("orders.dlq")
	})
}

// numberedTo returns the ids of the first n messages as they were published.
func numberedTo(n int) (all []string) {
	for i := range n {
		all = append(all, id(i))
	}
	return all
}
