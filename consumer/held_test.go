package consumer_test

import (
	"context"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// An outage lasts for a day, in which each message is held again and again and goes
// back to its queue before the broker would take it away. No message reaches its
// delivery limit, and none spends an attempt.
func TestALongOutageDeadLettersNothing(t *testing.T) {
	for _, version := range []string{"3.10", "4.0", "4.3"} {
		onBroker(t, rehoptest.Config{Version: version}, topology.Quorum, func(w *fixture) {
			const n = 20
			w.publish(n)
			over := time.Now().Add(24 * time.Hour)
			attempts := map[string]int{}
			_, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
				if time.Now().Before(over) {
					return consumer.Unavailable(errBroken)
				}
				attempts[d.ID] = d.Attempt
				return nil
			}, consumer.Config{})
			time.Sleep(23 * time.Hour)
			w.has("orders", ids(n)...)
			w.has("orders.dlq")
			time.Sleep(2 * time.Hour)
			w.stopped(stop)
			w.has("orders")
			w.has("orders.dlq")
			for _, id := range ids(n) {
				if attempts[id] != 1 {
					w.Errorf("%s is handled in attempt %d after the outage, want 1", id, attempts[id])
				}
			}
		})
	}
}

// Restarts of a service in an outage return the held messages each time.
func TestRestartsInAnOutageDeadLetterNothing(t *testing.T) {
	for _, version := range []string{"3.10", "4.0", "4.3"} {
		on(t, version, topology.Quorum, func(w *fixture) {
			const n = 5
			w.publish(n)
			for range 50 {
				_, stop := w.start(func(context.Context, *consumer.Delivery) error { return consumer.Unavailable(errBroken) }, consumer.Config{Concurrency: n})
				time.Sleep(10 * time.Second)
				w.stopped(stop)
			}
			w.has("orders", ids(n)...)
			w.has("orders.dlq")
		})
	}
}
