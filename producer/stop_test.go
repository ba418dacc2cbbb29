package producer

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
)

func TestShutdownWaitsForReceiptsUntilItsContextEnds(t *testing.T) {
	for rule, tt := range map[string]struct {
		slow  time.Duration // of the broker
		limit time.Duration
		took  time.Duration
		sink  Sink
		place Place
		says  string
	}{
		"all have theirs":           {time.Second / 2, 10 * time.Second, time.Second / 2, nil, PlaceQueue, ""},
		"the time is over":          {time.Hour, 10 * time.Second, 10 * time.Second, nil, "", "3 messages that are not known to be safe"},
		"the Fallback takes them":   {time.Hour, 10 * time.Second, 8 * time.Second, &memory{}, PlaceFallback, ""},
		"the Fallback hangs":        {time.Hour, 10 * time.Second, 10 * time.Second, sinkFunc(commits), "", "3 messages that are not known to be safe"},
		"the Fallback, little time": {time.Hour, 400 * time.Millisecond, 300 * time.Millisecond, &memory{}, PlaceFallback, ""},
	} {
		t.Run(rule, func(t *testing.T) {
			inBubble(t, func(s *fixture) {
				cfg := Config{Timeout: time.Minute, FallbackAfter: time.Minute}
				if tt.sink != nil {
					cfg.Fallback = []Sink{tt.sink}
				}
				p := s.producer(cfg)
				if _, err := p.Publish(s.Context(), Message{RoutingKey: "open"}); err != nil {
					s.Fatal(err)
				}
				s.broker.Slow(tt.slow)
				var receipts atomic.Int32
				for range 3 {
					p.PublishAsync(s.Context(), Message{RoutingKey: "open"}, func(r Receipt, err error) {
						if r.Place != tt.place || (err == nil) != (tt.place != "") {
							s.Errorf("%+v, %v", r, err)
						}
						receipts.Add(1)
					})
				}
				ctx, cancel := context.WithTimeout(s.Context(), tt.limit)
				defer cancel()
				began := time.Now()
				err := p.Shutdown(ctx)
				if took := time.Since(began); took < tt.took || took > min(tt.limit, tt.took+2*time.Second) { // the channel is closed too
					s.Errorf("took %v, want %v", took, tt.took)
				}
				if (err == nil) != (tt.says == "") || err != nil && (!strings.Contains(err.Error(), tt.says) || !errors.Is(err, context.DeadlineExceeded)) {
					s.Errorf("%v, want %q in it", err, tt.says)
				}
				s.broker.Slow(0)
				synctest.Wait()
				if n := receipts.Load(); n != 3 {
					s.Errorf("%d receipts, want 3", n)
				}
				if _, err := p.Publish(s.Context(), Message{RoutingKey: "open"}); rehop.ClassOf(err) != rehop.ClassBug || !strings.Contains(err.Error(), "the Producer is closed") {
					s.Errorf("Publish afterwards: %v", err)
				}
				if err := p.Shutdown(s.Context()); err != nil {
					s.Errorf("again: %v", err)
				}
			})
		})
	}
}

