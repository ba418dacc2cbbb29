package consumer_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/topology"
)

// Handlers that do not return when their ctx ends keep their slots. Health says so
// until they return.
func TestHandlersThatIgnoreTheirTimeoutAreUnhealthy(t *testing.T) {
	onNewest(t, func(w *fixture) {
		release := make(chan struct{})
		w.publish(1)
		c, stop := w.start(func(context.Context, *consumer.Delivery) error { <-release; return nil },
			consumer.Config{Concurrency: 2, HandlerTimeout: 5 * time.Second})
		time.Sleep(9 * time.Second)
		if status, err := health(c); status != "healthy" {
			w.Errorf("a handler may take a while to return: %s: %v", status, err)
		}
		time.Sleep(2 * time.Second)
		if status, err := health(c); status != "degraded" || !strings.Contains(err.Error(), "1 handler of 2 did not return") || !strings.Contains(err.Error(), "HandlerTimeout, which is 5s") {
			w.Errorf("one of two: %s: %v", status, err)
		}
		w.publish(10)
		time.Sleep(time.Minute)
		if status, err := health(c); status != "unhealthy" || !strings.Contains(err.Error(), "2 handlers of 2") {
			w.Errorf("all: %s: %v", status, err)
		}
		close(release)
		time.Sleep(time.Second)
		if status, err := health(c); status != "healthy" {
			w.Errorf("they have returned: %s: %v", status, err)
		}
		w.stopped(stop)
		w.has("orders")
	})
}

// The lanes share the handlers: if all of them are late, no lane has one left.
func TestHandlersOfAllLanesThatIgnoreTheirTimeoutAreUnhealthy(t *testing.T) {
	onNewest(t, func(w *fixture) {
		lanes := topology.Lanes{Name: "sms", Type: topology.Quorum, Lanes: []topology.Lane{{Name: "high"}, {Name: "low"}, {Name: "other"}}}
		w.declare(lanes)
		release := make(chan struct{})
		c, stop := w.startOn(lanes, func(context.Context, *consumer.Delivery) error { <-release; return nil },
			consumer.Config{Concurrency: 4, HandlerTimeout: 5 * time.Second})
		for _, lane := range []string{"high", "low"} {
			w.orders.Name = "sms." + lane
			w.publish(1)
		}
		time.Sleep(time.Minute)
		if status, err := health(c); status != "degraded" || !strings.Contains(err.Error(), `queue "sms.high": 1 handler of 4 did not return`) || strings.Contains(err.Error(), "sms.other") {
			w.Errorf("one of each lane: %s: %v", status, err)
		}
		for _, lane := range []string{"high", "low"} {
			w.orders.Name = "sms." + lane
			w.publish(1)
		}
		time.Sleep(time.Minute)
		if status, err := health(c); status != "unhealthy" || !strings.Contains(err.Error(), `queue "sms.other": 4 handlers of 4 did not return`) {
			w.Errorf("two of each lane: %s: %v", status, err)
		}
		close(release)
		time.Sleep(time.Second)
		if status, err := health(c); status != "healthy" {
			w.Errorf("they have returned: %s: %v", status, err)
		}
		w.stopped(stop)
	})
}
