package producer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rehop/rehop"
)

// ordered has messages to "full" and keeps those that come, unless it fails.
type ordered struct {
	memory
	kept int
	err  error
}

func (o *ordered) PutBehind(_ context.Context, m Message) (bool, error) {
	if m.RoutingKey != "open" || o.err != nil {
		return false, o.err
	}
	o.kept++
	return true, nil
}

func TestAMessageBehindStoredOnesIsNotSent(t *testing.T) {
	errLocked := errors.New("locked")
	for rule, tt := range map[string]struct {
		m     Message
		err   error
		place Place
		kept  int
		doubt bool
	}{
		"others wait: kept":                   {Message{RoutingKey: "open"}, nil, PlaceFallback, 1, false},
		"none to this key wait: sent":         {Message{RoutingKey: "free"}, nil, PlaceQueue, 0, false},
		"it comes out of a sink: sent":        {Message{RoutingKey: "open", Replays: 1}, nil, PlaceQueue, 0, false},
		"the sink fails: not sent":            {Message{RoutingKey: "open"}, errLocked, "", 0, false},
		"the sink does not know: unconfirmed": {Message{RoutingKey: "open"}, ErrUnconfirmed, "", 0, true},
	} {
		t.Run(rule, func(t *testing.T) {
			inBubble(t, func(s *fixture) {
				s.declare("free", nil)
				sink := &ordered{err: tt.err}
				p := s.producer(Config{Fallback: []Sink{sink}})
				defer p.Close()
				check := func(way string, r Receipt, err error) {
					s.Helper()
					if r.Place != tt.place || (err == nil) != (tt.place != "") || r.MaybeDuplicate != tt.doubt {
						s.Errorf("%s: %+v, %v", way, r, err)
					}
					if (tt.place == PlaceQueue) == errors.Is(r.Err, ErrBehind) || tt.place == PlaceFallback && r.Cause != rehop.CauseUnreachable {
						s.Errorf("%s: %+v, want a word of those before it", way, r)
					}
				}
				r, err := p.Publish(s.Context(), tt.m)
				check("Publish", r, err)
				all, err := p.PublishAll(s.Context(), []Message{tt.m, {RoutingKey: "free"}})
				check("PublishAll", all[0], err)
				if tt.err == nil && all[1].Place != PlaceQueue {
					s.Errorf("the other one: %+v", all[1])
				}
				answered := make(chan bool)
				p.PublishAsync(s.Context(), tt.m, func(r Receipt, err error) { check("PublishAsync", r, err); close(answered) })
				<-answered
				if sink.kept != 3*tt.kept {
					s.Errorf("%d kept, want %d", sink.kept, 3*tt.kept)
				}
			})
		})
	}
}

// Messages that are kept behind others do not reach the broker, and nothing else says so.
func TestHealthOfAProducerWhoseMessagesAreKeptBehindOthers(t *testing.T) {
	for _, tt := range ways {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(s *fixture) {
				s.declare("free", nil)
				sink := &ordered{}
				p := s.producer(Config{Fallback: []Sink{sink}})
				defer p.Close()
				publish := func(queue string, want Place) {
					s.Helper()
					if r, err := tt.publish(s.Context(), p, Message{RoutingKey: queue}); r.Place != want || (err == nil) != (want != "") {
						s.Errorf("%+v, %v", r, err)
					}
				}
				publish("open", PlaceFallback)
				kept := time.Now()
				time.Sleep(time.Hour)
				publish("open", PlaceFallback)
				var h *rehop.HealthError
				if err := p.Health(); !errors.As(err, &h) || !h.Degraded || !h.Since.Equal(kept) || !errors.Is(h, ErrBehind) {
					s.Errorf("Health = %v, want degraded since %v", err, kept)
				}
				publish("free", PlaceQueue)
				if err := p.Health(); err != nil {
					s.Errorf("Health = %v after a message has reached its queue", err)
				}
				sink.err = errors.New("locked")
				publish("open", "")
				if err := p.Health(); !errors.As(err, &h) || !errors.Is(h, ErrBehind) {
					s.Errorf("Health = %v after a message that the sink did not keep", err)
				}
			})
		})
	}
}
