package consumer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
)

// Messages that are held, or wait for their keys, go back to their queue each quarter of an hour
// and come again. Nothing has changed by that, and Health says the same, since the same time.
func TestHealthSaysTheSameWhileMessagesComeAgain(t *testing.T) {
	for rule, c := range map[string]struct {
		cfg   consumer.Config
		lasts time.Duration
	}{
		"one slot":                             {consumer.Config{Concurrency: 1}, 50 * time.Minute},
		"one slot in order":                    {consumer.Config{Concurrency: 1, KeyLimit: 1}, 50 * time.Minute},
		"a key in order keeps others away":     {consumer.Config{Concurrency: 4, KeyLimit: 1, Prefetch: 10, Outage: consumer.Outage{Off: true}}, 50 * time.Minute},
		"a key with a share keeps others away": {consumer.Config{Concurrency: 4, KeyLimit: 2, Prefetch: 10, Outage: consumer.Outage{Off: true}}, 20 * time.Minute}, // later it has no more in hand than its share
	} {
		t.Run(rule, func(t *testing.T) {
			onEachEngine(t, func(w *fixture) {
				w.publish(50, keyed("k"))
				over := time.Now().Add(c.lasts)
				cons, stop := w.start(func(context.Context, *consumer.Delivery) error {
					if time.Sleep(10 * time.Second); time.Now().Before(over) { // a call that is not answered
						return consumer.Hold(errAway)
					}
					return nil
				}, c.cfg)
				time.Sleep(2 * time.Minute)
				var first, last *rehop.HealthError
				for errors.As(cons.Health(), &first); time.Now().Before(over); time.Sleep(time.Second) {
					if last = nil; !errors.As(cons.Health(), &last) || first == nil || !last.Since.Equal(first.Since) {
						w.Errorf("%v before the end: %v, and at first %v", time.Until(over), last, first)
						break
					}
				}
				time.Sleep(15 * time.Minute)
				if status, err := health(cons); status != "healthy" {
					w.Errorf("when it is over: %s, %v", status, err)
				}
				w.stopped(stop)
				w.has("orders.dlq")
			})
		})
	}
}

// A message that had the only slot goes back, and is handled when it comes again.
func TestHealthIsGoodOnceAMessageThatWasHeldIsHandled(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		w.publish(1)
		var done atomic.Bool
		c, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			if !d.Redelivered {
				return consumer.Hold(errAway)
			}
			time.Sleep(10 * time.Second)
			done.Store(true)
			return nil
		}, consumer.Config{Concurrency: 1})
		for time.Sleep(2 * time.Minute); !done.Load(); time.Sleep(time.Second) {
			if status, err := health(c); status != "degraded" {
				w.Errorf("before it is handled: %s, %v", status, err)
				break
			}
		}
		if status, err := health(c); status != "healthy" {
			w.Errorf("just after it is handled: %s, %v", status, err)
		}
		w.stopped(stop)
	})
}
