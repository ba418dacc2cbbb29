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
		{"the broker was lost before the confirm, and is not back", open, func(s *fixture) *Producer {
			p := s.opened(Config{})
			s.broker.Stall()
			go func() {
				time.Sleep(100 * time.Millisecond)
				s.broker.Stop()
			}()
			return p
		}, true},
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

func TestTheEndOfCtxIsSaid(t *testing.T) {
	cause := errors.New("the request is over")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	ours, cancel := context.WithCancelCause(t.Context())
	cancel(errShutdown)
	told := errors.Join(ErrNacked, context.Canceled, cause)
	for _, tt := range []struct {
		rule string
		ctx  context.Context
		err  error
		is   []error
		same bool // nothing is added
	}{
		{"the caller's", ended, ErrNacked, []error{ErrNacked, context.Canceled, cause}, false},
		{"a limit of ours is not the caller's", ours, ErrNacked, []error{ErrNacked, errShutdown}, false},
		{"once", ended, told, nil, true},
		{"its cause, where an error of a network is like that of ctx", ended, errors.Join(ErrNacked, context.Canceled), []error{cause}, false},
		{"a limit of ours once", ours, errors.Join(ErrNacked, errShutdown), nil, true},
		{"none has ended", t.Context(), ErrNacked, nil, true},
	} {
		err := withEnd(tt.ctx, tt.err)
		for _, want := range append(tt.is, ErrNacked) {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v; want that it is %v", tt.rule, err, want)
			}
		}
		if (err.Error() == tt.err.Error()) != tt.same {
			t.Errorf("%s: %v", tt.rule, err)
		}
	}
	if err := withEnd(ours, ErrNacked); errors.Is(err, context.Canceled) {
		t.Errorf("%v looks like the caller's", err)
	}
}

// A message that the broker has refused goes to no sink once ctx has ended, and the error says why.
func TestTheFallbackIsNotAskedOnceCtxHasEnded(t *testing.T) {
	inBubble(t, func(s *fixture) {
		p := s.producer(Config{Fallback: []Sink{sinkFunc(func(context.Context) error { s.Error("the sink is asked"); return nil })}})
		defer p.Close()
		ctx, cancel := context.WithCancelCause(s.Context())
		cause := errors.New("the request is over")
		cancel(cause)
		r := p.receipt(ctx, &Message{ID: "m"}, false, ErrNacked)
		if !errors.Is(r.Err, ErrNacked) || !errors.Is(r.Err, context.Canceled) || !errors.Is(r.Err, cause) || r.Place != "" {
			s.Errorf("%+v", r)
		}
	})
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

// A caller may cancel with an error of ours, such as that of another message. It is the caller's end all the same.
func TestACtxThatAnErrorOfOursHasEndedIsTheCallers(t *testing.T) {
	for _, cause := range []error{ErrReturned, ErrRefused, ErrNacked, ErrUnconfirmed, ErrBehind, connection.ErrClosed} {
		inBubble(t, func(s *fixture) {
			for rule, p := range map[string]*Producer{"on a live channel": s.opened(Config{}), "without a connection": s.lazily(unanswered)} {
				ctx, cancel := context.WithCancelCause(s.Context())
				time.AfterFunc(time.Second, func() { cancel(cause) })
				s.broker.Stall()
				_, err := p.Publish(ctx, Message{RoutingKey: "open"})
				if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), cause.Error()) {
					s.Errorf("%s, ended with %q: %v; want the error of the ctx and its cause", rule, cause, err)
				}
				s.broker.Resume()
				_ = p.Close()
			}
		})
	}
}
