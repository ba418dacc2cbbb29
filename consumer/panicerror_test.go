package consumer_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/consumer"
)

// brittle is an error whose methods panic, as those of many a typed nil do.
type brittle struct{}

func (brittle) Error() string { return "brittle" }
func (brittle) Unwrap() error { panic("Unwrap") }
func (brittle) Is(error) bool { panic("Is") }

// The methods of an error are the user's code: they harm no more than the message.
func TestAnErrorWhoseMethodsPanicEndsNoProcess(t *testing.T) {
	for rule, handler := range map[string]consumer.Handler{
		"inside an outcome": func(context.Context, *consumer.Delivery) error { return consumer.DeadLetter(brittle{}) },
		"beside a panic": func(_ context.Context, d *consumer.Delivery) error {
			d.Fail(consumer.DeadLetter(brittle{}))
			panic("x")
		},
	} {
		t.Run(rule, func(t *testing.T) {
			onNewest(t, func(w *fixture) {
				_, stop := w.start(handler, consumer.Config{})
				w.publish(1)
				time.Sleep(time.Minute)
				w.stopped(stop)
				w.has("orders.dlq", id(0))
				w.has("orders")
			})
		})
	}
}

// The text of an error may be lost, and its outcome not.
func TestAnOutcomeOutlivesATextThatPanics(t *testing.T) {
	onNewest(t, func(w *fixture) {
		var mute *muteError
		runs := 0
		_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			if runs++; d.Attempt != 1 {
				w.Errorf("attempt %d, want no attempt spent", d.Attempt)
			}
			if runs == 1 {
				return consumer.Hold(mute)
			}
			return nil
		}, consumer.Config{})
		w.publish(1)
		time.Sleep(time.Minute)
		w.stopped(stop)
		if runs != 2 {
			w.Errorf("%d runs, want 2", runs)
		}
		w.truthful()
	})
}

// muteError is an error whose text panics for a nil.
type muteError struct{ text string }

func (e *muteError) Error() string { return e.text }

// panicsInPrinting is an error whose text is a panic with the error itself, which fmt does not
// catch.
type panicsInPrinting struct{}

func (e *panicsInPrinting) Error() string { panic(e) }

func TestAnErrorThatPanicsWithItselfEndsNoProcess(t *testing.T) {
	value := &panicsInPrinting{}
	if text := (&consumer.PanicError{Value: value}).Error(); !strings.Contains(text, "panicsInPrinting") {
		t.Errorf("%q, want the type in it", text)
	}
	for rule, handle := range map[string]consumer.Handler{
		"returned":   func(context.Context, *consumer.Delivery) error { return value },
		"of its own": func(_ context.Context, d *consumer.Delivery) error { d.Fail(value); return nil },
		"a panic":    func(context.Context, *consumer.Delivery) error { panic(value) },
	} {
		t.Run(rule, func(t *testing.T) {
			onNewest(t, func(w *fixture) {
				w.orders.Waits = nil
				w.declare(w.orders)
				_, stop := w.start(handle, consumer.Config{})
				w.publish(1)
				synctest.Wait()
				w.stopped(stop)
				w.has("orders.dlq", id(0))
			})
		})
	}
}
