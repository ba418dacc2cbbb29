package consumer_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// run is one run of a handler, as the tests of Snooze compare it.
func runOf(d *consumer.Delivery, began time.Time) string {
	return fmt.Sprintf("%s attempt %d, put off %d, last %v, %v", d.ID, d.Attempt, d.History.Snoozes, d.LastAttempt, time.Since(began).Round(time.Second))
}

func TestASnoozedMessageComesBackUnspent(t *testing.T) {
	everywhere(t, func(w *fixture) {
		began := time.Now()
		var mu sync.Mutex
		var got []string
		w.publish(2)
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, runOf(d, began))
			if d.ID == id(0) && d.History.Snoozes < 2 {
				return consumer.Snooze(90*time.Second, "not paid yet")
			}
			return nil
		}, consumer.Config{})
		synctest.Wait()
		mu.Lock()
		if len(got) != 2 {
			w.Errorf("runs: %q, want both messages handled: the first keeps no slot", got)
		}
		mu.Unlock()
		time.Sleep(11 * time.Minute)
		w.stopped(stop)
		// Rounded up to the wait of 5 minutes.
		want := []string{"m0 attempt 1, put off 0, last false, 0s", "m1 attempt 1, put off 0, last false, 0s",
			"m0 attempt 1, put off 1, last false, 5m0s", "m0 attempt 1, put off 2, last false, 10m0s"}
		if !slices.Equal(got, want) {
			w.Errorf("runs: %q\nwant %q", got, want)
		}
		snoozed := consumer.Settlement{Disposition: consumer.DispositionWait, WaitNumber: 2, Wait: 5 * time.Minute, Snoozed: true}
		if s := w.journal.of(id(0)); !slices.Equal(s, []consumer.Settlement{snoozed, snoozed, {Disposition: consumer.DispositionDone}}) {
			w.Errorf("settled as %+v", s)
		}
		w.has("orders.dlq")
		w.truthful()
	})
}

func TestSnoozeAfterTheLastFailureSpendsNoAttempt(t *testing.T) {
	everywhere(t, func(w *fixture) {
		began := time.Now()
		var got []string
		w.publish(1)
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			got = append(got, runOf(d, began))
			if d.LastAttempt && d.History.Snoozes == 0 {
				return consumer.Snooze(0, "one moment")
			}
			return errBroken
		}, consumer.Config{})
		time.Sleep(20 * time.Minute)
		w.stopped(stop)
		want := []string{"m0 attempt 1, put off 0, last false, 0s", "m0 attempt 2, put off 0, last false, 1m0s",
			"m0 attempt 3, put off 0, last true, 6m0s", "m0 attempt 3, put off 1, last true, 7m0s"}
		if !slices.Equal(got, want) {
			w.Errorf("runs: %q\nwant %q", got, want)
		}
		if h, err := xdeath.Parse(w.letter().Headers); err != nil || h.FinalAttempts != 3 || h.Failure.Cause != rehop.CauseExhausted {
			w.Errorf("the letter says %+v after %d attempts, %v; want exhausted after 3", h.Failure, h.FinalAttempts, err)
		}
		w.truthful()
	})
}

func TestSnoozeWithExactDelays(t *testing.T) {
	on(t, "4.3", topology.Quorum, func(w *fixture) {
		w.declare(w.orders, topology.Delays{Max: time.Hour})
		began := time.Now()
		var got []string
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			got = append(got, runOf(d, began))
			if d.History.Snoozes == 0 {
				return consumer.Snooze(7*time.Second, "not paid yet")
			}
			return nil
		}, consumer.Config{})
		w.publish(1)
		time.Sleep(time.Minute)
		w.stopped(stop)
		if want := []string{"m0 attempt 1, put off 0, last false, 0s", "m0 attempt 1, put off 1, last false, 7s"}; !slices.Equal(got, want) {
			w.Errorf("runs: %q\nwant %q", got, want)
		}
	})
}

func TestSnoozeWithoutAnyWaitGoesRoundInItsQueue(t *testing.T) {
	everywhere(t, func(w *fixture) {
		bare := topology.WorkQueue{Name: "bare", Type: w.orders.Type, Waits: delay.Schedule{}}
		w.declare(bare)
		w.orders = bare
		began := time.Now()
		var got []string
		w.publish(1)
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			got = append(got, runOf(d, began))
			if d.History.Snoozes == 0 {
				return consumer.Snooze(25*time.Second, "not paid yet")
			}
			return nil
		}, consumer.Config{})
		time.Sleep(time.Minute)
		w.stopped(stop)
		if want := []string{"m0 attempt 1, put off 0, last true, 0s", "m0 attempt 1, put off 1, last true, 25s"}; !slices.Equal(got, want) {
			w.Errorf("runs: %q\nwant %q", got, want)
		}
		w.has("bare.dlq")
	})
}

func TestSnoozeOfLanes(t *testing.T) {
	on(t, "4.3", topology.Quorum, func(w *fixture) {
		lanes := topology.Lanes{Name: "sms", Type: topology.Quorum, Waits: delay.Schedule{time.Minute}, Lanes: []topology.Lane{{Name: "high"}, {Name: "low"}}}
		w.declare(lanes)
		began := time.Now()
		var got []string
		_, stop := w.startOn(lanes, func(_ context.Context, d *consumer.Delivery) error {
			got = append(got, d.Queue+" "+runOf(d, began))
			if d.History.Snoozes == 0 {
				return consumer.Snooze(time.Second, "not paid yet")
			}
			return nil
		}, consumer.Config{})
		w.orders.Name = "sms.low"
		w.publish(1)
		time.Sleep(2 * time.Minute)
		w.stopped(stop)
		if want := []string{"sms.low m0 attempt 1, put off 0, last false, 0s", "sms.low m0 attempt 1, put off 1, last false, 1m0s"}; !slices.Equal(got, want) {
			w.Errorf("runs: %q\nwant %q", got, want)
		}
	})
}

