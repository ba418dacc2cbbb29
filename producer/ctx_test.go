package producer

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/connection"
)

// lazily opens a Conn that has no connection yet, and makes a Producer on it.
func (s *fixture) lazily(dial func(ctx context.Context, network, address string) (net.Conn, error)) *Producer {
	s.Helper()
	conn, err := connection.Open(s.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker/"}, Dial: dial, Lazy: true})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = conn.Close() })
	p, err := New(conn, Config{})
	if err != nil {
		s.Fatal(err)
	}
	return p
}

// opened makes a Producer that has published.
func (s *fixture) opened(cfg Config) *Producer {
	s.Helper()
	p := s.producer(cfg)
	if _, err := p.Publish(s.Context(), Message{RoutingKey: "open"}); err != nil {
		s.Fatal(err)
	}
	return p
}

func unanswered(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func TestAWaitEndsWithTheCtxOfItsCaller(t *testing.T) {
	open := Message{RoutingKey: "open"}
	for _, tt := range []struct {
		rule    string
		m       Message
		waits   func(s *fixture) *Producer
		written bool // what waits is written
	}{
		{"nobody answers the dial", open, func(s *fixture) *Producer { return s.lazily(unanswered) }, false},
		{"the broker does not answer the login", open, func(s *fixture) *Producer {
			s.broker.Stall()
			return s.lazily(s.broker.Dial)
		}, false},
		{"the first channel is not open yet", open, func(s *fixture) *Producer {
			p := s.producer(Config{})
			s.broker.Stall()
			return p
		}, false},
		{"the broker has not said whether the exchange exists", Message{Exchange: "shop", RoutingKey: "k"}, func(s *fixture) *Producer {
			p := s.opened(Config{})
			s.broker.Stall()
			return p
		}, false},
		{"the window is full", open, func(s *fixture) *Producer {
			p := s.opened(Config{Window: 1})
			s.broker.Stall()
			p.PublishAsync(s.Context(), open, func(Receipt, error) {})
			return p
		}, false},
		{"the broker blocks publishers", open, func(s *fixture) *Producer {
			p := s.opened(Config{})
			s.broker.Block("low on memory")
			p.PublishAsync(s.Context(), open, func(Receipt, error) {}) // the broker tells those who publish
			synctest.Wait()
			return p
		}, false},
		{"the confirm does not come", open, func(s *fixture) *Producer {
			p := s.opened(Config{})
			s.broker.Stall()
			return p
		}, true},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			for _, way := range ways {
				t.Run(way.name, func(t *testing.T) {
					inBubble(t, func(s *fixture) {
						synctest.Wait() // the socket for publishing is connected
						p := tt.waits(s)
						ctx, cancel := context.WithCancelCause(s.Context())
						ended := make(chan error, 1)
						go func() {
							_, err := way.publish(ctx, p, tt.m)
							ended <- err
						}()
						time.Sleep(time.Second)
						if len(ended) > 0 {
							s.Fatalf("it does not wait: %v", <-ended)
						}
						cause := errors.New("the request is over")
						cancel(cause)
						began := time.Now()
						err := <-ended
						most := time.Duration(0)
						if tt.written && way.name == "PublishAsync" {
							most = 250 * time.Millisecond // between two looks at what has no answer
						}
						if took := time.Since(began); took > most {
							s.Errorf("it waits for %v more", took)
						}
						if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) || errors.Is(err, ErrUnconfirmed) != tt.written {
							s.Errorf("%v; want the error and the cause of its ctx, unconfirmed: %v", err, tt.written)
						}
						s.broker.Resume()
						s.broker.Unblock()
						_ = p.Close()
					})
				})
			}
		})
	}
}

// Nothing was tried, and the error must not look like an outage.
func TestACtxThatHadEndedSaysSo(t *testing.T) {
	for _, tt := range []struct {
		rule  string
		waits func(s *fixture) *Producer
	}{
		{"before the first connection", func(s *fixture) *Producer { return s.lazily(unanswered) }},
		{"on a live channel", func(s *fixture) *Producer { return s.opened(Config{}) }},
		{"in an outage", func(s *fixture) *Producer {
			p := s.opened(Config{})
			s.broker.Stop()
			synctest.Wait()
			return p
		}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			for _, way := range ways {
				t.Run(way.name, func(t *testing.T) {
					inBubble(t, func(s *fixture) {
						p := tt.waits(s)
						defer p.Close()
						ctx, cancel := context.WithCancelCause(s.Context())
						cause := errors.New("the request is over")
						cancel(cause)
						r, err := way.publish(ctx, p, Message{RoutingKey: "open"})
						if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) || strings.Contains(err.Error(), "no connection") || errors.Is(err, ErrUnconfirmed) || r.MaybeDuplicate {
							s.Errorf("%+v, %v; want the error and the cause of its ctx, and no outage", r, err)
						}
					})
				})
			}
		})
	}
}
