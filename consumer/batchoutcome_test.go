package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/xdeath"
)

func TestEachMessageOfABatchHasItsOutcome(t *testing.T) {
	everywhere(t, func(w *fixture) {
		var r runs
		_, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
			r.note(batch)
			errs := make(consumer.BatchErrors, len(batch))
			for i, d := range batch {
				if d.Attempt > 1 || d.History.Snoozes > 0 {
					continue
				}
				errs[i] = map[string]error{
					id(1): errBroken, id(2): consumer.DeadLetter(errBroken), id(3): consumer.RetryAfter(3*time.Minute, errBroken),
					id(4): consumer.Discard("not wanted"), id(5): consumer.Snooze(time.Minute, "not its turn"),
				}[d.ID]
			}
			return fmt.Errorf("some of a batch: %w", errs)
		}, consumer.Config{Batch: consumer.Batch{Size: 10, Linger: time.Second}})
		time.Sleep(time.Second)
		w.publish(10)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		w.truthful()
		for n, want := range map[int]consumer.Settlement{
			0: {Disposition: consumer.DispositionDone},
			1: {Disposition: consumer.DispositionWait, WaitNumber: 1, Wait: time.Minute},
			2: {Disposition: consumer.DispositionDeadLetter, Cause: rehop.CausePermanent},
			3: {Disposition: consumer.DispositionWait, WaitNumber: 2, Wait: 5 * time.Minute},
			4: {Disposition: consumer.DispositionDone},
			5: {Disposition: consumer.DispositionWait, WaitNumber: 1, Wait: time.Minute, Snoozed: true},
			9: {Disposition: consumer.DispositionDone},
		} {
			if got := w.journal.of(id(n)); !slices.Equal(got, []consumer.Settlement{want}) {
				w.Errorf("message %d was settled as %+v, want %+v", n, got, want)
			}
		}
		if got := r.sizes(); !slices.Equal(got, []int{10}) {
			w.Errorf("batches of %v, want one of 10: each has its outcome", got)
		}
		time.Sleep(6 * time.Minute)
		w.stopped(stop)
		for n, want := range map[int][]int{1: {1, 2}, 2: {1}, 3: {1, 2}, 5: {1, 1}} {
			if got := r.attempts()[id(n)]; !slices.Equal(got, want) {
				w.Errorf("attempts at message %d: %v, want %v", n, got, want)
			}
		}
		w.has("orders")
		w.has("orders.dlq", id(2))
	})
}

func TestABatchIsSplitUntilOnlyTheMessageAtFaultFails(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error": func() error { return errBroken },
		"panic": func() error { panic(errBroken) },
		"join":  func() error { return errors.Join(errBroken, consumer.Snooze(time.Hour, "")) },
	} {
		t.Run(name, func(t *testing.T) {
			onEachEngine(t, func(w *fixture) {
				var r runs
				_, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
					r.note(batch)
					for _, d := range batch {
						if d.ID == id(70) {
							return fail()
						}
					}
					return nil
				}, consumer.Config{Batch: consumer.Batch{Size: 100, Linger: time.Second}})
				time.Sleep(time.Second)
				w.publish(100)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				w.truthful()
				if calls := len(r.sizes()); calls > 15 || calls < 9 {
					w.Errorf("%d calls of the handler for 100 messages, want at most 15", calls)
				}
				if done := w.journal.count(consumer.DispositionDone); done != 99 {
					w.Errorf("%d messages are done, want 99", done)
				}
				for id, tries := range r.attempts() {
					if slices.Max(tries) > 1 {
						w.Errorf("message %s was handled as attempts %v, want one attempt", id, tries)
					}
				}
				time.Sleep(10 * time.Minute)
				w.stopped(stop)
				w.has("orders.dlq", id(70))
				w.has("orders")
				if h, _ := xdeath.Parse(w.letter().Headers); h.FinalAttempts != 3 || h.Failure.Cause != rehop.CauseExhausted {
					w.Errorf("the letter says %q after %d attempts", h.Failure.Cause, h.FinalAttempts)
				}
			})
		})
	}
}

