package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
)

// The error that a message has of its own decides, whatever its handler returns.
func TestTheErrorOfItsOwnDecides(t *testing.T) {
	letter := consumer.Settlement{Disposition: consumer.DispositionDeadLetter, Cause: rehop.CausePermanent}
	wait := consumer.Settlement{Disposition: consumer.DispositionWait, WaitNumber: 1, Wait: time.Minute}
	done := consumer.Settlement{Disposition: consumer.DispositionDone}
	dead := consumer.DeadLetter(errBroken)
	for rule, c := range map[string]struct {
		handle consumer.Handler
		want   consumer.Settlement
	}{
		"alone":                          {func(_ context.Context, d *consumer.Delivery) error { d.Fail(dead); return nil }, letter},
		"before the returned error":      {func(_ context.Context, d *consumer.Delivery) error { d.Fail(dead); return errAway }, letter},
		"before a returned outcome":      {func(_ context.Context, d *consumer.Delivery) error { d.Fail(dead); return consumer.Discard("old") }, letter},
		"a plain one is a failure":       {func(_ context.Context, d *consumer.Delivery) error { d.Fail(errBroken); return dead }, wait},
		"wrapped":                        {func(_ context.Context, d *consumer.Delivery) error { d.Fail(fmt.Errorf("w: %w", dead)); return nil }, letter},
		"the latest call decides":        {func(_ context.Context, d *consumer.Delivery) error { d.Fail(errBroken); d.Fail(dead); return nil }, letter},
		"nil takes it back":              {func(_ context.Context, d *consumer.Delivery) error { d.Fail(dead); d.Fail(nil); return nil }, done},
		"without one the returned error": {func(_ context.Context, d *consumer.Delivery) error { d.Fail(nil); return dead }, letter},
		"before a panic":                 {func(_ context.Context, d *consumer.Delivery) error { d.Fail(dead); panic("ouch") }, letter},
		"before the end of a goroutine":  {func(_ context.Context, d *consumer.Delivery) error { d.Fail(dead); runtime.Goexit(); return nil }, letter},
		"on a copy of the delivery":      {func(_ context.Context, d *consumer.Delivery) error { c := *d; c.Fail(dead); return nil }, letter},
		"a panic has the outcome of its error": {func(context.Context, *consumer.Delivery) error {
			panic(fmt.Errorf("w: %w", dead))
		}, letter},
	} {
		t.Run(rule, func(t *testing.T) {
			onNewest(t, func(w *fixture) {
				var log lines
				_, stop := w.start(c.handle, consumer.Config{Logger: log.logger()})
				w.publish(1)
				synctest.Wait()
				if got := w.journal.of(id(0)); !slices.Equal(got, []consumer.Settlement{c.want}) {
					w.Errorf("settled as %+v, want %+v", got, c.want)
				}
				w.truthful()
				w.stopped(stop)
				if hidden := log.with("level=ERROR", "the handler panicked", "panic: ouch"); strings.HasSuffix(rule, "a panic") && len(hidden) != 1 {
					w.Errorf("%d records of the panic, want 1", len(hidden))
				}
			})
		})
	}
}

// A held message has no error of its own in its next run.
func TestTheErrorOfItsOwnIsOfOneRun(t *testing.T) {
	onNewest(t, func(w *fixture) {
		runs := 0
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			if d.Err() != nil {
				w.Errorf("run %d begins with the error %v", runs, d.Err())
			}
			if runs++; runs == 1 {
				d.Fail(consumer.Hold(errAway))
			}
			return nil
		}, consumer.Config{})
		w.publish(1)
		time.Sleep(time.Minute)
		w.stopped(stop)
		if runs != 2 {
			w.Errorf("%d runs, want 2", runs)
		}
		w.has("orders")
		w.has("orders.dlq")
	})
}

// A goroutine that a handler has left behind changes nothing, and races with nothing.
func TestAFailAfterTheReturnDoesNothing(t *testing.T) {
	onNewest(t, func(w *fixture) {
		var mu sync.Mutex
		var seen []*consumer.Delivery
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			if seen = append(seen, d); d.ID == id(0) {
				d.Fail(consumer.DeadLetter(errBroken))
			}
			go func() { d.Fail(consumer.DeadLetter(errAway)); d.Fail(nil) }()
			return nil
		}, consumer.Config{Concurrency: 4})
		w.publish(1)
		w.publish(20)
		time.Sleep(time.Minute)
		w.stopped(stop)
		for _, d := range seen {
			now := d.Err()
			d.Fail(errBroken)
			if !errors.Is(d.Err(), now) {
				w.Errorf("message %s: a call after the return has changed %v to %v", d.ID, now, d.Err())
			}
		}
		w.has("orders")
	})
}

// Classify gives the message's own error its meaning, and not the one that is returned.
func TestClassifySeesTheErrorOfItsOwn(t *testing.T) {
	all := []consumer.Rule{
		{Is: errAway, Then: consumer.Outcome{Action: consumer.ActionHold}},
		{Is: errBroken, Then: consumer.Outcome{Action: consumer.ActionDeadLetter}}}
	rules := classifier(t, all...)
	batchRules, err := consumer.ClassifyBatch(all...)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rule          string
		own, returned error
		want          consumer.Action
	}{
		{"a plain one", errAway, nil, consumer.ActionHold},
		{"beside a returned one", errAway, errBroken, consumer.ActionHold},
		{"one with an outcome", consumer.Discard("old"), errBroken, consumer.ActionDiscard},
		{"one that no rule matches", errors.New("plain"), errBroken, consumer.ActionRetry},
	} {
		for end, leave := range map[string]func(){"a panic": func() { panic("ouch") }, "the end of its goroutine": runtime.Goexit} {
			var one, first, second consumer.Delivery
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { _ = recover() }()
				_ = rules(func(_ context.Context, d *consumer.Delivery) error { d.Fail(c.own); leave(); return nil })(t.Context(), &one)
			}()
			<-done
			done = make(chan struct{})
			go func() {
				defer close(done)
				defer func() { _ = recover() }()
				_ = batchRules(func(_ context.Context, b []*consumer.Delivery) error { b[0].Fail(c.own); leave(); return nil })(t.Context(), []*consumer.Delivery{&first, &second})
			}()
			<-done
			if got, got1 := consumer.OutcomeOf(one.Err()).Action, consumer.OutcomeOf(first.Err()).Action; got != c.want || got1 != c.want || second.Err() != nil {
				t.Errorf("%s, before %s: %v, in a batch %v and %v; want %v", c.rule, end, got, got1, second.Err(), c.want)
			}
		}
		var d consumer.Delivery
		err := rules(func(_ context.Context, d *consumer.Delivery) error { d.Fail(c.own); return c.returned })(t.Context(), &d)
		if got := consumer.OutcomeOf(d.Err()).Action; got != c.want || !errors.Is(d.Err(), c.own) || !errors.Is(err, c.returned) {
			t.Errorf("%s: %v of %v, returned %v; want %v of %v, and %v", c.rule, got, d.Err(), err, c.want, c.own, c.returned)
		}
	}
}
