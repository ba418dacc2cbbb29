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

// What is known of the lines of a Producer is what the sinks have said of the latest messages.
func TestWhatHealthTellsOfMessagesBehindOthers(t *testing.T) {
	t0, errLocked, errLeft := time.Unix(1_000_000, 0), errors.New("locked"), errors.New("left")
	type event struct {
		at    time.Duration
		err   error // of the sink; nil: it has kept the message
		ended error // of the caller's ctx
	}
	for _, tt := range []struct {
		rule   string
		events []event
		at     time.Duration
		since  time.Duration // -1: healthy
		cause  error
	}{
		{"nothing was kept", nil, 0, -1, nil},
		{"a message was kept", []event{{0, nil, nil}}, behindFor - 1, 0, ErrBehind},
		{"kept long ago, and none since: the store may be empty", []event{{0, nil, nil}}, behindFor, -1, nil},
		{"one after another", []event{{0, nil, nil}, {behindFor - 1, nil, nil}}, 2*behindFor - 2, 0, ErrBehind},
		{"one, and another one long afterwards", []event{{0, nil, nil}, {behindFor, nil, nil}}, behindFor, behindFor, ErrBehind},
		{"the sink cannot tell", []event{{0, errLocked, nil}}, 1, 0, errLocked},
		{"the sink cannot tell any more", []event{{0, nil, nil}, {1, errLocked, nil}}, 2, 0, errLocked},
		{"the caller left: nothing is known", []event{{0, errLeft, errLeft}}, 1, -1, nil},
		{"the message is at fault: nothing is known", []event{{0, rehop.WithClass(errLocked, rehop.ClassBug), nil}}, 1, -1, nil},
		{"kept, although the caller left", []event{{0, nil, errLeft}}, 1, 0, ErrBehind},
		{"the caller of the next one left", []event{{0, nil, nil}, {behindFor - 1, errLeft, errLeft}}, behindFor, -1, nil},
	} {
		var b behind
		for _, e := range tt.events {
			b = b.after(t0.Add(e.at), e.err, e.ended)
		}
		switch h := b.health(t0.Add(tt.at)); {
		case (h == nil) != (tt.since < 0):
			t.Errorf("%s: %v", tt.rule, h)
		case h != nil && (!h.Degraded || !h.Since.Equal(t0.Add(tt.since)) || !errors.Is(h, tt.cause) || errors.Is(h, ErrBehind) != errors.Is(tt.cause, ErrBehind)):
			t.Errorf("%s: %v since %v, want %v since %v", tt.rule, h, h.Since, tt.cause, t0.Add(tt.since))
		}
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
				publish := func(ctx context.Context, queue string, want Place) {
					s.Helper()
					if r, err := tt.publish(ctx, p, Message{RoutingKey: queue}); r.Place != want || (err == nil) != (want != "") {
						s.Errorf("%+v, %v", r, err)
					}
				}
				check := func(rule string, since time.Time, cause error) {
					s.Helper()
					var h *rehop.HealthError
					switch err := p.Health(); {
					case cause == nil && err != nil, cause != nil && (!errors.As(err, &h) || !h.Degraded || !h.Since.Equal(since) || !errors.Is(h, cause)):
						s.Errorf("%s: Health = %v, want %v since %v", rule, err, cause, since)
					}
				}
				ended, cancel := context.WithCancel(s.Context())
				cancel()
				sink.err = context.Canceled
				publish(ended, "open", "")
				check("the caller left", time.Time{}, nil)
				sink.err = nil
				publish(s.Context(), "open", PlaceFallback)
				kept := time.Now()
				check("kept", kept, ErrBehind)
				publish(s.Context(), "free", PlaceQueue)
				check("a message to another target says nothing of them", kept, ErrBehind)
				time.Sleep(behindFor)
				check("the store may be empty by now", time.Time{}, nil)
				sink.err = errors.New("locked")
				publish(s.Context(), "open", "")
				check("a message that the sink did not keep", time.Now(), sink.err)
			})
		})
	}
}
