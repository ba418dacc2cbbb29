package consumer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// Run warns once of a Config that keeps no order or has no effect, and names the remedy.
func TestSettingsThatDoNotGoTogetherAreSaidOnce(t *testing.T) {
	const keyless, beside, others, idle = "KeyLimit has no effect", "handled side by side", "has other consumers", "leaves handlers idle"
	single := topology.WorkQueue{Name: "single", SingleActiveConsumer: true}
	short := topology.WorkQueue{Name: "short", Waits: delay.Schedule{1e9}}
	for _, tt := range []struct {
		rule   string
		queue  topology.WorkQueue
		cfg    consumer.Config
		keyed  int // of 250 messages
		second bool
		want   string
	}{
		{"KeyLimit, and no message has a key", short, consumer.Config{KeyLimit: 1}, 0, false, keyless},
		{"KeyLimit, and every hundredth message has none", short, consumer.Config{KeyLimit: 1}, 248, false, ""},
		{"a share of a key, and no message has a key", short, consumer.Config{Concurrency: 4, KeyLimit: 2}, 0, false, keyless},
		{"a Key of its own", short, consumer.Config{KeyLimit: 1, Key: func(d *consumer.Delivery) string { return d.ID }}, 0, false, ""},
		{"keys, with attempts in place, without KeyLimit", short, consumer.Config{Concurrency: 4, RetryInPlace: true}, 250, false, beside},
		{"the same with one handler", short, consumer.Config{RetryInPlace: true}, 250, false, ""},
		{"keys, with a single active consumer, without KeyLimit", single, consumer.Config{Concurrency: 4}, 250, false, beside},
		{"keys, on a queue of which nothing says that order matters", short, consumer.Config{Concurrency: 4}, 250, false, ""},
		{"a second consumer of a queue in order", short, consumer.Config{KeyLimit: 1}, 250, true, others},
		{"a second consumer where the queue lets one work at a time", single, consumer.Config{KeyLimit: 1}, 250, true, ""},
		{"a second consumer of a queue with shares", short, consumer.Config{Concurrency: 4, KeyLimit: 2}, 250, true, ""},
		{"a prefetch below the handlers", short, consumer.Config{Concurrency: 4, Prefetch: 3}, 0, false, idle},
		{"a prefetch of the handlers", short, consumer.Config{Concurrency: 4, Prefetch: 4}, 0, false, ""},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			onEachEngine(t, func(w *fixture) {
				w.declare(tt.queue)
				if tt.second {
					_, stop := w.startOn(tt.queue, succeed, consumer.Config{})
					time.Sleep(time.Minute)
					defer w.stopped(stop)
				}
				var said lines
				cfg := tt.cfg
				cfg.Logger = said.logger()
				_, stop := w.startOn(tt.queue, succeed, cfg)
				time.Sleep(time.Minute) // on 3.x it waits for another process that may be declaring the queue
				for i := range 250 {
					m := rehoptest.Message{RoutingKey: tt.queue.Name}
					m.MessageId = id(i)
					if i < tt.keyed {
						m.Headers = map[string]any{header.OrderKey: "anna"}
					}
					if _, err := w.broker.Publish(m); err != nil {
						w.Fatal(err)
					}
				}
				synctest.Wait()
				w.broker.Cut("") // the next session says nothing again
				time.Sleep(time.Minute)
				w.stopped(stop)
				for _, text := range []string{keyless, beside, others, idle} {
					want := 0
					if text == tt.want {
						want = 1
					}
					if n := len(said.with("level=WARN", text)); n != want {
						w.Errorf("%q is said %d times, want %d", text, n, want)
					}
				}
			})
		})
	}
}
