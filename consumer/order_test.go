package consumer_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// ordered is what handlers of messages with keys have seen.
type ordered struct {
	mu     sync.Mutex
	inHand map[string]int
	most   map[string]int      // at a time, by key
	got    map[string][]string // ids, by key, as they were begun
	all    int                 // at a time
	widest int
}

func newOrdered() *ordered {
	return &ordered{inHand: map[string]int{}, most: map[string]int{}, got: map[string][]string{}}
}

// handle handles a message for a while.
func (o *ordered) handle(key, id string, d time.Duration) {
	o.mu.Lock()
	o.inHand[key]++
	o.all++
	o.widest = max(o.widest, o.all)
	o.most[key] = max(o.most[key], o.inHand[key])
	o.got[key] = append(o.got[key], id)
	o.mu.Unlock()
	time.Sleep(d)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inHand[key]--
	o.all--
}

func keyed(key string) func(*rehoptest.Message) {
	return func(m *rehoptest.Message) { m.Headers = amqp.Table{header.OrderKey: key} }
}

func TestMessagesOfAKeyAreHandledOneByOne(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		o := newOrdered()
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			o.handle(d.OrderKey, d.ID, time.Duration(rand.IntN(100))*time.Millisecond)
			return nil
		}, consumer.Config{Concurrency: 8, KeyLimit: 1})
		want := map[string][]string{}
		for n := range 300 {
			key := fmt.Sprintf("k%d", n%7)
			if n%3 == 0 {
				key = "hot"
			}
			w.publish(1, keyed(key))
			want[key] = append(want[key], id(n))
		}
		time.Sleep(time.Minute)
		w.stopped(stop)
		for key := range want {
			if !slices.Equal(o.got[key], want[key]) || o.most[key] != 1 {
				w.Errorf("key %s: %d at a time, in the order %v", key, o.most[key], few(o.got[key]))
			}
		}
		if o.widest < 4 {
			w.Errorf("%d keys were handled at a time, want several", o.widest)
		}
		w.has("orders")
		w.truthful()
	})
}

func TestAKeyHasItsShare(t *testing.T) {
	onNewest(t, func(w *fixture) {
		o := newOrdered()
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			tenant, _, _ := strings.Cut(string(d.Body), ".")
			o.handle(tenant, d.ID, 50*time.Millisecond)
			return nil
		}, consumer.Config{Concurrency: 8, KeyLimit: 3, Key: func(d *consumer.Delivery) string {
			tenant, _, _ := strings.Cut(string(d.Body), ".")
			if tenant == "panic" {
				panic("no tenant")
			}
			return tenant
		}})
		for n := range 60 {
			tenant := "loud"
			if n >= 40 {
				tenant = []string{"quiet", "", "panic"}[n%3]
			}
			w.publish(1, func(m *rehoptest.Message) { m.Body = []byte(tenant + ".x") })
		}
		time.Sleep(time.Minute)
		for _, tenant := range []string{"", "panic"} {
			w.publish(20, func(m *rehoptest.Message) { m.Body = []byte(tenant + ".x") })
			time.Sleep(time.Minute)
		}
		w.stopped(stop)
		if o.most["loud"] != 3 || o.widest != 8 {
			w.Errorf("%d of the loud tenant at a time and %d in all, want 3 and 8", o.most["loud"], o.widest)
		}
		if o.most[""] != 8 || o.most["panic"] != 8 {
			w.Errorf("%d and %d messages without a key at a time, want no limit for them", o.most[""], o.most["panic"])
		}
		w.has("orders")
	})
}