// A message that another program has taken from its queue to this one has the snoozes of
// its former life in its headers.
func TestSnoozesOfAnotherQueueDoNotCount(t *testing.T) {
	everywhere(t, func(w *fixture) {
		var got []int
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			got = append(got, d.History.Snoozes)
			if len(got) == 1 {
				return consumer.Snooze(time.Second, "not yet")
			}
			return nil
		}, consumer.Config{})
		w.publish(1, func(m *rehoptest.Message) {
			m.Headers = amqp.Table{header.Queue: "other", header.Snoozes: int64(3)}
		})
		time.Sleep(10 * time.Minute)
		w.stopped(stop)
		if !slices.Equal(got, []int{0, 1}) {
			w.Errorf("snoozes %v, want 0, and 1 after the first", got)
		}
		w.has("orders")
	})
}

// letterOf is what a handler is told of a letter.
func letterOf(d *consumer.Delivery) string {
	h, f := d.History, d.History.Failure
	return fmt.Sprintf("%s of %s after %d, %s, %s by %s at %v, to %q %q", f.Cause, h.Queue, h.FinalAttempts, f.Error, f.ErrorType, f.Host, f.At.Unix(), d.Exchange, d.RoutingKey)
}

// putsOff starts a consumer of the dead-letter queue that snoozes each letter so often, and
// checks that it is told the same of it each time.
func (w *fixture) putsOff(times int, d time.Duration) (letter *consumer.Delivery) {
	w.Helper()
	var got []time.Duration
	began, first := time.Now(), ""
	_, stop := w.startOn(w.orders.DeadLetterQueue(), func(_ context.Context, l *consumer.Delivery) error {
		got = append(got, time.Since(began).Round(time.Second))
		if letter == nil {
			first = letterOf(l)
		}
		letter = l
		if told := letterOf(l); told != first || l.Attempt != 1 || l.History.Snoozes != len(got)-1 {
			w.Errorf("run %d: put off %d, attempt %d: %s\nwant %s", len(got), l.History.Snoozes, l.Attempt, told, first)
		}
		if len(got) <= times {
			return consumer.Snooze(d, "not yet")
		}
		return nil
	}, consumer.Config{})
	time.Sleep(time.Duration(times+1)*d + time.Second)
	w.stopped(stop)
	w.has("orders.dlq")
	var want []time.Duration
	for n := range times + 1 {
		want = append(want, time.Duration(n)*d)
	}
	if !slices.Equal(got, want) {
		w.Fatalf("runs at %v, want %v", got, want)
	}
	return letter
}

func TestASnoozedLetterStaysOne(t *testing.T) {
	everywhere(t, func(w *fixture) {
		w.publish(1)
		_, stop := w.start(permanently, consumer.Config{})
		time.Sleep(time.Second)
		w.stopped(stop)
		if l := w.putsOff(2, 25*time.Second); l.History.Queue != "orders" || l.History.Failure.Error != "broken" || l.History.FinalAttempts != 1 || l.RoutingKey != "orders" {
			w.Errorf("the letter is %s", letterOf(l))
		}
	})
}

func TestASnoozedLetterOfTheBrokerStaysOne(t *testing.T) {
	everywhere(t, func(w *fixture) {
		w.orders.Bindings = []topology.Binding{{Exchange: "shop", RoutingKey: "#"}}
		w.declare(topology.Exchange{Name: "shop"}, w.orders)
		expires := amqp.Publishing{MessageId: id(0), DeliveryMode: amqp.Persistent, Expiration: "1000"}
		if _, err := w.broker.Publish(rehoptest.Message{Exchange: "shop", RoutingKey: "order.paid", Publishing: expires}); err != nil {
			w.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		l := w.putsOff(2, 25*time.Second)
		if l.History.Queue != "orders" || l.History.Failure.Cause != rehop.CauseExpired || l.Exchange != "shop" || l.RoutingKey != "order.paid" {
			w.Errorf("the letter is %s", letterOf(l))
		}
	})
}

func TestASnoozedLetterStaysOneInExactDelays(t *testing.T) {
	on(t, "4.3", topology.Quorum, func(w *fixture) {
		w.declare(w.orders, topology.Delays{Max: time.Hour, Queues: []string{"orders.dlq"}})
		_, stop := w.start(permanently, consumer.Config{})
		w.publish(1)
		time.Sleep(time.Second)
		w.stopped(stop)
		if l := w.putsOff(2, 2*time.Hour); l.History.Queue != "orders" || l.History.Failure.Cause != rehop.CausePermanent || l.RoutingKey != "orders" {
			w.Errorf("the letter is %s", letterOf(l))
		}
	})
}

// A snooze without a time is for the shortest wait, and the log says how long that is.
func TestTheLogTellsHowLongAMessageIsSnoozed(t *testing.T) {
	on(t, "4.3", topology.Quorum, func(w *fixture) {
		var log lines
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			if d.History.Snoozes == 0 {
				return consumer.Snooze(0, "not paid yet")
			}
			return nil
		}, consumer.Config{Logger: log.logger()})
		w.publish(1)
		time.Sleep(time.Hour)
		w.stopped(stop)
		if len(log.with("message snoozed", "for=1m0s", "not paid yet")) != 1 {
			w.Errorf("%q, want one record that says for=1m0s", log.with("snoozed"))
		}
		w.has("orders")
	})
}
