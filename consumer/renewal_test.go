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

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
)

// A consumer that keeps an order holds the message of a key whose service is away, and gives
// it back again and again. Handlers of other keys run to their end meanwhile.
func TestAHeldMessageInterruptsNoHandlerOfAnotherKey(t *testing.T) {
	everywhere(t, func(w *fixture) {
		w.publish(1, keyed("away"))
		w.publish(1, keyed("slow"))
		over := time.Now().Add(40 * time.Minute)
		r := &slowRuns{}
		_, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
			switch {
			case d.OrderKey == "slow":
				return r.handle(ctx, d, 20*time.Minute)
			case time.Now().Before(over):
				return consumer.Hold(errAway)
			}
			return r.handle(ctx, d, time.Second)
		}, consumer.Config{Concurrency: 16, KeyLimit: 1})
		time.Sleep(time.Hour)
		w.stopped(stop)
		w.has("orders")
		w.has("orders.dlq")
		if want := []string{"m1", "m0"}; !slices.Equal(r.begun, want) {
			w.Errorf("begun %v, want %v", r.begun, want)
		}
	})
}

// The service of one key is away for hours. Other keys do not wait for it. Five hours of a
// return each quarter of an hour would use the delivery limit up.
func TestAnOutageOfOneKeyHoldsUpNoOther(t *testing.T) {
	holds := func(w *fixture) {
		var mu sync.Mutex
		handled := map[string]bool{}
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			if d.OrderKey == "away" {
				return consumer.Hold(errAway)
			}
			mu.Lock()
			defer mu.Unlock()
			handled[d.ID] = true
			return nil
		}, consumer.Config{Concurrency: 16, KeyLimit: 1})
		w.publish(3, keyed("away"))
		for i := range 6 * 60 { // on a quorum queue the message goes back more often than the delivery limit
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
		w.has("orders.dlq")
	}
	onQuorumQueues(t, holds)
	on(t, "4.3", topology.Classic, holds)
}

// A quorum queue counts each return in an outage, and messages that come back are in their
// places for two hours.
func TestAnOutageOfTwoHoursKeepsTheOrder(t *testing.T) {
	for _, minutes := range []int{92, 110, 118} {
		t.Run(fmt.Sprintf("%d minutes", minutes), func(t *testing.T) {
			columns := onEachEngine
			if minutes == 110 {
				columns = everywhere
			}
			columns(t, func(w *fixture) {
				const n = 60
				w.publish(n, keyed("k"))
				over := time.Now().Add(time.Duration(minutes) * time.Minute)
				r := &slowRuns{}
				_, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
					if time.Now().Before(over) {
						return consumer.Hold(errAway)
					}
					return r.handle(ctx, d, time.Second)
				}, consumer.Config{Concurrency: 2, KeyLimit: 1})
				time.Sleep(time.Duration(minutes+20) * time.Minute) // the messages take one
				w.stopped(stop)
				w.has("orders")
				w.has("orders.dlq")
				if !slices.Equal(r.begun, numberedTo(n)) {
					w.Errorf("begun %v", r.begun)
				}
			})
		})
	}
}

// While nothing is handled, messages may wait for longer. None of them begins late then.
func TestNoMessageBeginsLateAfterAShortPause(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		const n = 60
		w.publish(n, keyed("k"))
		var came sync.Map // when a message was delivered last
		r := &slowRuns{}
		var late []string
		c, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
			at, _ := came.Load(d.ID)
			if age := time.Since(at.(time.Time)); age > 30*time.Minute/4 {
				late = append(late, fmt.Sprintf("%s after %v", d.ID, age))
			}
			return r.handle(ctx, d, 30*time.Second)
		}, consumer.Config{Concurrency: 4, KeyLimit: 1, Key: func(d *consumer.Delivery) string {
			came.Store(d.ID, time.Now())
			return d.OrderKey
		}})
		time.Sleep(7*time.Minute + 29*time.Second)
		c.Pause()
		time.Sleep(2 * time.Second)
		c.Resume()
		time.Sleep(45 * time.Minute) // the handlers take half an hour
		w.stopped(stop)
		w.has("orders")
		if len(late) > 0 {
			w.Errorf("begun late: %v", late)
		}
		if !slices.Equal(r.begun, numberedTo(n)) {
			w.Errorf("begun %v", r.begun)
		}
	})
}

