package producer

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/rehoptest"
)

// With a broker that reads nothing memory is bounded, every call ends with its
// Timeout, and Close does not wait for the broker.
func TestABrokerThatReadsNothing(t *testing.T) {
	inBubble(t, func(s *fixture) {
		const bound, size, callers, timeout = 16 << 20, 256 << 10, 1000, 5 * time.Second
		p := s.producer(Config{WindowBytes: bound, Timeout: timeout})
		if _, err := p.Publish(s.Context(), Message{RoutingKey: "open"}); err != nil {
			s.Fatal(err)
		}
		s.broker.Stall()
		before := heap()
		body := make([]byte, size)
		var failed atomic.Int32
		var all sync.WaitGroup
		began := time.Now()
		for range callers {
			all.Go(func() {
				_, err := p.Publish(s.Context(), Message{RoutingKey: "open", Body: body})
				if rehop.ClassOf(err) == rehop.ClassTransient {
					failed.Add(1)
				}
			})
		}
		synctest.Wait()
		if grown := heap() - before; grown > 3*bound {
			s.Errorf("%d MiB more are in use, with a bound of %d MiB", grown>>20, bound>>20)
		}
		all.Wait()
		if took := time.Since(began); failed.Load() != callers || took > timeout+time.Second {
			s.Errorf("%d of %d messages failed within %v", failed.Load(), callers, took)
		}
		began = time.Now()
		if err := p.Close(); err != nil || time.Since(began) > 5*time.Second {
			s.Errorf("Close: %v after %v", err, time.Since(began))
		}
		s.broker.Resume()
	})
}

// With a broker that reads and confirms nothing, what a Producer keeps of the
// messages given to it is bounded by WindowBytes.
func TestABrokerThatConfirmsNothing(t *testing.T) {
	inBubble(t, func(s *fixture) {
		const bound, size, messages = 16 << 20, 256 << 10, 1000
		s.declare("quorum", amqp.Table{"x-queue-type": "quorum"})
		p := s.producer(Config{WindowBytes: bound})
		if _, err := p.Publish(s.Context(), Message{RoutingKey: "quorum"}); err != nil {
			s.Fatal(err)
		}
		s.broker.Refuse("quorum", true)
		ctx, cancel := context.WithCancel(s.Context())
		before := heap()
		var given sync.WaitGroup
		given.Go(func() {
			for range messages {
				p.PublishAsync(ctx, Message{RoutingKey: "quorum", Body: make([]byte, size)}, func(Receipt, error) {})
			}
		})
		synctest.Wait()
		if grown := heap() - before; grown > 4*bound { // the broker in the process keeps them too
			s.Errorf("%d MiB more are in use, with a bound of %d MiB", grown>>20, bound>>20)
		}
		cancel()
		given.Wait()
		s.broker.Refuse("quorum", false)
		if err := p.Close(); err != nil {
			s.Error(err)
		}
	})
}

// While messages fail, what a Producer keeps of them is bounded by WindowBytes too.
func TestMessagesThatFailAreBoundedInMemory(t *testing.T) {
	for rule, tt := range map[string]struct {
		begin func(*rehoptest.Broker)
		queue string
	}{
		"an outage": {(*rehoptest.Broker).Stop, "open"},
		"nacks":     {func(*rehoptest.Broker) {}, "full"},
		"an alarm":  {func(b *rehoptest.Broker) { b.Block("low on memory") }, "open"},
	} {
		t.Run(rule, func(t *testing.T) {
			inBubble(t, func(s *fixture) {
				const bound, size, messages = 4 << 20, 64 << 10, 1500
				slow := sinkFunc(func(ctx context.Context) error {
					select {
					case <-time.After(5 * time.Millisecond):
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				})
				p := s.producer(Config{WindowBytes: bound, Fallback: []Sink{slow}})
				if _, err := p.Publish(s.Context(), Message{RoutingKey: "open"}); err != nil {
					s.Fatal(err)
				}
				tt.begin(s.broker)
				before := heap()
				for i := range messages {
					p.PublishAsync(s.Context(), Message{RoutingKey: tt.queue, Body: make([]byte, size)}, func(Receipt, error) {})
					if i%100 == 0 {
						if grown := heap() - before; grown > 4*bound { // the broker in the process keeps some too
							s.Fatalf("after %d messages %d MiB more are in use, with a bound of %d MiB", i, grown>>20, bound>>20)
						}
					}
				}
				if err := p.Flush(s.Context()); err != nil {
					s.Error(err)
				}
				s.broker.Unblock()
				if err := p.Close(); err != nil {
					s.Error(err)
				}
			})
		})
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far from it
}