// A message that waits for its next attempt lets later ones pass; with RetryInPlace it
// does not.
func TestRetryInPlaceKeepsTheOrder(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		for _, inPlace := range []bool{false, true} {
			var got []string
			began := time.Now()
			first := w.sent
			w.publish(2, keyed("k"))
			_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
				got = append(got, fmt.Sprintf("%s attempt %d last %v %v", d.ID, d.Attempt, d.LastAttempt, time.Since(began)))
				if d.ID == id(first) && d.Attempt < 3 {
					return errBroken
				}
				return nil
			}, consumer.Config{Concurrency: 4, KeyLimit: 1, RetryInPlace: inPlace})
			time.Sleep(10 * time.Minute)
			w.stopped(stop)
			a, b := id(first), id(first+1)
			want := []string{a + " attempt 1 last false 0s", b + " attempt 1 last false 0s", a + " attempt 2 last false 1m0s", a + " attempt 3 last true 6m0s"}
			if inPlace {
				want = []string{want[0], want[2], want[3], b + " attempt 1 last false 6m0s"}
			}
			for i := range got {
				got[i] = strings.Replace(got[i], ".00", "", 1)
			}
			if !slices.Equal(got, want) {
				w.Errorf("in place %v: %q\nwant %q", inPlace, got, want)
			}
			w.has("orders")
			w.has("orders.dlq")
		}
		w.truthful()
	})
}

func TestRetryInPlaceEndsInTheDeadLetterQueue(t *testing.T) {
	everywhere(t, func(w *fixture) {
		var runs atomic.Int64
		var log strings.Builder
		var mu sync.Mutex
		kept := map[string][]*consumer.Delivery{} // by goroutines that the handler leaves behind
		w.publish(2)
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			runs.Add(1)
			kept[d.ID] = append(kept[d.ID], d)
			return errBroken
		}, consumer.Config{Concurrency: 2, RetryInPlace: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		began := time.Now()
		time.Sleep(10 * time.Minute)
		w.stopped(stop)
		for message, all := range kept {
			for i, d := range all {
				if d.Attempt != i+1 || d.LastAttempt != (i == 2) {
					w.Errorf("the Delivery of attempt %d of %s says attempt %d, last %t: a later attempt has written into it", i+1, message, d.Attempt, d.LastAttempt)
				}
			}
		}
		if n := runs.Load(); n != 6 {
			w.Errorf("%d attempts, want 3 of each message", n)
		}
		q, _ := w.broker.Queue("orders.dlq")
		for _, m := range q.Ready {
			h, err := xdeath.Parse(m.Headers)
			if err != nil || h.FinalAttempts != 3 || h.Failure.Cause != rehop.CauseExhausted {
				w.Errorf("the letter says %+v after %d attempts, %v", h.Failure, h.FinalAttempts, err)
			}
			if h.FirstFailed.Sub(began) > time.Second || h.Failure.At.Sub(began) < time.Minute {
				w.Errorf("failed first at %v and last at %v, began at %v", h.FirstFailed, h.Failure.At, began)
			}
		}
		for _, n := range []int{0, 1} {
			if s := w.journal.of(id(n)); len(s) != 1 || s[0].Disposition != consumer.DispositionDeadLetter {
				w.Errorf("settled as %+v, want once", s)
			}
			for _, text := range []string{"attempt failed, the next one is in place", "attempt failed, one attempt is left, in place", "message dead-lettered"} {
				if !regexp.MustCompile(text + ".* message=" + id(n)).MatchString(log.String()) {
					w.Errorf("no record %q of %s in\n%s", text, id(n), &log)
				}
			}
		}
		w.truthful()
	})
}

func TestHealthTellsThatMessagesInPlaceHaveAllSlots(t *testing.T) {
	onNewest(t, func(w *fixture) {
		c, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			if d.ID == id(2) {
				return nil
			}
			return errBroken
		}, consumer.Config{Concurrency: 2, RetryInPlace: true})
		w.publish(3)
		time.Sleep(59 * time.Second)
		if status, err := health(c); status != "healthy" {
			w.Errorf("within a minute: %s: %v", status, err)
		}
		time.Sleep(2 * time.Second)
		if status, err := health(c); status != "degraded" || !strings.Contains(err.Error(), "every slot has a message that is held or retried in place") {
			w.Errorf("%s: %v, want that it is degraded and every slot taken", status, err)
		}
		time.Sleep(10 * time.Minute)
		if status, err := health(c); status != "healthy" {
			w.Errorf("when they are dead letters: %s: %v", status, err)
		}
		w.stopped(stop)
		w.truthful()
	})
}

