package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

func TestEachMessageOfABatchHasItsOutcome(t *testing.T) {
	everywhere(t, func(w *fixture) {
		var r runs
		_, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
			r.note(batch)
			for _, d := range batch {
				if d.Attempt > 1 || d.History.Snoozes > 0 {
					continue
				}
				d.Fail(map[string]error{
					id(1): errBroken, id(2): consumer.DeadLetter(errBroken), id(3): consumer.RetryAfter(3*time.Minute, errBroken),
					id(4): consumer.Discard("not wanted"), id(5): consumer.Snooze(time.Minute, "not its turn"),
				}[d.ID])
			}
			return nil
		}, consumer.Batch{Size: 10, Linger: time.Second}, consumer.Config{})
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
				}, consumer.Batch{Size: 100, Linger: time.Second}, consumer.Config{})
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
		}, consumer.Batch{Size: 50, Linger: time.Second}, consumer.Config{Concurrency: 2})
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

// A failed attempt is the last one there. So many messages at fault are looked for by as
// many calls as it takes.
func TestOnAQueueWithoutWaitsNoMessageIsDeadLetteredForTheFaultOfAnother(t *testing.T) {
	for rule, outcome := range map[string]func(error) error{
		"plain":       func(err error) error { return err },
		"dead letter": consumer.DeadLetter,
		"retry after": func(err error) error { return consumer.RetryAfter(time.Second, err) },
	} {
		t.Run(rule, func(t *testing.T) {
			onNewest(t, func(w *fixture) {
				w.orders.Waits = nil
				w.declare(w.orders)
				calls := 0
				_, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
					calls++
					for _, d := range batch {
						if d.Type == "bad" {
							return outcome(errBroken)
						}
					}
					return nil
				}, consumer.Batch{Size: 100, Linger: time.Second}, consumer.Config{})
				time.Sleep(time.Second)
				var bad []string
				for n := range 100 {
					if n%9 != 0 {
						w.publish(1)
						continue
					}
					bad = append(bad, id(n))
					w.publish(1, func(m *rehoptest.Message) { m.Type = "bad" })
				}
				time.Sleep(time.Minute)
				w.stopped(stop)
				slices.Sort(bad)
				w.has("orders.dlq", bad...)
				w.has("orders")
				w.truthful()
				if calls > 2*100-1 {
					w.Errorf("%d calls, want 199 at most", calls)
				}
			})
		})
	}
}

func TestAnOutcomeThatLosesNothingIsOfAllMessagesOfABatch(t *testing.T) {
	onNewest(t, func(w *fixture) {
		for _, c := range []struct {
			err   error
			where consumer.Disposition
		}{
			{consumer.RetryAfter(time.Minute, errBroken), consumer.DispositionWait},
			{consumer.Snooze(time.Minute, "later"), consumer.DispositionWait},
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
			}, consumer.Batch{Size: 10, Linger: time.Second}, consumer.Config{})
			time.Sleep(time.Second)
			w.publish(10)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if got := r.sizes(); !slices.Equal(got, []int{10}) || w.journal.count(c.where) != 10 {
				w.Errorf("%v: runs with %v, %d messages went to %v; want one run with 10, and all of them", c.err, got, w.journal.count(c.where), c.where)
			}
			time.Sleep(2 * time.Minute)
			w.stopped(stop)
		}
		w.has("orders")
		w.has("orders.dlq")
	})
}