// The connection is lost while a handler is at work. Later messages of its key wait until it
// has come again, although its handler has returned and they are in hand.
func TestNoMessageBeginsInALostSession(t *testing.T) {
	everywhere(t, func(w *fixture) {
		const n = 10
		w.publish(n, keyed("k"))
		var mu sync.Mutex
		var handled []string
		_, stop := w.start(func(ctx context.Context, d *consumer.Delivery) error {
			if ctx.Err() != nil {
				w.Errorf("%s begins although its session is over", d.ID)
			}
			if d.ID == "m3" && !d.Redelivered {
				<-ctx.Done()
				return ctx.Err()
			}
			mu.Lock()
			defer mu.Unlock()
			handled = append(handled, d.ID)
			return nil
		}, consumer.Config{Concurrency: 4, KeyLimit: 1})
		time.Sleep(10 * time.Second)
		w.broker.Cut("")
		time.Sleep(time.Minute)
		w.stopped(stop)
		w.has("orders")
		if !slices.Equal(handled, numberedTo(n)) {
			w.Errorf("handled %v", handled)
		}
	})
}

// The broker takes a message away from a handler that does not return. With RetryInPlace as
// well the message spends an attempt each time. Without that it would come for the 14th time
// within eight hours.
func TestAMessageTakenAwaySpendsAnAttemptInPlace(t *testing.T) {
	onQuorumQueues(t, func(w *fixture) {
		w.orders = topology.WorkQueue{Name: "bills", Type: w.orders.Type, Waits: delay.Schedule{10 * time.Second, 10 * time.Second}}
		w.declare(w.orders)
		w.publish(1, keyed("k"))
		runs := 0
		_, stop := w.start(func(context.Context, *consumer.Delivery) error {
			runs++
			time.Sleep(35 * time.Minute)
			return nil
		}, consumer.Config{Concurrency: 4, KeyLimit: 1, RetryInPlace: true})
		time.Sleep(8 * time.Hour)
		w.has("bills") // 4.3 does not keep every timeout, and then the message is done
		if runs > 12 {
			w.Errorf("%d runs", runs)
		}
		w.stopped(stop)
	})
}

// In an alarm of hours the copy of a failed message is not confirmed, and the message goes
// back again and again with the end of its session, which 4.3 counts: 20 times in five hours.
func TestALongAlarmMakesNoLetterOfAMessageInOrder(t *testing.T) {
	onQuorumQueues(t, func(w *fixture) {
		w.publish(30, keyed("k"))
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			if d.ID == "m5" && d.Attempt == 1 {
				return consumer.RetryAfter(90*time.Second, errBroken)
			}
			return nil
		}, consumer.Config{Concurrency: 4, KeyLimit: 1})
		w.broker.Block("memory")
		time.Sleep(6 * time.Hour)
		w.broker.Unblock()
		time.Sleep(10 * time.Minute)
		w.stopped(stop)
		w.has("orders")
		w.has("orders.dlq")
	})
}

// Handlers keep up with a bounded prefetch, and one message is held. It does not go back once
// a minute for a larger prefetch.
func TestAHeldMessageDoesNotGoBackForALargerPrefetch(t *testing.T) {
	on(t, "4.0", topology.Quorum, func(w *fixture) {
		w.publish(50, keyed("slow")) // after some returns one message is sent at a time
		over := time.Now().Add(4 * time.Hour)
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			switch {
			case d.OrderKey == "slow":
				time.Sleep(time.Minute)
			case d.OrderKey == "away" && time.Now().Before(over):
				return consumer.Hold(errAway)
			}
			return nil
		}, consumer.Config{Concurrency: 8, KeyLimit: 1})
		time.Sleep(time.Hour)
		w.publish(1, keyed("away"))
		away := id(w.sent - 1)
		for i := range 3600 {
			w.publish(1, keyed(fmt.Sprint(i%10)))
			time.Sleep(time.Second)
		}
		if n := strings.Count(w.broker.Story(away), "given back"); n > 5 {
			w.Errorf("the held message went back %d times in an hour", n)
		}
		time.Sleep(4 * time.Hour)
		w.stopped(stop)
		w.has("orders")
	})
}

