package confirm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/exchange"
	"github.com/rehop/rehop/internal/stucktest"
)

func (s *fixture) shop() {
	s.Helper()
	s.do(func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare("shop", "topic", true, false, false, false, nil); err != nil {
			return err
		}
		return ch.QueueBind("free", "#", "shop", false, nil)
	})
}

func order(id string) *Message {
	m := to("order", id)
	m.Exchange = "shop"
	return m
}

func TestAThousandCallersAskOnceForAnExchange(t *testing.T) {
	beforeStuckQueues(t, Limits{Messages: 1000}, 0, func(s *fixture, h *stucktest.Holder) {
		s.shop()
		h.Latency.Store(int64(70 * time.Millisecond))
		if err := s.publish(s.Context(), order("first")); err != nil {
			s.Fatal(err)
		}
		s.broker.Cut("")
		synctest.Wait()
		before := h.Channels()
		began := time.Now()
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
				defer cancel()
				if err := s.publish(ctx, order(fmt.Sprint(i))); err != nil {
					s.Error(err)
				}
			})
		}
		all.Wait()
		if n := h.Channels() - before; n > 3 { // for publishing, for the question, and one of the Conn's own
			s.Errorf("%d channels were opened for 1,000 callers", n)
		}
		s.Logf("1,000 callers took %v, the dial and its pause included", time.Since(began))
	})
}

// A caller that leaves takes the question from nobody.
func TestAQuestionOutlivesItsCaller(t *testing.T) {
	beforeStuckQueues(t, Limits{Messages: 10}, 0, func(s *fixture, h *stucktest.Holder) {
		s.shop()
		synctest.Wait()
		before := h.Channels()
		h.Latency.Store(int64(time.Second))
		for i := range 5 {
			ctx, cancel := context.WithTimeout(s.Context(), 100*time.Millisecond)
			if err := s.publish(ctx, order(fmt.Sprint(i))); !errors.Is(err, context.DeadlineExceeded) || rehop.ClassOf(err) != rehop.ClassTransient {
				s.Errorf("a caller with little time: %v", err)
			}
			cancel()
		}
		if err := s.publish(s.Context(), order("patient")); err != nil {
			s.Error(err)
		}
		if n := h.Channels() - before; n > 2 {
			s.Errorf("%d channels were opened, want one for publishing and one for the question", n)
		}
	})
}

// An exchange that was just declared need not be asked for; one that a fallback
// of the first message finds missing is asked for again.
func TestADeclaredExchangeIsNotAskedFor(t *testing.T) {
	beforeStuckQueues(t, Limits{Messages: 10}, 0, func(s *fixture, h *stucktest.Holder) {
		s.shop()
		exchange.Seen(s.conn, "shop", "gone")
		before := h.Channels()
		if err := s.publish(s.Context(), order("1")); err != nil {
			s.Fatal(err)
		}
		if n := h.Channels() - before; n != 1 {
			s.Errorf("%d channels were opened, want 1", n)
		}
		gone := order("2")
		gone.Exchange = "gone"
		for range 2 { // the broker's answer, and then that of the question
			if err := s.publish(s.Context(), gone); !errors.Is(err, ErrReturned) {
				s.Errorf("to an exchange that is gone: %v", err)
			}
		}
		s.do(func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare("gone", "fanout", true, false, false, false, nil)
		})
		s.do(func(ch *amqp.Channel) error { return ch.QueueBind("free", "", "gone", false, nil) })
		if err := s.publish(s.Context(), gone); err != nil {
			s.Errorf("to an exchange that is back: %v", err)
		}
	})
}

// What OnConnect declares need not be asked for either, nor after a reconnect.
func TestAnExchangeThatOnUpDeclaresIsNotAskedFor(t *testing.T) {
	beforeStuckQueues(t, Limits{Messages: 10}, 0, func(s *fixture, h *stucktest.Holder) {
		s.shop()
		conn, err := connection.Open(s.Context(), connection.Config{
			URLs: []string{"amqp://guest:guest@broker/"}, Dial: h.Dial,
			OnConnect: func(_ context.Context, conn *connection.Conn) error {
				exchange.Seen(conn, "shop")
				return nil
			},
		})
		if err != nil {
			s.Fatal(err)
		}
		defer conn.Close()
		p := New(conn, Limits{Messages: 10})
		defer p.Close()
		for round := range 3 {
			s.broker.Cut("")
			time.Sleep(time.Minute)
			before := h.Questions()
			m := order(fmt.Sprint(round))
			p.Send(s.Context(), m)
			if err := m.Wait(s.Context()); err != nil {
				s.Fatal(err)
			}
			if n := h.Questions() - before; n != 0 {
				s.Errorf("%d questions were asked in round %d", n, round)
			}
		}
		gone := order("gone")
		gone.Exchange = "gone"
		exchange.Seen(conn, "gone")
		exchange.Deleted(conn, "gone")
		before := h.Questions()
		p.Send(s.Context(), gone)
		if err := gone.Wait(s.Context()); !errors.Is(err, ErrReturned) || h.Questions() != before+1 {
			s.Errorf("to a deleted exchange: %v, and %d questions, want 1", err, h.Questions()-before)
		}
	})
}

// The first message takes no more than these round trips: channel and question
// at once (two each), then the message.
func TestRoundTripsOfTheFirstMessage(t *testing.T) {
	beforeStuckQueues(t, Limits{Messages: 10}, 0, func(s *fixture, h *stucktest.Holder) {
		s.shop()
		session, err := s.conn.Session(s.Context(), connection.Publish) // the socket is there
		if err != nil {
			s.Fatal(err)
		}
		defer session.Close()
		h.Latency.Store(int64(time.Second))
		began := time.Now()
		if err := s.publish(s.Context(), order("1")); err != nil {
			s.Fatal(err)
		}
		if trips := time.Since(began).Seconds(); trips > 3 {
			s.Errorf("the first message took %v round trips, want at most 3", trips)
		}
		began = time.Now()
		if err := s.publish(s.Context(), order("2")); err != nil || time.Since(began) > time.Second {
			s.Errorf("the second one: %v after %v", err, time.Since(began))
		}
	})
}
