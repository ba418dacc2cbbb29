package otel_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

func TestQueuesAreWatchedByWhatTheyAreFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lanes := topology.Lanes{Name: "mail", Lanes: []topology.Lane{{Name: "high"}, {Name: "low"}}, Waits: delay.Fixed(time.Minute, 1), OneDeadLetterQueue: true}
		shards := &topology.Shards{Name: "bills", Count: 2, Waits: delay.Fixed(time.Minute, 1)}
		missing := &topology.WorkQueue{Name: "missing", Waits: delay.Fixed(time.Minute, 1)}
		s := newService(t, "4.3", topology.Exchange{Name: "shop"}, orders, lanes, shards, topology.Delays{})
		p := s.producer(producer.Config{})
		for queue, n := range map[string]int{"orders": 1, "orders.wait.4": 2, "orders.dlq": 3, "mail.low": 4, "mail.dlq": 5, "mail.high.wait.1": 6, "bills.00": 7, "bills.01.wait.1": 8, "bills.dlq": 9} {
			for range n {
				_, err := p.Publish(t.Context(), producer.Message{RoutingKey: queue})
				check(t, err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- s.telemetry.WatchQueues(ctx, s.conn, 0, missing, orders, lanes, shards, topology.Delays{})
		}()
		time.Sleep(time.Second)
		m := s.collect()
		for _, tt := range []struct {
			queue, part string
			want        float64
		}{{"orders", "work", 1}, {"orders.wait.4", "wait", 2}, {"orders.dlq", "dead-letter", 3}, {"mail.low", "work", 4}, {"mail.dlq", "dead-letter", 5}, {"mail.high.wait.1", "wait", 6}, {"bills.00", "work", 7}, {"bills.01.wait.1", "wait", 8}, {"bills.dlq", "dead-letter", 9}} {
			if got := m.sum("rehop.queue.messages", queueLabel, tt.queue, "rehop.queue.part", tt.part); got != tt.want {
				t.Errorf("%s of %s has %v, want %v", tt.part, tt.queue, got, tt.want)
			}
		}
		if n := m.sum("rehop.queue.messages"); n != 45 {
			t.Errorf("%v messages in all, want 45", n)
		}
		if has := m.sum("rehop.queue.messages", queueLabel, "missing"); has != 0 {
			t.Errorf("a queue that does not exist has %v messages", has)
		}

		// After three looks without an answer there is no number that could be taken for
		// one of now.
		s.broker.Stop()
		time.Sleep(2 * time.Minute)
		if n := s.collect().sum("rehop.queue.messages"); n != 0 {
			t.Errorf("%v messages while the broker is away, want no number", n)
		}
		s.broker.Start()
		time.Sleep(2 * time.Minute)
		if n := s.collect().sum("rehop.queue.messages"); n != 45 {
			t.Errorf("%v messages when it is back, want 45", n)
		}
		stop()
		check(t, <-ended)
		if n := s.collect().sum("rehop.queue.messages"); n != 0 {
			t.Errorf("%v messages after the end, want no number", n)
		}
	})
}

func TestAFaultySpecIsNotWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, "4.3")
		if err := s.telemetry.WatchQueues(t.Context(), s.conn, 0, topology.WorkQueue{}); err == nil {
			t.Error("no error")
		}
	})
}

func TestHealthHasThreeStatuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, "4.3")
		var now error
		stop := s.telemetry.Health("orders", func() error { return now })
		for status, err := range map[string]error{
			"healthy":   nil,
			"degraded":  &rehop.HealthError{Degraded: true, Cause: errPaper},
			"unhealthy": errors.Join(&rehop.HealthError{Cause: errPaper}),
		} {
			now = err
			m := s.collect()
			if m.sum("rehop.health") != 1 || m.sum("rehop.health", "rehop.component", "orders", "rehop.status", status) != 1 {
				t.Errorf("%s is not shown as the only one", status)
			}
		}
		stop()
		if n := s.collect().sum("rehop.health"); n != 0 {
			t.Errorf("%v after the end, want nothing", n)
		}
	})
}
