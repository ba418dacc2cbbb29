package examples

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
)

var (
	errUnknownCustomer = errors.New("no such customer")
	errBusy            = errors.New("busy")
	errAway            = errors.New("connection refused")
)

func TestRetries(t *testing.T) {
	inShop(t, "", func(s *shop) {
		conn := s.conn
		s.declare(orders)
		answers := []error{errAway, errBusy, errUnknownCustomer}
		printTicket := func(context.Context, []byte) error {
			err := answers[0]
			answers = answers[1:]
			return err
		}
		// begin handler
		worker, err := consumer.New(conn, orders, func(ctx context.Context, d *consumer.Delivery) error {
			err := printTicket(ctx, d.Body)
			switch {
			case errors.Is(err, errUnknownCustomer):
				return consumer.DeadLetter(err) // no attempt will ever succeed
			case errors.Is(err, errBusy):
				return consumer.RetryAfter(2*time.Minute, err) // the next attempt, and not before
			case errors.Is(err, errAway):
				return consumer.Hold(err) // the printer is away for all messages: no attempt is spent
			}
			return err // nil: done; any other error: the next attempt after 1m, 5m, 10m, 20m
		}, consumer.Config{Concurrency: 16})
		// end handler
		check(err)
		s.run(worker)
		s.publish(message("order-7"))
		after(10 * time.Minute)
		s.ready("orders.dlq", 1)
		if len(answers) > 0 {
			s.Errorf("the handler did not run for %v", answers)
		}
	})
}

func TestSchedules(t *testing.T) {
	// begin schedules
	quick := delay.Fixed(10*time.Second, 3)                                 // 10s, 10s, 10s
	slow := delay.Exponential(time.Second, 4, 10*time.Minute, 6)            // 1s, 4s, 16s, 1m4s, 4m16s, 10m
	exact := delay.Schedule{time.Minute, time.Hour, 24 * time.Hour}         // your own, at most 16 waits
	once := topology.WorkQueue{Name: "reports", Waits: delay.Schedule(nil)} // no retries: the first failure is a dead letter
	// end schedules
	check(errors.Join(quick.Validate(), slow.Validate(), exact.Validate()))
	if fmt.Sprint(slow) != "[1s 4s 16s 1m4s 4m16s 10m0s]" {
		t.Error(slow)
	}
	inShop(t, "", func(s *shop) {
		s.declare(once)
		worker, err := consumer.New(s.conn, once, func(context.Context, *consumer.Delivery) error { return errPaper }, consumer.Config{})
		check(err)
		s.run(worker)
		m := message("report-1")
		m.RoutingKey = "reports"
		s.publish(m)
		after(time.Second)
		s.ready("reports.dlq", 1)
	})
}

func TestClassify(t *testing.T) {
	d := &consumer.Delivery{ID: "7", Timestamp: time.Now()}
	var paid consumer.Handler = func(context.Context, *consumer.Delivery) error { return sql.ErrNoRows }
	// begin classify
	classify, err := consumer.Classify(
		consumer.Rule{Is: sql.ErrNoRows, Then: consumer.Outcome{Action: consumer.ActionDeadLetter}},
		consumer.Rule{Is: context.DeadlineExceeded, Then: consumer.Outcome{Action: consumer.ActionRetryAfter, After: 10 * time.Minute}},
		consumer.Rule{OlderThan: 24 * time.Hour, Then: consumer.Outcome{Action: consumer.ActionDeadLetter, Cause: rehop.CauseExpired}},
	)
	check(err)
	handler := consumer.Wrap(paid, classify)
	// end classify
	if o := consumer.OutcomeOf(handler(t.Context(), d)); o.Action != consumer.ActionDeadLetter {
		t.Error(o)
	}
	paid = func(context.Context, *consumer.Delivery) error { return errPaper }
	// begin handlertest
	outcome := consumer.OutcomeOf(paid(t.Context(), &consumer.Delivery{ID: "7", Body: []byte(`{"id":"7"}`)}))
	if outcome.Action != consumer.ActionRetry {
		t.Errorf("a printer without paper: %v, want a retry", outcome)
	}
	// end handlertest
}

func TestSnooze(t *testing.T) {
	inShop(t, "", func(s *shop) {
		conn := s.conn
		s.declare(orders)
		var exists atomic.Bool
		var runs atomic.Int32
		known := func(context.Context, string) bool { runs.Add(1); return exists.Load() }
		// begin snooze
		bounded, err := consumer.Classify(consumer.Rule{Snoozed: 10, Then: consumer.Outcome{Action: consumer.ActionDeadLetter}})
		check(err)
		handler := consumer.Wrap(func(ctx context.Context, d *consumer.Delivery) error {
			if !known(ctx, d.CorrelationID) {
				return consumer.Snooze(time.Minute, "the customer is not there yet")
			}
			return nil
		}, bounded)
		// end snooze
		worker, err := consumer.New(conn, orders, handler, consumer.Config{})
		check(err)
		s.run(worker)
		s.publish(message("order-7"))
		after(2*time.Minute + time.Second)
		exists.Store(true)
		after(2 * time.Minute)
		s.ready("orders.dlq", 0)
		if n := runs.Load(); n != 4 {
			s.Errorf("%d runs, want 4", n)
		}
	})
}

// In place a message keeps its slot while it waits.
func TestRetryInPlace(t *testing.T) {
	inShop(t, "", func(s *shop) {
		conn := s.conn
		var seen []string
		handle := func(_ context.Context, d *consumer.Delivery) error {
			seen = append(seen, d.ID)
			if len(seen) < 3 {
				return errPaper
			}
			return nil
		}
		// begin inplace
		invoices := topology.WorkQueue{Name: "invoices", Waits: delay.Fixed(10*time.Second, 4)}
		check(topology.Declare(s.ctx, conn, invoices)) // hidden
		worker, err := consumer.New(conn, invoices, handle, consumer.Config{Concurrency: 16, KeyLimit: 1, RetryInPlace: true})
		// end inplace
		check(err)
		for _, id := range []string{"a", "b"} {
			m := message(id)
			m.RoutingKey, m.OrderKey = "invoices", "customer-7"
			s.publish(m)
		}
		s.run(worker)
		after(time.Minute)
		if !slices.Equal(seen, []string{"a", "a", "a", "b"}) {
			s.Error(seen)
		}
	})
}
