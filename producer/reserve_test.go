package producer

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rehop/rehop/rehoptest"
)

// A caller whose ctx ends soon has its message in the Fallback in time, written or
// not, whatever the broker does.
func TestAShortContextLeavesTheFallbackItsTime(t *testing.T) {
	for rule, begin := range map[string]func(*rehoptest.Broker){
		"the broker is away":       (*rehoptest.Broker).Stop,
		"the broker is silent":     (*rehoptest.Broker).Stall,
		"the broker is slow":       func(b *rehoptest.Broker) { b.Slow(time.Minute) },
		"the broker blocks":        func(b *rehoptest.Broker) { b.Block("low on memory") },
		"a queue does not confirm": func(b *rehoptest.Broker) { b.Refuse("quorum", true) },
	} {
		for _, name := range []string{"Publish", "PublishAll", "PublishAsync"} {
			t.Run(rule+" "+name, func(t *testing.T) {
				inBubble(t, func(s *fixture) {
					const limit, need = 300 * time.Millisecond, 60 * time.Millisecond
					s.declare("quorum", map[string]any{"x-queue-type": "quorum"})
					sink := sinkFunc(func(ctx context.Context) error {
						select {
						case <-time.After(need):
							return nil
						case <-ctx.Done():
							return ctx.Err()
						}
					})
					p := s.producer(Config{Fallback: []Sink{sink}, FallbackAfter: 100 * time.Millisecond})
					defer p.Close()
					if _, err := p.Publish(s.Context(), Message{RoutingKey: "quorum"}); err != nil {
						s.Fatal(err)
					}
					begin(s.broker)
					for i := range 20 {
						ctx, cancel := context.WithTimeout(s.Context(), limit)
						r, err := publishBy(ctx, p, name, Message{RoutingKey: "quorum", ID: fmt.Sprint(i)})
						cancel()
						if err != nil || r.Place != PlaceFallback {
							s.Errorf("%d: %+v, %v", i, r, err)
						}
					}
					s.broker.Unblock()
					s.broker.Resume()
					s.broker.Slow(0)
					s.broker.Refuse("quorum", false)
				})
			})
		}
	}
}

// A healthy broker that is a bit slow gets no message doubled, however soon the
// Fallback is to have what cannot be sent.
func TestASlowConfirmIsNoOutage(t *testing.T) {
	inBubble(t, func(s *fixture) {
		p := s.producer(Config{Fallback: []Sink{&memory{}}, FallbackAfter: 20 * time.Millisecond})
		defer p.Close()
		for range 2 { // the first one may be too late for an opening channel
			_, _ = p.Publish(s.Context(), Message{RoutingKey: "open"})
		}
		s.broker.Slow(700 * time.Millisecond)
		for range 5 {
			if r, err := p.Publish(s.Context(), Message{RoutingKey: "open"}); err != nil || r.Place != PlaceQueue {
				s.Errorf("%+v, %v", r, err)
			}
		}
	})
}

// A message that is written waits on a connection that lives, however long the broker
// says nothing: the Fallback would double it. Only its own limits end the waiting.
func TestAWrittenMessageWaitsWhileTheConnectionLives(t *testing.T) {
	const timeout = 9 * time.Second
	each := func(do func(name string, lasts time.Duration)) {
		for _, name := range []string{"Publish", "PublishAll", "PublishAsync"} {
			do(name, timeout-time.Second)
			do(name, timeout+time.Second)
		}
	}
	for rule, row := range map[string]struct{ begin, end func(*rehoptest.Broker) }{
		"an alarm":                 {func(b *rehoptest.Broker) { b.Block("low on memory") }, (*rehoptest.Broker).Unblock},
		"a silent broker":          {(*rehoptest.Broker).Stall, (*rehoptest.Broker).Resume},
		"a queue without a leader": {func(b *rehoptest.Broker) { b.Refuse("quorum", true) }, func(b *rehoptest.Broker) { b.Refuse("quorum", false) }},
	} {
		each(func(name string, lasts time.Duration) {
			t.Run(fmt.Sprint(rule, " for ", lasts, ", ", name), func(t *testing.T) {
				inBubble(t, func(s *fixture) {
					s.declare("quorum", map[string]any{"x-queue-type": "quorum"})
					p := s.producer(Config{Fallback: []Sink{&memory{}}, FallbackAfter: 20 * time.Millisecond, Timeout: timeout})
					defer p.Close()
					if _, err := p.Publish(s.Context(), Message{RoutingKey: "quorum"}); err != nil {
						s.Fatal(err)
					}
					row.begin(s.broker)
					if lasts < timeout {
						time.AfterFunc(lasts, func() { row.end(s.broker) })
					}
					began := time.Now()
					r, err := publishBy(s.Context(), p, name, Message{RoutingKey: "quorum"})
					took := time.Since(began)
					if queued := err == nil && r.Place == PlaceQueue && !r.MaybeDuplicate; lasts < timeout && !queued {
						s.Errorf("it is over: %+v, %v after %v", r, err, took)
					}
					if kept := err == nil && r.Place == PlaceFallback && r.MaybeDuplicate && took == timeout; lasts > timeout && !kept {
						s.Errorf("it goes on: %+v, %v after %v", r, err, took)
					}
					row.end(s.broker)
				})
			})
		})
	}
}