// An outcome that loses a message, returned for several, becomes that of the message at fault
// alone.
func TestAnOutcomeOfOneMessageIsGivenToNoOther(t *testing.T) {
	for rule, c := range map[string]struct {
		err     error
		noWaits bool
		want    consumer.Settlement
	}{
		"dead letter":                        {consumer.DeadLetter(errBroken), false, consumer.Settlement{Disposition: consumer.DispositionDeadLetter, Cause: rehop.CausePermanent}},
		"dead letter, wrapped":               {fmt.Errorf("a: %w", errors.Join(errAway, consumer.DeadLetter(errBroken))), false, consumer.Settlement{Disposition: consumer.DispositionDeadLetter, Cause: rehop.CausePermanent}},
		"discard":                            {consumer.Discard("old"), false, consumer.Settlement{Disposition: consumer.DispositionDone}},
		"retry after, where it dead-letters": {consumer.RetryAfter(time.Minute, errBroken), true, consumer.Settlement{Disposition: consumer.DispositionDeadLetter, Cause: rehop.CauseExhausted}},
	} {
		t.Run(rule, func(t *testing.T) {
			onNewest(t, func(w *fixture) {
				if c.noWaits {
					w.orders = topology.WorkQueue{Name: "plain", Type: w.orders.Type}
					w.declare(w.orders)
				}
				var r runs
				var log lines
				var worked []string
				_, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
					r.note(batch)
					for _, d := range batch {
						if d.ID == id(70) {
							return c.err
						}
					}
					for _, d := range batch {
						worked = append(worked, d.ID)
					}
					return nil
				}, consumer.Batch{Size: 100, Linger: time.Second}, consumer.Config{Logger: log.logger()})
				time.Sleep(time.Second)
				w.publish(100)
				time.Sleep(10 * time.Minute)
				w.stopped(stop)
				if calls := len(r.sizes()); calls > 15 {
					w.Errorf("%d calls of the handler for 100 messages, want at most 15", calls)
				}
				if len(worked) != 99 {
					w.Errorf("the work of %d messages was done, want 99", len(worked))
				}
				if got := w.journal.of(id(70)); !slices.Equal(got, []consumer.Settlement{c.want}) {
					w.Errorf("the message at fault was settled as %+v, want %+v", got, c.want)
				}
				if n := len(log.with("message discarded")); n > 1 {
					w.Errorf("%d messages were discarded, want only the one at fault", n)
				}
			})
		})
	}
}

// If too many messages are at fault to find them all, those that never were alone have failed
// their attempt, and come back.
func TestAnOutcomeThatLosesNeverIsOfSeveral(t *testing.T) {
	for rule, outcome := range map[string]func(error) error{
		"dead letter": consumer.DeadLetter,
		"discard":     func(error) error { return consumer.Discard("old") },
	} {
		t.Run(rule, func(t *testing.T) {
			onNewest(t, func(w *fixture) {
				first := true
				var alone []string
				_, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
					for _, d := range batch {
						first = first && d.Attempt == 1
					}
					if !first {
						return nil
					}
					if len(batch) == 1 {
						alone = append(alone, batch[0].ID)
					}
					return outcome(errBroken)
				}, consumer.Batch{Size: 100, Linger: time.Second}, consumer.Config{})
				time.Sleep(time.Second)
				w.publish(100)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				w.truthful()
				if waits := w.journal.count(consumer.DispositionWait); waits != 100-len(alone) || waits < 80 {
					w.Errorf("%d messages wait, want all but the %d that were alone", waits, len(alone))
				}
				time.Sleep(10 * time.Minute)
				w.stopped(stop)
				w.has("orders")
			})
		})
	}
}

// The error of a message is settled at once, and what is returned is about the others.
func TestAMessageWithAnErrorOfItsOwnIsNotRunAgain(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error":       func() error { return errBroken },
		"dead letter": func() error { return consumer.DeadLetter(errBroken) },
		"panic":       func() error { panic(errBroken) },
		"goexit":      func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			onNewest(t, func(w *fixture) {
				seen := map[string]int{}
				_, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
					bad := false
					for _, d := range batch {
						if d.Err() != nil {
							w.Errorf("message %s comes with the error %v of a run before", d.ID, d.Err())
						}
						seen[d.ID]++
						switch d.ID {
						case id(1), id(6):
							d.Fail(errAway)
							d.Fail(consumer.DeadLetter(errAway))
						case id(3):
							d.Fail(consumer.DeadLetter(errAway))
							d.Fail(nil)
						case id(5):
							bad = bad || d.Attempt == 1
						}
					}
					if bad {
						return fail()
					}
					return nil
				}, consumer.Batch{Size: 10, Linger: time.Second}, consumer.Config{})
				time.Sleep(time.Second)
				w.publish(10)
				time.Sleep(10 * time.Minute)
				w.stopped(stop)
				for _, n := range []int{1, 6} {
					if got := w.journal.of(id(n)); len(got) != 1 || got[0].Cause != rehop.CausePermanent || seen[id(n)] != 1 {
						w.Errorf("message %d: %d runs, settled as %+v; want one run, and a dead letter", n, seen[id(n)], got)
					}
				}
				for _, n := range []int{0, 2, 3, 4, 7, 8, 9} {
					if got := w.journal.of(id(n)); got[len(got)-1].Disposition != consumer.DispositionDone {
						w.Errorf("message %d was settled as %+v, want done in the end", n, got)
					}
				}
				w.has("orders")
			})
		})
	}
}

