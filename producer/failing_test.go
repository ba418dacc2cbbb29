package producer

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// hanging is a sink that does not answer.
type hanging struct{ memory }

func (*hanging) Put(ctx context.Context, _ Message, _ error) error {
	<-ctx.Done()
	return ctx.Err()
}

// As many messages of one caller as the window has are sent again, or are in a sink.
func TestTheFailuresOfOneCallerCostNoOtherItsDeadline(t *testing.T) {
	ways := map[string]func(*Producer, context.Context) error{
		"PublishAll": func(p *Producer, ctx context.Context) error {
			_, err := p.PublishAll(ctx, []Message{{RoutingKey: "open"}})
			return err
		},
		"PublishAsync": func(p *Producer, ctx context.Context) error {
			done := make(chan error, 1)
			p.PublishAsync(ctx, Message{RoutingKey: "open"}, func(_ Receipt, err error) { done <- err })
			return <-done
		},
	}
	for name, cfg := range map[string]Config{
		"sent again":    {Window: 100},
		"in a sink":     {Window: 100, Fallback: []Sink{&hanging{}}, FallbackAfter: 100 * time.Millisecond},
		"one at a time": {Window: 1},
	} {
		for way, publish := range ways {
			t.Run(name+" "+way, func(t *testing.T) {
				inBubble(t, func(s *fixture) {
					p := s.producer(cfg)
					if _, err := p.Publish(s.Context(), Message{RoutingKey: "open"}); err != nil {
						s.Fatal(err)
					}
					s.broker.Refuse("open", true)
					many := make([]Message, cfg.Window)
					for i := range many {
						many[i].RoutingKey = "open"
					}
					var patient sync.WaitGroup
					patient.Go(func() { _, _ = p.PublishAll(s.Context(), many) })
					synctest.Wait()
					s.broker.Stop()
					time.Sleep(time.Second)
					ctx, cancel := context.WithTimeout(s.Context(), 50*time.Millisecond)
					defer cancel()
					began := time.Now()
					err := publish(p, ctx)
					if took := time.Since(began); err == nil || took > 100*time.Millisecond {
						s.Errorf("with a ctx of 50 ms it took %v: %v", took, err)
					}
					patient.Wait()
					_ = p.Close() // the sink does not answer
				})
			})
		}
	}
}

func TestTheEndOfItsCtxEndsPublishAllAtOnce(t *testing.T) {
	inBubble(t, func(s *fixture) {
		p := s.producer(Config{})
		s.broker.Refuse("open", true)
		for name, end := range map[string]func() (context.Context, context.CancelFunc){
			"deadline": func() (context.Context, context.CancelFunc) {
				return context.WithTimeout(s.Context(), 10*time.Millisecond)
			},
			"cancelled": func() (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(s.Context())
				time.AfterFunc(10*time.Millisecond, cancel)
				return ctx, cancel
			},
		} {
			ctx, cancel := end()
			began := time.Now()
			if _, err := p.PublishAll(ctx, []Message{{RoutingKey: "open"}}); !errors.Is(err, ErrUnconfirmed) || time.Since(began) > 10*time.Millisecond {
				s.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
			cancel()
		}
		s.broker.Refuse("open", false)
		synctest.Wait()
		if err := p.Close(); err != nil {
			s.Error(err)
		}
	})
}