// What is not written yet goes to the Fallback after FallbackAfter, also on a
// connection that lives, and at once while the outage is known.
func TestFallbackAfterIsKeptFrom20Milliseconds(t *testing.T) {
	for _, after := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 2 * time.Second} {
		for rule, begin := range map[string]func(*fixture){
			"an exchange that nobody answers for": func(s *fixture) { s.broker.Stall() },
			"a connection that is lost":           func(s *fixture) { s.broker.Stop(); time.Sleep(time.Millisecond) },
		} {
			t.Run(fmt.Sprint(rule, " ", after), func(t *testing.T) {
				inBubble(t, func(s *fixture) {
					s.exchange("shop")
					p := s.producer(Config{Fallback: []Sink{&memory{}}, FallbackAfter: after})
					defer p.Close()
					if _, err := p.Publish(s.Context(), Message{RoutingKey: "open"}); err != nil {
						s.Fatal(err)
					}
					begin(s)
					for i := range 3 {
						began := time.Now()
						r, err := p.Publish(s.Context(), Message{Exchange: "shop"})
						took, want := time.Since(began), after
						if i > 0 {
							want = 0
						}
						if err != nil || r.Place != PlaceFallback || r.MaybeDuplicate || took != want {
							s.Errorf("message %d: %+v, %v after %v, want %v", i, r, err, took, want)
						}
					}
					s.broker.Resume()
				})
			})
		}
	}
}

// An outage that is over diverts nothing: its clock has ended with it, although no
// message has been sent since.
func TestAnOutageThatIsOverDivertsNothing(t *testing.T) {
	for rule, row := range map[string]struct{ begin, end func(*rehoptest.Broker) }{
		"an alarm":          {func(b *rehoptest.Broker) { b.Block("low on memory") }, (*rehoptest.Broker).Unblock},
		"a silent broker":   {(*rehoptest.Broker).Stall, (*rehoptest.Broker).Resume},
		"a lost connection": {(*rehoptest.Broker).Stop, (*rehoptest.Broker).Start},
	} {
		t.Run(rule, func(t *testing.T) {
			inBubble(t, func(s *fixture) {
				for _, name := range []string{"a", "b", "c"} {
					s.exchange(name)
				}
				p := s.producer(Config{Fallback: []Sink{&memory{}}})
				defer p.Close()
				if _, err := p.Publish(s.Context(), Message{RoutingKey: "open"}); err != nil {
					s.Fatal(err)
				}
				row.begin(s.broker)
				for range 3 {
					if r, err := p.Publish(s.Context(), Message{RoutingKey: "open"}); err != nil || r.Place != PlaceFallback {
						s.Errorf("during it: %+v, %v", r, err)
					}
				}
				row.end(s.broker)
				time.Sleep(time.Hour)
				for _, name := range []string{"a", "b", "c"} { // each is new to the channel
					if r, err := p.Publish(s.Context(), Message{Exchange: name}); err != nil || r.Place != PlaceQueue {
						s.Errorf("an hour after it, to exchange %s: %+v, %v", name, r, err)
					}
				}
			})
		})
	}
}

// publishBy publishes in one of the three ways.
func publishBy(ctx context.Context, p *Producer, name string, m Message) (r Receipt, err error) {
	switch name {
	case "PublishAll":
		receipts, err := p.PublishAll(ctx, []Message{m})
		return receipts[0], err
	case "PublishAsync":
		done := make(chan struct{})
		p.PublishAsync(ctx, m, func(got Receipt, failed error) {
			defer close(done)
			r, err = got, failed
		})
		<-done
		return r, err
	}
	return p.Publish(ctx, m)
}