// The returned error may be about the call, and not about the only message that has no error
// of its own. It is that message's once it is alone.
func TestTheOnlyMessageWithoutAnErrorOfItsOwnHasTheReturnedOneWhenItIsAlone(t *testing.T) {
	for rule, c := range map[string]struct {
		alone error // what the handler returns for the message alone
		want  consumer.Settlement
	}{
		"not at fault": {nil, consumer.Settlement{Disposition: consumer.DispositionDone}},
		"at fault":     {consumer.DeadLetter(errBroken), consumer.Settlement{Disposition: consumer.DispositionDeadLetter, Cause: rehop.CausePermanent}},
	} {
		for how, fail := range map[string]func() error{
			"dead letter": func() error { return consumer.DeadLetter(errBroken) },
			"plain":       func() error { return errBroken },
			"panic":       func() error { panic(errBroken) },
		} {
			t.Run(rule+"/"+how, func(t *testing.T) {
				onNewest(t, func(w *fixture) {
					w.orders.Waits = nil // a failed attempt is a dead letter
					w.declare(w.orders)
					var r runs
					_, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
						r.note(batch)
						if len(batch) == 1 {
							return c.alone
						}
						for _, d := range batch[1:] {
							d.Fail(consumer.Discard("old"))
						}
						return fail()
					}, consumer.Batch{Size: 10, Linger: time.Second}, consumer.Config{})
					time.Sleep(time.Second)
					w.publish(10)
					time.Sleep(time.Minute)
					w.stopped(stop)
					if got := r.sizes(); !slices.Equal(got, []int{10, 1}) {
						w.Errorf("runs with %v messages, want one with 10 and one with 1", got)
					}
					if got := w.journal.of(id(0)); !slices.Equal(got, []consumer.Settlement{c.want}) {
						w.Errorf("the message was settled as %+v, want %+v", got, c.want)
					}
				})
			})
		}
	}
}

// An error whose methods panic is the fault of its message alone.
func TestAnErrorOfOnesOwnWhoseMethodsPanic(t *testing.T) {
	onNewest(t, func(w *fixture) {
		var r runs
		_, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
			r.note(batch)
			for _, d := range batch {
				if d.ID == id(4) {
					d.Fail((*wrapsNil)(nil))
				}
			}
			return nil
		}, consumer.Batch{Size: 10, Linger: time.Second}, consumer.Config{})
		time.Sleep(time.Second)
		w.publish(10)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := r.sizes(); !slices.Equal(got, []int{10}) || w.journal.count(consumer.DispositionDone) != 9 {
			w.Errorf("runs with %v messages, %d are done; want one with 10, and 9", got, w.journal.count(consumer.DispositionDone))
		}
		time.Sleep(10 * time.Minute)
		w.stopped(stop)
		w.has("orders.dlq", id(4))
	})
}

// A message that is held keeps its place in the batch, and the errors of a run are not those of
// the next one.
func TestHeldMessagesOfABatchAreRunAgainInTheirOrder(t *testing.T) {
	onNewest(t, func(w *fixture) {
		var batches [][]string
		_, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
			var ids []string
			for _, d := range batch {
				ids = append(ids, d.ID)
				if d.Err() != nil {
					w.Errorf("message %s comes with the error %v of a run before", d.ID, d.Err())
				}
				if len(batches) == 0 && d.ID != id(1) {
					d.Fail(consumer.Hold(errAway))
				}
			}
			batches = append(batches, ids)
			return nil
		}, consumer.Batch{Size: 4, Linger: time.Second}, consumer.Config{})
		time.Sleep(time.Second)
		w.publish(4)
		time.Sleep(time.Minute)
		w.stopped(stop)
		if want := [][]string{{id(0), id(1), id(2), id(3)}, {id(0), id(2), id(3)}}; !slices.EqualFunc(batches, want, slices.Equal) {
			w.Errorf("runs with %v, want %v", batches, want)
		}
		w.has("orders")
	})
}

