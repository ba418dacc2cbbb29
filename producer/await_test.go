package producer

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/rehoptest"
)

func TestAwaitConnection(t *testing.T) {
	for rule, tt := range map[string]struct {
		begin, end func(*rehoptest.Broker)
		waits      time.Duration // at least, of the 5 s until end
	}{
		"connected: at once":                   {func(*rehoptest.Broker) {}, func(*rehoptest.Broker) {}, 0},
		"the broker is away: until it is back": {(*rehoptest.Broker).Stop, (*rehoptest.Broker).Start, 5 * time.Second},
		"the broker blocks: until it does not": {func(b *rehoptest.Broker) { b.Block("low on memory") }, (*rehoptest.Broker).Unblock, 5 * time.Second},
	} {
		t.Run(rule, func(t *testing.T) {
			inBubble(t, func(s *fixture) {
				p := s.producer(Config{})
				defer p.Close()
				if err := p.AwaitConnection(s.Context()); err != nil {
					s.Fatal(err)
				}
				tt.begin(s.broker)
				// A socket that publishes is told of an alarm.
				ctx, cancel := context.WithTimeout(s.Context(), time.Second)
				_, _ = p.Publish(ctx, Message{RoutingKey: "open"})
				cancel()
				began := time.Now()
				time.AfterFunc(5*time.Second, func() { tt.end(s.broker) })
				if err := p.AwaitConnection(s.Context()); err != nil {
					s.Error(err)
				}
				if took := time.Since(began); took < tt.waits || took > tt.waits+40*time.Second {
					s.Errorf("took %v, want %v or some more", took, tt.waits)
				}
				time.Sleep(6 * time.Second)
			})
		})
	}
}

func TestAwaitConnectionEnds(t *testing.T) {
	inBubble(t, func(s *fixture) {
		p := s.producer(Config{})
		s.broker.Stop()
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		if err := p.AwaitConnection(ctx); !errors.Is(err, context.DeadlineExceeded) {
			s.Errorf("%v, want the end of ctx", err)
		}
		if err := p.Close(); err != nil {
			s.Error(err)
		}
		if err := p.AwaitConnection(s.Context()); rehop.ClassOf(err) != rehop.ClassBug {
			s.Errorf("%v, want that of the closed Producer", err)
		}
		s.broker.Start()
	})
}

func TestWithoutAContextNothingIsPublished(t *testing.T) {
	inBubble(t, func(s *fixture) {
		var none context.Context
		p := s.producer(Config{})
		_, one := p.Publish(none, Message{RoutingKey: "open"})
		_, all := p.PublishAll(none, []Message{{RoutingKey: "open"}})
		var async error
		p.PublishAsync(none, Message{RoutingKey: "open"}, func(_ Receipt, err error) { async = err })
		for call, err := range map[string]error{"Publish": one, "PublishAll": all, "PublishAsync": async, "Flush": p.Flush(none)} {
			if err == nil || !strings.Contains(err.Error(), "ctx is nil") || rehop.ClassOf(err) != rehop.ClassBug {
				s.Errorf("%s: %v, want that ctx is nil", call, err)
			}
		}
		if err := p.Close(); err != nil {
			s.Errorf("Close: %v", err)
		}
	})
}
