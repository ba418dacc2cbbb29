package producer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"
)

// counting wraps a sink as a program does that counts, and says what it wraps.
type counting struct {
	Sink
	puts int
}

func (c *counting) Put(ctx context.Context, m Message, cause error) error {
	c.puts++
	return c.Sink.Put(ctx, m, cause)
}

func (c *counting) Unwrap() Sink { return c.Sink }

// silent is a wrapper that does not say what it wraps.
type silent struct{ inner Sink }

func (silent) Name() string { return "silent" }
func (s silent) Put(ctx context.Context, m Message, cause error) error {
	return s.inner.Put(ctx, m, cause)
}

// An exchange on the Producer's own Conn is not asked for messages that cannot
// reach that broker, however it is wrapped.
func TestAWrappedExchangeSinkIsRecognised(t *testing.T) {
	for rule, wrap := range map[string]func(*exchangeSink) Sink{
		"not wrapped":                func(s *exchangeSink) Sink { return s },
		"embedded":                   func(s *exchangeSink) Sink { return struct{ *exchangeSink }{s} },
		"with Unwrap":                func(s *exchangeSink) Sink { return &counting{Sink: s} },
		"with two Unwraps":           func(s *exchangeSink) Sink { return &counting{Sink: &counting{Sink: s}} },
		"by a wrapper that hides it": func(s *exchangeSink) Sink { return silent{s} },
	} {
		t.Run(rule, func(t *testing.T) {
			inBubble(t, func(s *fixture) {
				s.exchange("unsent")
				sink, err := NewExchangeSink(s.conn, "unsent")
				if err != nil {
					s.Fatal(err)
				}
				exchange := sink.(*exchangeSink)
				store := &memory{}
				p := s.producer(Config{Fallback: []Sink{wrap(exchange), store}})
				if r, err := p.Publish(s.Context(), Message{RoutingKey: "nowhere", OrderKey: "4711"}); err != nil || r.Place != PlaceFallback || r.Sink == "memory" {
					s.Errorf("unroutable: %+v, %v", r, err)
				}
				if letters := s.broker.Drain("unsent"); len(letters) != 1 || letters[0].Headers["x-rehop-order-key"] != "4711" {
					s.Errorf("letters: %+v, want one with its order key", letters)
				}
				s.broker.Stop()
				began := time.Now()
				for range 3 {
					if r, err := p.Publish(s.Context(), Message{RoutingKey: "open"}); err != nil || r.Sink != "memory" {
						s.Errorf("without a broker: %+v, %v", r, err)
					}
				}
				if took := time.Since(began); took > 1500*time.Millisecond {
					s.Errorf("three messages took %v, want FallbackAfter once", took)
				}
				if err := p.Close(); err != nil {
					s.Error(err)
				}
				if rule == "by a wrapper that hides it" {
					_ = exchange.Close()
				}
				if err := exchange.Put(s.Context(), Message{RoutingKey: "k"}, errors.New("why")); err == nil {
					s.Error("the sink is not closed with its Producer")
				}
			})
		})
	}
}

func TestALetterOfAnExchangeSinkNamesTheErrorBehindItsWrappers(t *testing.T) {
	inBubble(t, func(s *fixture) {
		s.exchange("unsent")
		sink, err := NewExchangeSink(s.conn, "unsent")
		if err != nil {
			s.Fatal(err)
		}
		defer sink.(*exchangeSink).Close()
		cause := fmt.Errorf("message 7: %w", &fs.PathError{Op: "open", Path: "spool", Err: fs.ErrNotExist})
		if err := sink.Put(s.Context(), Message{RoutingKey: "k"}, cause); err != nil {
			s.Fatal(err)
		}
		if letters := s.broker.Drain("unsent"); len(letters) != 1 || letters[0].Headers["x-rehop-error-type"] != "*errors.errorString" {
			s.Errorf("letters: %+v, want one with the type of fs.ErrNotExist", letters)
		}
	})
}

// selfish wraps itself.
type selfish struct{}

func (s selfish) Put(context.Context, Message, error) error { return nil }
func (s selfish) Unwrap() Sink                              { return s }

func TestASinkThatWrapsItselfEndsNoSearch(t *testing.T) {
	if name := nameOf(selfish{}); name != "producer.selfish" {
		t.Errorf("its name is %q", name)
	}
}