// A stop in the middle leaves the message to its queue, and its count begins anew.
func TestAStopEndsRetryInPlace(t *testing.T) {
	everywhere(t, func(w *fixture) {
		var got []int
		handler := func(_ context.Context, d *consumer.Delivery) error { got = append(got, d.Attempt); return errBroken }
		_, stop := w.start(handler, consumer.Config{RetryInPlace: true})
		w.publish(1)
		time.Sleep(90 * time.Second)
		w.stopped(stop)
		w.has("orders", id(0))
		_, stop = w.start(handler, consumer.Config{RetryInPlace: true})
		time.Sleep(time.Second)
		w.stopped(stop)
		if !slices.Equal(got, []int{1, 2, 1}) {
			w.Errorf("attempts %v, want 1 2, and 1 after the stop", got)
		}
		w.truthful()
	})
}

// A held message gives its slot and its key back when a stop begins. No later message of its
// key may begin then.
func TestAStopKeepsLaterMessagesOfAHeldOneFromBeginning(t *testing.T) {
	for _, inPlace := range []bool{false, true} {
		t.Run(map[bool]string{false: "held", true: "in place"}[inPlace], func(t *testing.T) {
			onEachEngine(t, func(w *fixture) {
				for round := range 20 {
					first, want := id(w.sent), []string{}
					for i := range 5 {
						want = append(want, id(w.sent+i))
					}
					var mu sync.Mutex
					var done []string
					handler := func(_ context.Context, d *consumer.Delivery) error {
						mu.Lock()
						defer mu.Unlock()
						switch {
						case d.ID != first || d.Redelivered:
							done = append(done, d.ID)
							return nil
						case inPlace:
							return errBroken
						}
						return consumer.Hold(errAway)
					}
					cfg := consumer.Config{Concurrency: 4, KeyLimit: 1, RetryInPlace: inPlace}
					w.publish(5, keyed("k"))
					_, stop := w.start(handler, cfg)
					time.Sleep(5 * time.Second)
					w.stopped(stop)
					_, stop = w.start(handler, cfg)
					time.Sleep(time.Minute)
					w.stopped(stop)
					if mu.Lock(); !slices.Equal(done, want) {
						w.Errorf("round %d: handled %v, want %v", round, done, want)
					}
					mu.Unlock()
				}
				w.truthful()
			})
		})
	}
}

// Over two processes on a queue with a single active consumer the order holds through a
// stop: the queue is given up when the handlers have returned.
func TestAStopHandsOverAfterTheHandlers(t *testing.T) {
	onQuorumQueues(t, func(w *fixture) {
		w.raw(func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare("single", true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-single-active-consumer": true, "x-delivery-limit": int64(20)})
			return err
		})
		w.orders = topology.WorkQueue{Name: "single", Type: topology.Quorum, Waits: delay.Schedule{time.Minute}, Existing: true}
		w.declare(w.orders)
		o := newOrdered()
		handler := func(_ context.Context, d *consumer.Delivery) error {
			o.handle(d.OrderKey, d.ID, time.Second)
			return nil
		}
		_, first := w.start(handler, consumer.Config{Concurrency: 4, KeyLimit: 1})
		time.Sleep(time.Second)
		_, second := w.start(handler, consumer.Config{Concurrency: 4, KeyLimit: 1})
		w.publish(40, keyed("a"))
		w.publish(40, keyed("b"))
		time.Sleep(10*time.Second + 500*time.Millisecond)
		w.stopped(first)
		time.Sleep(2 * time.Minute)
		w.stopped(second)
		want := map[string][]string{"a": nil, "b": nil}
		for n := range 80 {
			key := "a"
			if n >= 40 {
				key = "b"
			}
			want[key] = append(want[key], id(n))
		}
		for key := range want {
			if !slices.Equal(o.got[key], want[key]) || o.most[key] != 1 {
				w.Errorf("key %s: %d at a time, in the order %v", key, o.most[key], o.got[key])
			}
		}
		w.has("single")
	})
}