// A hook that ends the goroutine before a run has begun is no failed attempt.
func TestAHookThatEndsTheGoroutineOfABatchSpendsNoAttempt(t *testing.T) {
	onNewest(t, func(w *fixture) {
		w.orders.Waits = nil // a failed attempt is a dead letter
		w.declare(w.orders)
		var r runs
		first := true
		_, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
			r.note(batch)
			return nil
		}, consumer.Batch{Size: 3, Linger: time.Second}, consumer.Config{Traces: []consumer.Trace{{Batched: func(ctx context.Context, _ consumer.Batched) context.Context {
			if first {
				first = false
				runtime.Goexit()
			}
			return ctx
		}}}})
		time.Sleep(time.Second)
		w.publish(3)
		time.Sleep(time.Minute)
		w.stopped(stop)
		w.has("orders.dlq")
		for id, attempts := range r.attempts() {
			if !slices.Equal(attempts, []int{1}) {
				w.Errorf("%s ran as attempts %v, want the first", id, attempts)
			}
		}
		if done := w.journal.count(consumer.DispositionDone); done != 3 {
			w.Errorf("%d are done, want 3", done)
		}
	})
}

// The log names the messages of the run that does not return, and none that is settled.
func TestTheLogNamesTheRunOfABatchThatDoesNotReturn(t *testing.T) {
	onNewest(t, func(w *fixture) {
		var r runs
		var log lines
		release := make(chan struct{})
		_, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
			switch r.note(batch) {
			case 1: // the whole
				return errBroken
			case 3: // the second half
				<-release
			}
			return nil
		}, consumer.Batch{Size: 8, Linger: time.Second}, consumer.Config{HandlerTimeout: time.Second, Logger: log.logger()})
		time.Sleep(time.Second)
		w.publish(8)
		time.Sleep(time.Minute)
		close(release)
		time.Sleep(10 * time.Minute)
		w.stopped(stop)
		if len(log.with("level=ERROR", "past its timeout", "message=m4 messages=4")) != 1 {
			w.Errorf("the log does not name m4 and three others:\n%v", log.with("past its timeout"))
		}
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
		}, consumer.Batch{Size: 10, Linger: time.Second}, consumer.Config{})
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

