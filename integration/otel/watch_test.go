package otel_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

func TestWatch(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		s.declare()
		p := s.producer(s.conn, producer.Config{})
		for range 7 {
			_, err := p.Publish(t.Context(), producer.Message{Exchange: s.name, RoutingKey: "order.paid"})
			check(t, err)
		}
		outbox, _ := s.store()
		check(t, outbox.Put(t.Context(), s.order(), producer.ErrReturned))
		_, err := outbox.PutAt(t.Context(), time.Now().Add(time.Hour), producer.Message{RoutingKey: s.name, ID: "later"})
		check(t, err)

		ctx, stop := context.WithCancel(t.Context())
		var watching sync.WaitGroup
		defer watching.Wait()
		defer stop()
		missing := topology.WorkQueue{Name: s.name + ".missing", Waits: s.orders.Waits}
		watching.Go(func() {
			check(t, s.telemetry.WatchQueues(ctx, s.conn, 50*time.Millisecond, missing, s.orders))
		})
		watching.Go(func() { s.telemetry.WatchStore(ctx, outbox, 50*time.Millisecond) })
		poll.Until(t, time.Minute, "the numbers of the broker and the store", func() bool {
			all := s.collect()
			return s.sum(all, "rehop.queue.messages", "messaging.destination.name", s.name, "rehop.queue.part", "work") == 7 &&
				s.sum(all, "rehop.store.letters", "rehop.state", "held") == 1 &&
				s.sum(all, "rehop.store.letters", "rehop.state", "scheduled") == 1 &&
				s.sum(all, "rehop.store.letters", "rehop.state", "ready") == 0
		})
		stop()
		watching.Wait()
		all := s.collect()
		if n := s.sum(all, "rehop.queue.messages") + s.sum(all, "rehop.store.letters"); n != 0 {
			t.Errorf("%d after the end, want nothing", n)
		}
	})
}

func TestHealthIsShownUntilItIsStopped(t *testing.T) {
	s := newService(t, versions[len(versions)-1], topology.Quorum)
	var err error
	stop := s.telemetry.Health("orders", func() error { return err })
	for _, tt := range []struct {
		err    error
		status string
	}{{nil, "healthy"}, {errors.New("away"), "unhealthy"}} {
		err = tt.err
		if n := s.sum(s.collect(), "rehop.health", "rehop.status", tt.status); n != 1 {
			t.Errorf("%s is %d, want 1", tt.status, n)
		}
	}
	stop()
	if n := s.sum(s.collect(), "rehop.health"); n != 0 {
		t.Errorf("%d after the end, want nothing", n)
	}
}