// The order of a key holds through lost connections, but for messages that were in hand:
// they come again, and at their place.
func TestTheOrderOfAKeyAfterALostConnection(t *testing.T) {
	everywhere(t, func(w *fixture) {
		o := newOrdered()
		_, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
			o.handle(d.OrderKey, d.ID, 100*time.Millisecond)
			return context.Cause(ctx)
		}, consumer.Config{Concurrency: 4, KeyLimit: 1})
		w.publish(100, keyed("k"))
		for range 3 {
			time.Sleep(1050 * time.Millisecond)
			w.broker.Cut("")
		}
		time.Sleep(time.Minute)
		w.stopped(stop)
		if o.most["k"] != 1 {
			w.Errorf("%d at a time, want 1", o.most["k"])
		}
		last := -1
		for _, got := range o.got["k"] {
			var n int
			fmt.Sscanf(got, "m%d", &n)
			if n != last && n != last+1 {
				w.Fatalf("%s came after m%d: %v", got, last, o.got["k"])
			}
			last = n
		}
		if last != 99 {
			w.Errorf("the last message was m%d", last)
		}
		w.has("orders")
	})
}

func TestOrderIsRefused(t *testing.T) {
	onNewest(t, func(w *fixture) {
		w.orders.Waits = delay.Default()
		for want, cfg := range map[string]consumer.Config{
			"consumer: Config.KeyLimit is -1, want 1 or more, or 0 for no limit":                                                                                             {KeyLimit: -1},
			"consumer: Config.Key is set without KeyLimit, which is how many messages of a key are handled at a time: want 1 or more":                                        {Key: func(*consumer.Delivery) string { return "" }},
			"consumer: Config.RetryInPlace: the waits of queue \"orders\" are 36m0s in sum, want less than 15m0s: the broker takes a message away that is kept for too long": {RetryInPlace: true},
		} {
			if _, err := consumer.New(w.conn, w.orders, func(context.Context, *consumer.Delivery) error { return nil }, cfg); err == nil || err.Error() != want {
				w.Errorf("New = %v\nwant %s", err, want)
			}
		}
		single := w.orders
		single.SingleActiveConsumer = true
		for _, priority := range []int{-1, 1} {
			_, err := consumer.New(w.conn, single, func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{Priority: priority})
			if want := fmt.Sprintf("consumer: Config.Priority is %d, want 0: queue %q has a single active consumer", priority, w.orders.Name); err == nil || !strings.HasPrefix(err.Error(), want) {
				w.Errorf("New = %v\nwant %s", err, want)
			}
		}
		w.orders.Waits, w.orders.ConsumerTimeout = delay.Schedule{150 * time.Second}, 5*time.Minute
		_, err := consumer.New(w.conn, w.orders, func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{RetryInPlace: true})
		if err == nil || !strings.Contains(err.Error(), "are 2m30s in sum, want less than 2m30s: ") {
			w.Errorf("New = %v, want that half of the consumer timeout is the bound", err)
		}
	})
}

func TestKeysOfLanes(t *testing.T) {
	onNewest(t, func(w *fixture) {
		lanes := topology.Lanes{Name: "sms", Type: topology.Quorum, Lanes: []topology.Lane{{Name: "high"}, {Name: "low"}}}
		w.declare(lanes)
		o := newOrdered()
		for n := range 40 {
			w.orders.Name = []string{"sms.high", "sms.low"}[n%2]
			w.publish(1, keyed("k"))
		}
		began := time.Now()
		var took time.Duration
		_, stop := w.startOn(lanes, func(_ context.Context, d *consumer.Delivery) error {
			o.handle(d.Queue, d.ID, 100*time.Millisecond)
			o.mu.Lock()
			took = time.Since(began)
			o.mu.Unlock()
			return nil
		}, consumer.Config{Concurrency: 4, KeyLimit: 1})
		time.Sleep(time.Minute)
		w.stopped(stop)
		synctest.Wait()
		if len(o.got["sms.high"]) != 20 || len(o.got["sms.low"]) != 20 || o.most["sms.high"] != 1 || o.most["sms.low"] != 1 {
			w.Errorf("handled %d and %d, %d and %d at a time; want each lane's in their order", len(o.got["sms.high"]), len(o.got["sms.low"]), o.most["sms.high"], o.most["sms.low"])
		}
		// A higher lane whose key is in hand keeps no lower one waiting.
		if took > 3*time.Second {
			w.Errorf("all took %v, want the lanes side by side: about 2s", took)
		}
	})
}