func TestNoMessageIsDeadLetteredForTheFaultOfAnother(t *testing.T) {
	everywhere(t, func(w *fixture) {
		w.declare(w.orders)
		var r runs
		_, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
			r.note(batch)
			for _, d := range batch {
				if d.LastAttempt && len(batch) > 1 {
					return fmt.Errorf("message %s has its last attempt in a batch of %d", d.ID, len(batch))
				}
			}
			for _, d := range batch {
				if d.Type == "bad" {
					return errBroken
				}
			}
			return nil
		}, consumer.Config{Concurrency: 2, Batch: consumer.Batch{Size: 50, Linger: time.Second}})
		time.Sleep(time.Second)
		var bad []string
		for n := range 200 {
			if n%7 != 0 {
				w.publish(1)
				continue
			}
			bad = append(bad, id(n))
			w.publish(1, func(m *rehoptest.Message) { m.Type = "bad" })
		}
		time.Sleep(20 * time.Minute)
		w.stopped(stop)
		slices.Sort(bad)
		w.has("orders.dlq", bad...)
		w.has("orders")
		w.truthful()
	})
}

func TestABatchWithAnOutcomeForAllIsNotSplit(t *testing.T) {
	onNewest(t, func(w *fixture) {
		for _, c := range []struct {
			err   error
			where consumer.Disposition
		}{
			{consumer.Discard("all"), consumer.DispositionDone},
			{consumer.DeadLetter(errBroken), consumer.DispositionDeadLetter},
			{consumer.RetryAfter(time.Minute, errBroken), consumer.DispositionWait},
			{consumer.Snooze(time.Minute, "later"), consumer.DispositionWait},
			{consumer.BatchErrors{errBroken}, consumer.DispositionWait}, // not one for each: all have failed
		} {
			w.journal.mu.Lock()
			clear(w.journal.settled)
			w.journal.mu.Unlock()
			var r runs
			_, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
				if batch[0].Attempt+batch[0].History.Snoozes > 1 {
					return nil
				}
				r.note(batch)
				return c.err
			}, consumer.Config{Batch: consumer.Batch{Size: 10, Linger: time.Second}})
			time.Sleep(time.Second)
			w.publish(10)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if got := r.sizes(); !slices.Equal(got, []int{10}) || w.journal.count(c.where) != 10 {
				w.Errorf("%v: runs with %v, %d messages went to %v; want one run with 10, and all of them", c.err, got, w.journal.count(c.where), c.where)
			}
			time.Sleep(2 * time.Minute)
			w.stopped(stop)
			w.broker.Drain("orders.dlq")
		}
		w.has("orders")
	})
}

func TestAHandlerOfBatchesThatEndsItsGoroutine(t *testing.T) {
	onNewest(t, func(w *fixture) {
		var r runs
		_, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
			switch r.note(batch) {
			case 1: // the whole
				return errBroken
			case 2: // a half
				return nil
			case 3:
				runtime.Goexit()
			}
			return nil
		}, consumer.Config{Batch: consumer.Batch{Size: 10, Linger: time.Second}})
		time.Sleep(time.Second)
		w.publish(10)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if done, waits := w.journal.count(consumer.DispositionDone), w.journal.count(consumer.DispositionWait); done != 5 || waits != 5 {
			w.Errorf("%d are done and %d wait, want 5 and 5", done, waits)
		}
		w.truthful()
		w.publish(10)
		time.Sleep(2 * time.Minute)
		w.stopped(stop)
		w.has("orders")
		w.has("orders.dlq")
	})
}