func TestShutdownTellsMessagesThatAreSafe(t *testing.T) {
	inBubble(t, func(s *fixture) {
		p := s.producer(Config{})
		hold := make(chan struct{})
		for range 10 {
			p.PublishAsync(s.Context(), Message{RoutingKey: "open"}, func(Receipt, error) { <-hold })
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		if err := p.Shutdown(ctx); err == nil || strings.Contains(err.Error(), "not known to be safe") || !strings.Contains(err.Error(), "of 10 messages") {
			s.Errorf("with confirmed messages whose functions do not return: %v", err)
		}
		close(hold)
		if err := p.Shutdown(s.Context()); err != nil {
			s.Error(err)
		}
	})
}

func TestShutdownOfAnIdleProducerTakesNoTime(t *testing.T) {
	inBubble(t, func(s *fixture) {
		ctx, cancel := context.WithCancel(s.Context())
		cancel()
		for range 100 {
			if err := s.producer(Config{}).Shutdown(ctx); err != nil {
				s.Fatal(err)
			}
		}
	})
}

// Close never takes longer than it says, whatever the broker and the sinks do.
func TestCloseIsBounded(t *testing.T) {
	inBubble(t, func(s *fixture) {
		release := make(chan struct{})
		p := s.producer(Config{Fallback: []Sink{sinkFunc(func(context.Context) error { <-release; return nil })}})
		s.broker.Stop()
		p.PublishAsync(s.Context(), Message{RoutingKey: "open"}, nil)
		began := time.Now()
		if err := p.Close(); err == nil || !strings.Contains(err.Error(), "1 messages") || time.Since(began) != closeTimeout {
			s.Errorf("%v after %v", err, time.Since(began))
		}
		close(release)
		if err := p.Shutdown(s.Context()); err != nil {
			s.Error(err)
		}
	})
}

func TestHealthOfAProducer(t *testing.T) {
	inBubble(t, func(s *fixture) {
		p := s.producer(Config{Timeout: time.Second})
		check := func(rule string, healthy, degraded bool, says string) {
			s.Helper()
			err := p.Health()
			var h *rehop.HealthError
			if (err == nil) != healthy || err != nil && (!errors.As(err, &h) || h.Degraded != degraded || !strings.Contains(err.Error(), says)) {
				s.Errorf("%s: %v, want healthy %v, degraded %v and %q", rule, err, healthy, degraded, says)
			}
		}
		check("nothing was published", true, false, "")
		_, _ = p.Publish(s.Context(), Message{RoutingKey: "open"})
		check("a message was confirmed", true, false, "")
		_, _ = p.Publish(s.Context(), Message{RoutingKey: "full"})
		check("a message was nacked", true, false, "")
		s.broker.Stop()
		check("nobody has noticed the loss", true, false, "")
		_, _ = p.Publish(s.Context(), Message{RoutingKey: "open"})
		check("no connection", false, true, "refused")
		time.Sleep(unhealthyAfter)
		check("no connection for long", false, false, "refused")
		s.broker.Start()
		time.Sleep(time.Second)
		check("a connection again", true, false, "")
		s.broker.Block("low on memory")
		_, _ = p.Publish(s.Context(), Message{RoutingKey: "open"})
		check("blocked", false, true, "low on memory")
		s.broker.Unblock()
		synctest.Wait()
		check("not blocked any more", true, false, "")
		if err := p.Close(); err != nil {
			s.Error(err)
		}
		check("closed", false, false, "the Producer is closed")
		closed := time.Now()
		time.Sleep(time.Hour)
		_ = p.Close()
		var h *rehop.HealthError
		if err := p.Health(); !errors.As(err, &h) || !h.Since.Equal(closed) {
			s.Errorf("an hour after it was closed: %v since %v, want %v", err, h.Since, closed)
		}
	})
}

// A broker that does not answer is the same outage before and after its connection is lost.
func TestHealthOfAProducerKeepsItsSinceWhenTheConnectionIsLost(t *testing.T) {
	inBubble(t, func(s *fixture) {
		p := s.producer(Config{Timeout: time.Minute})
		if _, err := p.Publish(s.Context(), Message{RoutingKey: "open"}); err != nil {
			s.Fatal(err)
		}
		s.broker.Stall()
		defer s.broker.Resume()
		p.PublishAsync(s.Context(), Message{RoutingKey: "open"}, nil)
		defer func() { _ = p.Close() }()
		time.Sleep(2 * time.Second)
		var before, after *rehop.HealthError
		if err := p.Health(); !errors.As(err, &before) || !before.Degraded {
			s.Fatalf("silent for 2 s: %v", err)
		}
		time.Sleep(unhealthyAfter - time.Second)
		if err := p.Health(); !errors.As(err, &after) || after.Degraded || !after.Since.Equal(before.Since) {
			s.Errorf("%v; a second after the loss: %v", before, err)
		}
		if s.conn.State(connection.Publish).Status == connection.Up {
			s.Error("the connection is not lost")
		}
	})
}

// onlyAlarms is a sink for messages that an alarm blocks.
type onlyAlarms struct{ memory }

func (*onlyAlarms) Takes(cause rehop.Cause) bool { return cause == rehop.CauseBlocked }

func TestHealthAsksTheSinksWhetherTheyTakeTheCause(t *testing.T) {
	inBubble(t, func(s *fixture) {
		p := s.producer(Config{Fallback: []Sink{&onlyAlarms{}}, Timeout: time.Second})
		if _, err := p.Publish(s.Context(), Message{RoutingKey: "open"}); err != nil {
			s.Fatal(err)
		}
		degraded := func() bool {
			r, err := p.Publish(s.Context(), Message{RoutingKey: "open"})
			time.Sleep(unhealthyAfter)
			var h *rehop.HealthError
			if !errors.As(p.Health(), &h) {
				s.Fatalf("it is healthy, after %+v, %v", r, err)
			}
			return h.Degraded
		}
		s.broker.Block("low on memory")
		if !degraded() {
			s.Error("blocked, which the sink is for: not degraded")
		}
		s.broker.Unblock()
		synctest.Wait()
		s.broker.Stop()
		synctest.Wait()
		if degraded() {
			s.Error("without a connection, which no sink is for: degraded")
		}
	})
}

// A sink that the first of two Producers has closed says so.
func TestAClosedSinkSaysThatItIsShared(t *testing.T) {
	inBubble(t, func(s *fixture) {
		s.exchange("unsent")
		sink, err := NewExchangeSink(s.conn, "unsent")
		if err != nil {
			s.Fatal(err)
		}
		first, second := s.producer(Config{Fallback: []Sink{sink}}), s.producer(Config{Fallback: []Sink{sink}})
		if err := first.Close(); err != nil {
			s.Error(err)
		}
		_, err = second.Publish(s.Context(), Message{RoutingKey: "nowhere"})
		if err == nil || !strings.Contains(err.Error(), `the sink "exchange unsent" is closed`) || strings.Contains(err.Error(), "connection: closed") {
			s.Error(err)
		}
		if err := second.Close(); err != nil {
			s.Error(err)
		}
	})
}