// What a consumer has in hand that is just ending comes back before later messages are handled.
func TestAConsumerInOrderWaitsForOthersToGo(t *testing.T) {
	for _, tt := range []struct {
		rule     string
		leaves   time.Duration // after the consumer has started; 0: never
		cfg      consumer.Config
		from, to time.Duration // when its first handler begins
		first    string
		warns    int
	}{
		{"one leaves soon", 300 * time.Millisecond, consumer.Config{KeyLimit: 1}, 300 * time.Millisecond, 400 * time.Millisecond, id(0), 0},
		{"one leaves late", 2900 * time.Millisecond, consumer.Config{KeyLimit: 1}, 2900 * time.Millisecond, 3 * time.Second, id(0), 0},
		{"one stays", 0, consumer.Config{KeyLimit: 1}, 3 * time.Second, 3100 * time.Millisecond, id(5), 1},
		{"a share promises no order", 0, consumer.Config{Concurrency: 2, KeyLimit: 2}, 0, 100 * time.Millisecond, id(5), 0},
		{"without keys", 0, consumer.Config{}, 0, 100 * time.Millisecond, id(5), 0},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			onQuorumQueues(t, func(w *fixture) {
				w.publish(10, keyed("k"))
				other, err := w.conn.Session(w.Context(), connection.Consume)
				if err != nil {
					w.Fatal(err)
				}
				defer other.Close()
				err = other.Do(w.Context(), func(ch *amqp.Channel) error {
					_ = ch.Qos(5, 0, false)
					_, err := ch.Consume("orders", "", false, false, false, false, nil)
					return err
				})
				if err != nil {
					w.Fatal(err)
				}
				synctest.Wait()
				if tt.leaves > 0 {
					time.AfterFunc(tt.leaves, func() { _ = other.Close() })
				}
				var mu sync.Mutex
				began := time.Now()
				var runs []time.Duration
				var got []string
				var said lines
				tt.cfg.Logger = said.logger()
				_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
					mu.Lock()
					defer mu.Unlock()
					runs, got = append(runs, time.Since(began)), append(got, d.ID)
					return nil
				}, tt.cfg)
				time.Sleep(10 * time.Second)
				w.stopped(stop)
				mu.Lock()
				defer mu.Unlock()
				if len(runs) == 0 || got[0] != tt.first || runs[0] < tt.from || runs[0] > tt.to || !slices.IsSorted(got) {
					w.Errorf("handled %v at %v, want from %v to %v, %s first, in order", got, runs, tt.from, tt.to, tt.first)
				}
				if n := len(said.with("level=WARN", "has other consumers")); n != tt.warns {
					w.Errorf("other consumers are told of %d times, want %d", n, tt.warns)
				}
			})
		})
	}
}

// So does each further session, but for consumers that had stayed when the one before began.
func TestALaterSessionInOrderWaitsForOthersToGo(t *testing.T) {
	for _, tt := range []struct {
		rule     string
		stayed   bool // the other consumer was there from the start, and stays
		from, to time.Duration
		first    string
	}{
		{"one that came since leaves", false, time.Second, 1500 * time.Millisecond, id(0)},
		{"one that had stayed stays", true, 0, 500 * time.Millisecond, id(5)},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			onQuorumQueues(t, func(w *fixture) {
				conn, err := connection.Open(w.Context(), w.connects("other"))
				if err != nil {
					w.Fatal(err)
				}
				defer conn.Close()
				other, err := conn.Session(w.Context(), connection.Consume)
				if err != nil {
					w.Fatal(err)
				}
				joins := func() {
					err := other.Do(w.Context(), func(ch *amqp.Channel) error {
						_ = ch.Qos(5, 0, false)
						_, err := ch.Consume("orders", "", false, false, false, false, amqp.Table{"x-priority": int32(10)})
						return err
					})
					if err != nil {
						w.Fatal(err)
					}
				}
				if tt.stayed {
					joins()
				}
				var mu sync.Mutex
				var runs []time.Time
				var got []string
				_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
					mu.Lock()
					defer mu.Unlock()
					runs, got = append(runs, time.Now()), append(got, d.ID)
					return nil
				}, consumer.Config{KeyLimit: 1})
				time.Sleep(time.Minute)
				w.broker.Cut("test")
				cut := time.Now()
				if !tt.stayed {
					joins()
					time.AfterFunc(time.Second, func() { _ = other.Close() })
				}
				w.publish(10, keyed("k"))
				time.Sleep(10 * time.Second)
				w.stopped(stop)
				mu.Lock()
				defer mu.Unlock()
				if len(runs) == 0 || got[0] != tt.first || !slices.IsSorted(got) {
					w.Fatalf("handled %v, want %s first, in order", got, tt.first)
				}
				if took := runs[0].Sub(cut); took < tt.from || took > tt.to {
					w.Errorf("the first is handled after %v, want from %v to %v", took, tt.from, tt.to)
				}
			})
		})
	}
}