func TestHandlerTimeoutIsOneBoundForABatch(t *testing.T) {
	onNewest(t, func(w *fixture) {
		var r runs
		var ends []time.Duration
		_, stop := w.startBatch(w.orders, func(ctx context.Context, batch []*consumer.Delivery) error {
			r.note(batch)
			if batch[0].Attempt > 1 {
				return nil
			}
			until, _ := ctx.Deadline()
			ends = append(ends, time.Until(until))
			select {
			case <-time.After(4 * time.Second):
				return errBroken
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}, consumer.Config{HandlerTimeout: 10 * time.Second, Batch: consumer.Batch{Size: 16, Linger: time.Second}})
		time.Sleep(time.Second)
		w.publish(16)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if want := []time.Duration{10 * time.Second, 6 * time.Second, 2 * time.Second}; !slices.Equal(ends, want) {
			w.Errorf("the runs had %v, want %v", ends, want)
		}
		w.truthful()
		if waits := w.journal.count(consumer.DispositionWait); waits != 16 {
			w.Errorf("%d messages wait, want all 16: they have failed in company", waits)
		}
		time.Sleep(time.Minute)
		w.stopped(stop)
		w.has("orders")
		w.has("orders.dlq")
	})
}

func TestBatchWrappers(t *testing.T) {
	type order struct{ Number int }
	bodies := func(texts ...string) (batch []*consumer.Delivery) {
		for i, text := range texts {
			batch = append(batch, &consumer.Delivery{ID: id(i), Attempt: 1, Body: []byte(text)})
		}
		return batch
	}
	rules := consumer.ClassifyBatch(
		consumer.Rule{Is: errAway, Then: consumer.Outcome{Action: consumer.ActionHold}},
		consumer.Rule{Is: errBroken, Then: consumer.Outcome{Action: consumer.ActionDeadLetter}})
	for _, c := range []struct {
		name     string
		batch    []*consumer.Delivery
		returns  func(values int) error
		want     string // outcomes, or that of all
		wantSeen int
	}{
		{"all are done", bodies(`{"Number":1}`, `{"Number":2}`), func(int) error { return nil }, "done", 2},
		{"one is no JSON", bodies(`{"Number":1}`, `junk`, `{"Number":3}`), func(int) error { return nil }, "done, dead-letter (undecodable), done", 2},
		{"none is JSON", bodies(`junk`), nil, "dead-letter (undecodable)", 0},
		{"a plain error of all stays one", bodies(`{}`, `junk`, `{}`), func(int) error { return errors.New("plain") }, "retry", 2},
		{"of one it is its own", bodies(`{}`, `junk`), func(int) error { return errors.New("plain") }, "retry, dead-letter (undecodable)", 1},
		{"each has its own", bodies(`{}`, `junk`, `{}`), func(int) error { return consumer.BatchErrors{nil, errBroken} }, "done, dead-letter (undecodable), dead-letter", 2},
		{"an outage of all", bodies(`{}`, `{}`), func(int) error { return errAway }, "hold", 2},
		{"an outage of all that are JSON", bodies(`{}`, `junk`, `{}`), func(int) error { return consumer.Hold(errAway) }, "hold, dead-letter (undecodable), hold", 2},
		{"a rule that is about one message does not speak for all", bodies(`{}`, `{}`), func(int) error { return errBroken }, "retry", 2},
		{"but for one that is alone", bodies(`{}`), func(int) error { return errBroken }, "dead-letter", 1},
		{"an outcome of all", bodies(`{}`, `{}`), func(int) error { return consumer.Discard("all") }, "discard (all), discard (all)", 2},
		{"too few errors", bodies(`{}`, `{}`, `junk`), func(int) error { return consumer.BatchErrors{nil} }, "retry", 2},
	} {
		seen := 0
		handler := rules(consumer.JSONBatch(func(_ context.Context, batch []*consumer.Delivery, values []order) error {
			if seen = len(values); len(batch) != seen {
				t.Errorf("%s: %d messages and %d values", c.name, len(batch), seen)
			}
			return c.returns(seen)
		}))
		err := handler(t.Context(), c.batch)
		got := ""
		if each, ok := err.(consumer.BatchErrors); ok && len(each) == len(c.batch) { //nolint:errorlint // it is not wrapped
			var all []string
			for _, err := range each {
				all = append(all, consumer.OutcomeOf(err).String())
			}
			got = strings.Join(all, ", ")
		} else {
			got = consumer.OutcomeOf(err).String()
		}
		if got != c.want && strings.Join(slices.Compact(strings.Split(got, ", ")), ", ") != c.want || seen != c.wantSeen {
			t.Errorf("%s: %s, %d values; want %s, %d", c.name, got, seen, c.want, c.wantSeen)
		}
	}
}

func TestBatchErrorsSayHowMany(t *testing.T) {
	errs := consumer.BatchErrors{nil, errBroken, errAway}
	if got := errs.Error(); got != "2 in a batch of 3: broken" {
		t.Errorf("Error() = %q", got)
	}
	if !errors.Is(errs, errAway) {
		t.Error("errors.Is does not find an error of a message")
	}
	if got := make(consumer.BatchErrors, 2).Error(); got != "no error in a batch of 2" {
		t.Errorf("Error() = %q", got)
	}
}

// A handler of batches may return BatchErrors each time, and no error among them is none.
func TestBatchErrorsWithoutAnErrorAreNone(t *testing.T) {
	onNewest(t, func(w *fixture) {
		w.publish(3)
		var told []error
		_, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
			return make(consumer.BatchErrors, len(batch))
		}, consumer.Config{Traces: []consumer.Trace{{BatchHandled: func(_ context.Context, _ []*consumer.Delivery, err error, _ time.Duration) { told = append(told, err) }}}})
		time.Sleep(time.Minute)
		w.stopped(stop)
		w.has("orders")
		if len(told) == 0 || told[0] != nil {
			w.Errorf("BatchHandled is told of %v", told)
		}
	})
}