// A part that was held, and a part that was not called again, do not fail with another part
// whose handler ends its goroutine.
func TestAHandlerThatEndsItsGoroutineFailsItsOwnPart(t *testing.T) {
	onNewest(t, func(w *fixture) {
		w.orders.Waits = nil // a failed attempt is a dead letter
		w.declare(w.orders)
		var r runs
		var gone []string
		_, stop := w.startBatch(w.orders, func(_ context.Context, batch []*consumer.Delivery) error {
			switch r.note(batch) {
			case 1: // the whole
				return errBroken
			case 2: // the first half
				return consumer.Hold(errAway)
			case 3: // the second
				return errBroken
			case 4: // a quarter: the last one is not called
				for _, d := range batch {
					gone = append(gone, d.ID)
				}
				runtime.Goexit()
			}
			return nil
		}, consumer.Batch{Size: 8, Linger: time.Second}, consumer.Config{})
		time.Sleep(time.Second)
		w.publish(8)
		time.Sleep(2 * time.Minute)
		w.stopped(stop)
		if len(gone) != 2 {
			w.Errorf("%d messages were in the run, want 2", len(gone))
		}
		w.has("orders.dlq", gone...)
		w.has("orders")
		w.truthful()
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
		}, consumer.Batch{Size: 16, Linger: time.Second}, consumer.Config{HandlerTimeout: 10 * time.Second})
		time.Sleep(time.Second)
		w.publish(16)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if want := []time.Duration{10 * time.Second, 6 * time.Second, 2 * time.Second}; !slices.Equal(ends, want) {
			w.Errorf("the runs had %v, want %v", ends, want)
		}
		w.truthful()
		if waits := w.journal.count(consumer.DispositionWait); waits != 16 {
			w.Errorf("%d messages wait, want all 16: no run has told them apart", waits)
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
	rules, err := consumer.ClassifyBatch(
		consumer.Rule{Is: errAway, Then: consumer.Outcome{Action: consumer.ActionHold}},
		consumer.Rule{Is: errBroken, Then: consumer.Outcome{Action: consumer.ActionDeadLetter}},
		consumer.Rule{OlderThan: time.Hour, Then: consumer.Outcome{Action: consumer.ActionDeadLetter, Cause: rehop.CauseExpired}})
	if err != nil {
		t.Fatal(err)
	}
	old := func(batch []*consumer.Delivery, i int) []*consumer.Delivery {
		batch[i].Timestamp = time.Now().Add(-2 * time.Hour)
		return batch
	}
	for _, c := range []struct {
		name     string
		batch    []*consumer.Delivery
		returns  func(batch []*consumer.Delivery) error
		want     string // the outcomes: of the returned error, and of each message with an error of its own
		wantSeen int
	}{
		{"all are done", bodies(`{"Number":1}`, `{"Number":2}`), func([]*consumer.Delivery) error { return nil }, "done", 2},
		{"one is no JSON", bodies(`{"Number":1}`, `junk`, `{"Number":3}`), func([]*consumer.Delivery) error { return nil }, "done, m1 dead-letter (undecodable)", 2},
		{"none is JSON", bodies(`junk`), nil, "done, m0 dead-letter (undecodable)", 0},
		{"a plain error is of all others", bodies(`{}`, `junk`, `{}`), func([]*consumer.Delivery) error { return errors.New("plain") }, "retry, m1 dead-letter (undecodable)", 2},
		{"each has its own", bodies(`{}`, `junk`, `{}`), func(b []*consumer.Delivery) error { b[1].Fail(errBroken); return nil }, "done, m1 dead-letter (undecodable), m2 dead-letter", 2},
		{"its own and a returned one", bodies(`{}`, `{}`, `{}`), func(b []*consumer.Delivery) error { b[1].Fail(errBroken); return errAway }, "hold, m1 dead-letter", 3},
		{"an outage of all", bodies(`{}`, `{}`), func([]*consumer.Delivery) error { return errAway }, "hold", 2},
		{"an outage of all that are JSON", bodies(`{}`, `junk`, `{}`), func([]*consumer.Delivery) error { return consumer.Hold(errAway) }, "hold, m1 dead-letter (undecodable)", 2},
		{"an outage ends one by its age", old(bodies(`{}`, `{}`, `{}`), 1), func([]*consumer.Delivery) error { return consumer.Hold(errors.New("plain")) }, "hold, m1 dead-letter (expired)", 3},
		{"a rule that is about one message does not speak for all", bodies(`{}`, `{}`), func([]*consumer.Delivery) error { return errBroken }, "retry", 2},
		{"rules that differ do not speak for all", old(bodies(`{}`, `{}`), 1), func([]*consumer.Delivery) error { return errors.New("plain") }, "retry", 2},
		{"but for one that is alone", bodies(`{}`), func([]*consumer.Delivery) error { return errBroken }, "dead-letter", 1},
		{"nor for the only one without an error of its own", bodies(`{}`, `junk`), func([]*consumer.Delivery) error { return errBroken }, "retry, m1 dead-letter (undecodable)", 1},
		{"an outage of the only one without an error of its own", bodies(`{}`, `junk`), func([]*consumer.Delivery) error { return errAway }, "hold, m1 dead-letter (undecodable)", 1},
		{"an outcome of all", bodies(`{}`, `{}`), func([]*consumer.Delivery) error { return consumer.Discard("all") }, "discard (all)", 2},
		{"an outcome that its own error has stays", bodies(`{}`), func(b []*consumer.Delivery) error {
			b[0].Fail(fmt.Errorf("w: %w", consumer.Snooze(time.Minute, "early")))
			return nil
		}, "done, m0 snooze 1m0s (early)", 1},
	} {
		seen := 0
		handler := rules(consumer.JSONBatch(func(_ context.Context, batch []*consumer.Delivery, values []order) error {
			if seen = len(values); len(batch) != seen {
				t.Errorf("%s: %d messages and %d values", c.name, len(batch), seen)
			}
			return c.returns(batch)
		}))
		got := consumer.OutcomeOf(handler(t.Context(), c.batch)).String()
		for _, d := range c.batch {
			if d.Err() != nil {
				got += ", " + d.ID + " " + consumer.OutcomeOf(d.Err()).String()
			}
		}
		if got != c.want || seen != c.wantSeen {
			t.Errorf("%s: %s, %d values; want %s, %d", c.name, got, seen, c.want, c.wantSeen)
		}
	}
}

// An outcome that the error of a decode function has, however deep, stays.
func TestTheOutcomeOfADecodeErrorStays(t *testing.T) {
	away := consumer.Hold(errAway)
	for _, c := range []struct {
		rule string
		err  error
		want string
	}{
		{"no outcome", fmt.Errorf("a: %w", errBroken), "dead-letter (undecodable)"},
		{"hold", away, "hold"},
		{"hold, wrapped", fmt.Errorf("a: %w", fmt.Errorf("b: %w", away)), "hold"},
		{"hold among several %w", fmt.Errorf("%w and %w", errBroken, away), "hold"},
		{"hold in a join", errors.Join(errBroken, fmt.Errorf("a: %w", away)), "hold"},
		{"hold in a panic that somebody has recovered", &consumer.PanicError{Value: away}, "hold"},
		{"snooze", consumer.Snooze(time.Minute, "no schema yet"), "snooze 1m0s (no schema yet)"},
		{"retry after", consumer.RetryAfter(time.Minute, errBroken), "retry-after 1m0s"},
		{"discard", consumer.Discard("old"), "discard (old)"},
		{"dead letter", consumer.DeadLetter(errBroken), "dead-letter"},
	} {
		decode := func(d *consumer.Delivery) (int, error) {
			if d.Type == "good" {
				return 7, nil
			}
			return 0, c.err
		}
		one := consumer.Decode(decode, func(context.Context, *consumer.Delivery, int) error { return nil })
		err := one(t.Context(), &consumer.Delivery{})
		if got := consumer.OutcomeOf(err).String(); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: Decode: %s, %v; want %s, and the error", c.rule, got, err, c.want)
		}
		many := consumer.DecodeBatch(decode, func(_ context.Context, batch []*consumer.Delivery, values []int) error {
			if len(batch) != 1 || len(values) != 1 {
				t.Errorf("%s: the handler gets %d messages", c.rule, len(batch))
			}
			return nil
		})
		batch := []*consumer.Delivery{{}, {Type: "good"}}
		err = many(t.Context(), batch)
		if got := consumer.OutcomeOf(batch[0].Err()).String(); err != nil || got != c.want || batch[1].Err() != nil {
			t.Errorf("%s: DecodeBatch: %v, %s, %v; want %s for the first message alone", c.rule, err, got, batch[1].Err(), c.want)
		}
		if got := consumer.OutcomeOf(consumer.Mux{"": one}.Handle(t.Context(), &consumer.Delivery{})).String(); got != c.want {
			t.Errorf("%s: Mux: %s, want %s", c.rule, got, c.want)
		}
	}
}

// hopeful is a type whose own JSON decoding needs something that is away.
type hopeful struct{}

func (*hopeful) UnmarshalJSON([]byte) error { return fmt.Errorf("schema: %w", consumer.Hold(errAway)) }

func TestTheOutcomeOfAnUnmarshalJSONStays(t *testing.T) {
	err := consumer.JSON(func(context.Context, *consumer.Delivery, struct{ A hopeful }) error { return nil })(t.Context(), &consumer.Delivery{Body: []byte(`{"A":1}`)})
	if got := consumer.OutcomeOf(err).Action; got != consumer.ActionHold {
		t.Errorf("%v: %s, want hold", err, got)
	}
}
