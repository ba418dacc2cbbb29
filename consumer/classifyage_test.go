package consumer_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/rehoptest"
)

// A rule with OlderThan ends the snoozes of a message, whatever its timestamp says.
func TestARuleByAgeEndsTheSnoozes(t *testing.T) {
	for _, timestamp := range []struct {
		rule string
		at   func() time.Time
	}{
		{"none", func() time.Time { return time.Time{} }},
		{"in milliseconds", func() time.Time { return time.Unix(time.Now().UnixMilli(), 0) }},
		{"right", time.Now},
	} {
		t.Run("timestamp "+timestamp.rule, func(t *testing.T) {
			onEachEngine(t, func(w *fixture) {
				var latest atomic.Int64 // run, in nanoseconds after the first sight
				began := time.Now()
				handler := consumer.Wrap(func(context.Context, *consumer.Delivery) error {
					latest.Store(int64(time.Since(began)))
					return consumer.Snooze(10*time.Minute, "not paid yet")
				}, classifier(w.T, consumer.Rule{OlderThan: 20 * time.Minute, Then: consumer.Outcome{Action: consumer.ActionDeadLetter, Cause: rehop.CauseExpired}}))
				var log lines
				_, stop := w.start(handler, consumer.Config{Logger: log.logger()})
				w.publish(1, func(m *rehoptest.Message) { m.Timestamp = timestamp.at() })
				time.Sleep(80 * time.Minute)
				w.stopped(stop)
				w.has("orders.dlq", id(0))
				if len(log.with("message dead-lettered", "not paid yet", "older than 20m0s")) != 1 {
					w.Errorf("the log does not say which rule has given the message up: %q", log.with("dead-lettered"))
				}
				// The message is looked at when it comes back.
				if after := time.Duration(latest.Load()); after < 20*time.Minute-time.Second || after > 31*time.Minute {
					w.Errorf("the last run was %v after the first, want soon after 20m", after)
				}
				w.truthful()
			})
		})
	}
}
