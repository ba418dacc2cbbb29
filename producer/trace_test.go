package producer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// The ctx that Publishing returns is that of all later hooks of the message and of
// the sinks, for each way to publish; the hooks of all Traces run in their order.
func TestHooksAndSinksGetTheContextOfPublishing(t *testing.T) {
	type key struct{}
	inBubble(t, func(s *fixture) {
		var got []string
		of := func(ctx context.Context) any { return ctx.Value(key{}) }
		sink := &memory{}
		seen := &seeing{memory: sink, see: func(ctx context.Context) { got = append(got, fmt.Sprint("sink ", of(ctx))) }}
		p := s.producer(Config{Fallback: []Sink{seen}, Traces: []Trace{
			{Publishing: func(ctx context.Context, m *Message) context.Context { return context.WithValue(ctx, key{}, m.Type) }},
			{Publishing: func(ctx context.Context, m *Message) context.Context {
				return context.WithValue(ctx, key{}, fmt.Sprint(of(ctx), "!"))
			}},
			{Published: func(ctx context.Context, _ Published) {
				got = append(got, fmt.Sprint("published ", of(ctx)))
			}},
		}})
		if _, err := p.Publish(s.Context(), Message{RoutingKey: "full", Type: "a"}); err != nil {
			s.Error(err)
		}
		for _, m := range []Message{{RoutingKey: "open", Type: "b"}, {RoutingKey: "full", Type: "c"}} {
			if _, err := p.PublishAll(s.Context(), []Message{m}); err != nil {
				s.Error(err)
			}
		}
		p.PublishAsync(s.Context(), Message{RoutingKey: "full", Type: "d"}, nil)
		if err := p.Close(); err != nil {
			s.Error(err)
		}
		want := []string{"sink a!", "published a!", "published b!", "sink c!", "published c!", "sink d!", "published d!"}
		if !slices.Equal(got, want) {
			s.Errorf("%q, want %q", got, want)
		}
	})
}

// Each way to publish calls the hook on a goroutine that no other message waits for.
func TestAHookMayPublish(t *testing.T) {
	inBubble(t, func(s *fixture) {
		var p *Producer
		var again atomic.Int32
		p = s.producer(Config{Timeout: 2 * time.Second, Traces: []Trace{{Published: func(ctx context.Context, done Published) {
			m := done.Message
			if m.Type == "audit" {
				return
			}
			again.Add(1)
			if _, err := p.PublishAll(ctx, []Message{{RoutingKey: "open", Type: "audit"}}); err != nil {
				s.Errorf("within the hook of %q: %v", m.Type, err)
			}
		}}}})
		if _, err := p.Publish(s.Context(), Message{RoutingKey: "open", Type: "Publish"}); err != nil {
			s.Error(err)
		}
		if _, err := p.PublishAll(s.Context(), []Message{{RoutingKey: "open", Type: "PublishAll"}, {RoutingKey: "full", Type: "PublishAll"}}); !errors.Is(err, ErrNacked) {
			s.Error(err)
		}
		p.PublishAsync(s.Context(), Message{RoutingKey: "open", Type: "PublishAsync"}, nil)
		if err := p.Flush(s.Context()); err != nil {
			s.Error(err)
		}
		if err := p.Close(); err != nil || again.Load() != 4 {
			s.Errorf("%v after %d hooks, want 4", err, again.Load())
		}
	})
}

// seeing is a sink that shows its ctx.
type seeing struct {
	*memory
	see func(context.Context)
}

func (s *seeing) Put(ctx context.Context, m Message, cause error) error {
	s.see(ctx)
	return s.memory.Put(ctx, m, cause)
}

// A message whose Delay leads nowhere keeps no other message of PublishAll back.
func TestAnUndeclaredDelayFailsItsMessageOnly(t *testing.T) {
	inBubble(t, func(s *fixture) {
		published := 0
		p := s.producer(Config{Traces: []Trace{{Published: func(context.Context, Published) { published++ }}}})
		defer p.Close()
		messages := []Message{{RoutingKey: "open", ID: "1"}, {RoutingKey: "open", ID: "2", Delay: time.Minute}, {RoutingKey: "open", ID: "3"}}
		for _, m := range messages {
			if err := m.Validate(); err != nil {
				s.Errorf("%s: %v", m.ID, err)
			}
		}
		receipts, err := p.PublishAll(s.Context(), messages)
		if len(receipts) != 3 {
			s.Fatalf("%d receipts, %v", len(receipts), err)
		}
		if late := receipts[1]; late.Place != "" || late.ID != "2" || late.Err == nil || !errors.Is(err, late.Err) {
			s.Errorf("%+v, %v", late, err)
		}
		if receipts[0].Place != PlaceQueue || receipts[2].Place != PlaceQueue || len(s.in("open")) != 2 || published != 3 {
			s.Errorf("%+v, %d messages, %d published", receipts, len(s.in("open")), published)
		}
	})
}
