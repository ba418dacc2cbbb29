package producer

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop/rehoptest"
)

// While messages fail, PublishAsync is held back as while they wait for confirms: no
// more messages than the window has room for are without a receipt, and each has a
// goroutine at most.
func TestMessagesWithoutAReceiptAreBoundedByTheWindow(t *testing.T) {
	const window, size, messages = 50, 10 << 10, 10 * 50 // more than twice as many as goroutines are allowed
	slow := sinkFunc(func(ctx context.Context) error {
		select {
		case <-time.After(5 * time.Millisecond):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	hanging := sinkFunc(commits)
	broken := sinkFunc(func(context.Context) error { return errors.New("disk full") })
	stop := func(b *rehoptest.Broker) { b.Stop() }
	for rule, tt := range map[string]struct {
		begin func(*rehoptest.Broker)
		queue string
		sinks []Sink
	}{
		"an outage, a slow sink":            {stop, "open", []Sink{slow}},
		"an outage, a sink that hangs":      {stop, "open", []Sink{hanging}},
		"an outage, a sink that fails":      {stop, "open", []Sink{broken}},
		"an outage, no sink":                {stop, "open", nil},
		"nacks, no sink":                    {nil, "full", nil},
		"nacks, a slow sink":                {nil, "full", []Sink{slow}},
		"nacks, a sink that hangs":          {nil, "full", []Sink{hanging}},
		"nacks, two sinks, the first fails": {nil, "full", []Sink{broken, slow}},
		"returns, a slow sink":              {nil, "nowhere", []Sink{slow}},
		"an alarm, a slow sink":             {func(b *rehoptest.Broker) { b.Block("low on memory") }, "open", []Sink{slow}},
	} {
		for name, publish := range map[string]func(s *fixture, p *Producer, queue string){
			"PublishAsync": func(s *fixture, p *Producer, queue string) {
				for range messages {
					p.PublishAsync(s.Context(), Message{RoutingKey: queue, Body: make([]byte, size)}, func(Receipt, error) {})
				}
				if err := p.Flush(s.Context()); err != nil {
					s.Error(err)
				}
			},
			"PublishAll": func(s *fixture, p *Producer, queue string) {
				_, _ = p.PublishAll(s.Context(), slices.Repeat([]Message{{RoutingKey: queue}}, messages))
			},
		} {
			t.Run(name+" "+rule, func(t *testing.T) {
				inBubble(t, func(s *fixture) {
					var most, goroutines atomic.Int64
					var p *Producer
					note := func(max *atomic.Int64, n int64) {
						if n > max.Load() {
							max.Store(n)
						}
					}
					p = s.producer(Config{Window: window, WindowBytes: window * size * 2, Timeout: 2 * time.Second, Fallback: tt.sinks, Traces: []Trace{{
						Publishing: func(ctx context.Context, _ *Message) context.Context {
							note(&most, p.window.taken())
							note(&goroutines, int64(runtime.NumGoroutine()))
							return ctx
						},
						Published: func(context.Context, Published) {
							note(&goroutines, int64(runtime.NumGoroutine()))
							note(&most, p.window.taken())
						},
					}}})
					defer p.Close()
					if _, err := p.Publish(s.Context(), Message{RoutingKey: "open"}); err != nil {
						s.Fatal(err)
					}
					before := int64(runtime.NumGoroutine())
					if tt.begin != nil {
						tt.begin(s.broker)
					}
					publish(s, p, tt.queue)
					if n := most.Load(); n > window || name == "PublishAsync" && n == 0 {
						s.Errorf("%d messages were without a receipt at a time, want at most %d", n, window)
					}
					if n := goroutines.Load() - before; n > 4*window { // its own, that of a timer, and such as are about to end
						s.Errorf("%d more goroutines, want a few for each of %d messages", n, window)
					}
					s.broker.Unblock()
				})
			})
		}
	}
}

func (w *window) taken() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return int64(w.slots)
}

// A message larger than WindowBytes has the window for itself, and slots are given in
// the order in which they were asked for.
func TestWindow(t *testing.T) {
	w := &window{}
	w.limits.Messages, w.limits.Bytes = 2, 100
	if entered, slot := w.enterAsync(500); !entered || !slot {
		t.Error("no slot for a large message in an empty window")
	}
	if _, slot := w.enterAsync(1); slot {
		t.Error("a slot beside a message that is larger than the window")
	}
	w.release(1, 500)
	for range 2 {
		if _, slot := w.enterAsync(10); !slot {
			t.Error("no slot in a window with room")
		}
	}
	if _, slot := w.enterAsync(10); slot {
		t.Error("a third slot of two")
	}
	done := w.close()
	if entered, _ := w.enterAsync(1); entered || w.enter(1) {
		t.Error("a message enters a closed window")
	}
	for range 5 {
		select {
		case <-done:
			t.Fatal("done while messages are without a receipt")
		default:
		}
		w.leaveAsync(false)
	}
	<-done
	<-w.flushed()
}

// The advice to publish more slowly is for a broker that answers.
func TestAFullWindowSaysWhetherTheBrokerAnswers(t *testing.T) {
	for _, tt := range ways {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(s *fixture) {
				p := s.producer(Config{Window: 1, Timeout: 10 * time.Second})
				if _, err := p.Publish(s.Context(), Message{RoutingKey: "open"}); err != nil {
					s.Fatal(err)
				}
				s.broker.Stall()
				defer s.broker.Resume()
				defer func() { _ = p.Close() }()
				p.PublishAsync(s.Context(), Message{RoutingKey: "open"}, nil)
				for _, patience := range []time.Duration{500 * time.Millisecond, 2 * time.Second} {
					ctx, cancel := context.WithTimeout(s.Context(), patience)
					_, err := tt.publish(ctx, p, Message{RoutingKey: "open"})
					cancel()
					silent := patience > time.Second // the broker is known to be
					if !strings.Contains(err.Error(), "the window is full") || strings.Contains(err.Error(), "publish more slowly") == silent ||
						strings.Contains(err.Error(), "the broker has not answered") != silent {
						s.Errorf("after %v: %v", patience, err)
					}
				}
			})
		})
	}
}
