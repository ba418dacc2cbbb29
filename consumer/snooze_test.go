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
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, runOf(d, began))
			if d.ID == id(0) && d.History.Snoozes < 2 {
				return consumer.Snooze(90*time.Second, "not paid yet")
			}
			return nil
		}, consumer.Config{})
		w.publish(2)
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
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			got = append(got, runOf(d, began))
			if d.LastAttempt && d.History.Snoozes == 0 {
				return consumer.Snooze(0, "one moment")
			}
			return errBroken
		}, consumer.Config{})
		w.publish(1)
		time.Sleep(20 * time.Minute)
		w.stopped(stop)
		want := []string{"m0 attempt 1, put off 0, last false, 0s", "m0 attempt 2, put off 0, last false, 1m0s",
			"m0 attempt 3, put off 0, last true, 6m0s", "m0 attempt 3, put off 1, last true, 7m0s"}
		if !slices.Equal(got, want) {
			w.Errorf("runs: %q\nwant %q", got, want)
		}
		if h, err := xdeath.Parse(w.letter().Headers); err != nil || h.FinalAttempts != 3 || h.Failure.Cause != xdeath.CauseExhausted {
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
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			got = append(got, runOf(d, began))
			if d.History.Snoozes == 0 {
				return consumer.Snooze(25*time.Second, "not paid yet")
			}
			return nil
		}, consumer.Config{})
		w.publish(1)
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
		time.Sleep(time.Hour)
		w.stopped(stop)
		if !slices.Equal(got, []int{0, 1}) {
			w.Errorf("snoozes %v, want 0, and 1 after the first", got)
		}
		w.has("orders")
	})
}