// A message that has been in hand for so long that the next wait does not fit before the
// broker would take it away waits in the broker, and keeps its count.
func TestAWaitThatDoesNotFitInPlaceIsInTheBroker(t *testing.T) {
	for name, c := range map[string]struct {
		waits delay.Schedule
		err   error
		takes time.Duration // of a run of the handler
		want  []time.Duration
	}{
		"slow handlers": {delay.Schedule{4 * time.Minute, 4 * time.Minute, 4 * time.Minute, 2 * time.Minute}, errBroken, 30 * time.Second,
			[]time.Duration{0, 4*time.Minute + 30*time.Second, 9 * time.Minute, 13*time.Minute + 30*time.Second, 16 * time.Minute}},
		"RetryAfter": {delay.Schedule{time.Minute, time.Minute}, consumer.RetryAfter(20*time.Minute, errBroken), 0,
			[]time.Duration{0, 20 * time.Minute, 40 * time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(w *fixture) {
				w.orders = topology.WorkQueue{Name: "bills", Type: w.orders.Type, Waits: c.waits}
				w.declare(w.orders)
				began := time.Now()
				var runs []time.Duration
				var attempts []int
				_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
					runs, attempts = append(runs, time.Since(began)), append(attempts, d.Attempt)
					time.Sleep(c.takes)
					return c.err
				}, consumer.Config{RetryInPlace: true})
				w.publish(1)
				time.Sleep(c.want[len(c.want)-1] + 20*time.Minute)
				w.stopped(stop)
				w.has("bills.dlq", id(0))
				for i := range c.want {
					if len(runs) != len(c.want) || attempts[i] != i+1 || runs[i] < c.want[i] {
						w.Fatalf("attempts %v at %v, want none before %v", attempts, runs, c.want)
					}
				}
			})
		})
	}
}

// An outage that other messages have begun does not cut the wait of a message short that
// failed for a reason of its own.
func TestAnOutageCutsNoWaitInPlace(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		var mu sync.Mutex
		var runs []time.Time
		began := time.Now()
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			if d.ID == id(0) {
				mu.Lock()
				defer mu.Unlock()
				runs = append(runs, time.Now())
				return errBroken
			}
			if time.Since(began) < 30*time.Second {
				return consumer.Hold(errAway)
			}
			return nil
		}, consumer.Config{Concurrency: 8, RetryInPlace: true})
		w.publish(1)
		time.Sleep(time.Second)
		for n := range 10 {
			if _, err := w.broker.Publish(rehoptest.Message{RoutingKey: "orders", Publishing: amqp.Publishing{MessageId: id(n + 1)}}); err != nil {
				w.Fatal(err)
			}
		}
		time.Sleep(10 * time.Minute)
		w.stopped(stop)
		w.has("orders")
		mu.Lock()
		defer mu.Unlock()
		if len(runs) != 3 || runs[1].Sub(runs[0]) < time.Minute || runs[2].Sub(runs[1]) < 5*time.Minute {
			w.Errorf("attempts at %v, want waits of 1m and 5m", runs)
		}
	})
}