// Slow handlers have left a bound on the prefetch, and the service of one key goes away. Its
// messages fill the bounded prefetch, and other keys do not wait for them.
func TestABoundHoldsUpNoKeyWhileAnotherIsHeld(t *testing.T) {
	onQuorumQueues(t, func(w *fixture) {
		w.publish(12, keyed("slow"))
		var mu sync.Mutex
		good, began := 0, time.Now()
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			switch {
			case d.OrderKey == "slow":
				time.Sleep(26 * time.Minute)
			case d.OrderKey == "away" && time.Since(began) < 11*time.Hour:
				return consumer.Hold(errAway)
			case d.OrderKey == "good":
				mu.Lock()
				defer mu.Unlock()
				good++
			}
			return nil
		}, consumer.Config{Concurrency: 16, KeyLimit: 1})
		time.Sleep(9 * time.Hour)
		w.publish(6, keyed("away"))
		for i := range 90 {
			w.publish(1, keyed("good"))
			time.Sleep(time.Minute)
			mu.Lock()
			if good < i-2 {
				w.Errorf("%d of %d messages of another key are handled", good, i+1)
			}
			mu.Unlock()
		}
		time.Sleep(3 * time.Hour)
		w.stopped(stop)
		w.has("orders")
		w.has("orders.dlq")
	})
}

// Messages of a key whose service is away fill the prefetch, and no other message comes.
func TestHealthTellsThatHeldMessagesFillThePrefetch(t *testing.T) {
	onNewest(t, func(w *fixture) {
		over := time.Now().Add(30 * time.Minute)
		c, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			if d.OrderKey == "away" && time.Now().Before(over) {
				return consumer.Hold(errAway)
			}
			return nil
		}, consumer.Config{Concurrency: 4, KeyLimit: 1, Prefetch: 10})
		w.publish(9, keyed("away"))
		time.Sleep(5 * time.Minute)
		if _, err := health(c); err != nil {
			w.Errorf("there is room for another message: %v", err)
		}
		w.publish(2, keyed("away"))
		filled := time.Now()
		for range 7 {
			time.Sleep(70 * time.Second)
			var h *rehop.HealthError
			if err := c.Health(); !errors.As(err, &h) || !h.Degraded || h.Since.Sub(filled).Abs() > time.Second || !strings.Contains(err.Error(), `for key "away"`) {
				w.Fatalf("after %v: %v, want that it is degraded since the prefetch was full, with the key", time.Since(filled), err)
			}
		}
		time.Sleep(time.Hour)
		if _, err := health(c); err != nil {
			w.Errorf("the service is back: %v", err)
		}
		w.stopped(stop)
		w.has("orders")
	})
}

// All keys stand still until a slow handler has returned, because another message of its
// key waits. Health says so.
func TestHealthTellsThatAllKeysWaitForAHandler(t *testing.T) {
	onNewest(t, func(w *fixture) {
		w.publish(2, keyed("slow"))
		c, stop := w.start(func(context.Context, *consumer.Delivery) error {
			time.Sleep(20 * time.Minute)
			return nil
		}, consumer.Config{Concurrency: 4, KeyLimit: 1})
		time.Sleep(16 * time.Minute)
		if status, err := health(c); status != "healthy" {
			w.Errorf("in the first minute: %s, %v", status, err)
		}
		time.Sleep(2 * time.Minute)
		if status, err := health(c); status != "degraded" || !strings.Contains(err.Error(), `handlers have not returned ("m0")`) {
			w.Errorf("then: %s, %v", status, err)
		}
		time.Sleep(3 * time.Minute)
		if status, err := health(c); status != "healthy" {
			w.Errorf("when the handler has returned: %s, %v", status, err)
		}
		time.Sleep(time.Hour)
		w.stopped(stop)
		w.has("orders")
	})
}
