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

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/stucktest"
	"github.com/rehop/rehop/rehoptest"
)

// beforeStuckQueues runs a test with queues free, stuck1, stuck2 and so on.
func beforeStuckQueues(t *testing.T, limits Limits, stuck int, test func(s *fixture, h *stucktest.Holder)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, err := rehoptest.NewBroker(rehoptest.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		h := stucktest.New(b.Dial)
		s := &fixture{T: t, broker: b}
		s.conn, err = connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker/"}, Dial: h.Dial})
		if err != nil {
			t.Fatal(err)
		}
		defer s.conn.Close()
		s.p = New(s.conn, limits)
		defer s.p.Close()
		s.declare(nil, "free")
		for i := range stuck {
			s.declare(nil, fmt.Sprintf("stuck%d", i+1))
		}
		test(s, h)
	})
}

// resent publishes as producer and consumer do: what is held up is sent again. A
// message that is held up for good fails, and the test with it.
func (s *fixture) resent(m *Message) (tries int, err error) {
	ctx, cancel := context.WithTimeout(s.Context(), 10*time.Minute)
	defer cancel()
	for {
		tries++
		err = s.publish(ctx, m)
		if !errors.Is(err, errHeldUp) {
			return tries, err
		}
	}
}

func TestAStuckTargetHoldsUpNoOther(t *testing.T) {
	beforeStuckQueues(t, Limits{Messages: 100}, 1, func(s *fixture, h *stucktest.Holder) {
		h.Hold("stuck1")
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if tries, err := s.resent(to("stuck1", "1")); err != nil || tries != 1 {
				s.Errorf("the message to the stuck target: %v after %d tries", err, tries)
			}
		})
		synctest.Wait()
		began := time.Now()
		for i := range 5 {
			if tries, err := s.resent(to("free", fmt.Sprint(i))); err != nil || i > 0 && tries > 1 {
				s.Errorf("message %d to another target: %v after %d tries", i, err, tries)
			}
		}
		// A second until the target is known to be silent, and two in which the broker
		// might only be slow.
		if took := time.Since(began); took > 3500*time.Millisecond {
			s.Errorf("messages to another target took %v", took)
		}
		// Further ones to the stuck target hold nobody up.
		waiting.Go(func() {
			if _, err := s.resent(to("stuck1", "2")); err != nil {
				s.Errorf("the second message to the stuck target: %v", err)
			}
		})
		synctest.Wait()
		began = time.Now()
		if _, err := s.resent(to("free", "later")); err != nil || time.Since(began) > 0 {
			s.Errorf("a later message to another target: %v after %v", err, time.Since(began))
		}
		h.Release("stuck1")
		waiting.Wait()
		if n := s.in("stuck1"); n != 2 {
			s.Errorf("%d messages in the queue that was stuck, want 2", n)
		}
		time.Sleep(3 * time.Second)
		if s.p.silent.any() {
			s.Error("the target that answers is still set apart")
		}
		if n := len(s.p.all()); n != 1 {
			s.Errorf("%d channels are open, want 1", n)
		}
	})
}

// An answer on the new channel shows that the broker is not slow.
func TestWhatIsHeldUpIsSentAgainSoonWhereTheBrokerAnswersOthers(t *testing.T) {
	beforeStuckQueues(t, Limits{Messages: 100}, 1, func(s *fixture, h *stucktest.Holder) {
		h.Hold("stuck1")
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if _, err := s.resent(to("stuck1", "1")); err != nil {
				s.Error(err)
			}
		})
		synctest.Wait()
		began := time.Now()
		waiting.Go(func() {
			if tries, err := s.resent(to("free", "held up")); err != nil || tries != 2 || time.Since(began) > 2*time.Second {
				s.Errorf("the message behind it: %v after %d tries and %v", err, tries, time.Since(began))
			}
			h.Release("stuck1")
		})
		time.Sleep(1500 * time.Millisecond) // there is a new channel
		if tries, err := s.resent(to("free", "later")); err != nil || tries != 1 {
			s.Errorf("a message on the new channel: %v after %d tries", err, tries)
		}
		waiting.Wait()
	})
}

func TestReportedMessagesBehindAStuckTargetAreHeldUp(t *testing.T) {
	beforeStuckQueues(t, Limits{Messages: 100}, 1, func(s *fixture, h *stucktest.Holder) {
		h.Hold("stuck1")
		r, first := &reports{}, &reports{}
		stuck, free := to("stuck1", "1"), to("free", "1")
		stuck.Report, free.Report = first, r
		first.all.Add(1)
		r.all.Add(1)
		ctx, cancel := context.WithTimeout(s.Context(), 10*time.Minute)
		defer cancel()
		s.p.Send(ctx, stuck, free)
		r.all.Wait()
		if !errors.Is(free.Err, ErrUnconfirmed) || !errors.Is(free.Err, errHeldUp) {
			s.Errorf("a message behind the stuck one: %v", free.Err)
		}
		h.Release("stuck1")
		first.all.Wait()
		if stuck.Err != nil {
			s.Error(stuck.Err)
		}
	})
}

// A broker that is slow for all answers later, and a message that is sent again for that
// is there twice.
func TestNothingIsSentAgainForASlowBroker(t *testing.T) {
	beforeStuckQueues(t, Limits{Messages: 100}, 1, func(s *fixture, h *stucktest.Holder) {
		for _, key := range []string{"free", "stuck1"} {
			if err := s.publish(s.Context(), to(key, "first")); err != nil {
				s.Fatal(err)
			}
		}
		h.Hold("free", "stuck1")
		var waiting sync.WaitGroup
		for i := range 20 {
			waiting.Go(func() {
				key := []string{"free", "stuck1"}[i%2]
				if tries, err := s.resent(to(key, fmt.Sprint(i))); err != nil || tries != 1 {
					s.Errorf("message %d: %v after %d tries", i, err, tries)
				}
			})
		}
		time.Sleep(3 * time.Second)
		h.Release("free")
		h.Release("stuck1")
		waiting.Wait()
		for _, key := range []string{"free", "stuck1"} {
			if n := s.in(key); n != 11 {
				s.Errorf("%d messages in %s, want 11", n, key)
			}
		}
	})
}

// Each round finds one stuck target. The time doubles while nothing is answered
// in between.
func TestSeveralStuckTargets(t *testing.T) {
	const n = 4
	beforeStuckQueues(t, Limits{Messages: 100}, n, func(s *fixture, h *stucktest.Holder) {
		var waiting sync.WaitGroup
		for i := range n {
			key := fmt.Sprintf("stuck%d", i+1)
			h.Hold(key)
			waiting.Go(func() {
				if _, err := s.resent(to(key, key)); err != nil {
					s.Errorf("%s: %v", key, err)
				}
			})
		}
		synctest.Wait()
		for i := range 10 {
			if _, err := s.resent(to("free", fmt.Sprint(i))); err != nil {
				s.Error(err)
			}
		}
		began := time.Now()
		time.Sleep(time.Minute)
		if _, err := s.resent(to("free", "later")); err != nil || time.Since(began) > time.Minute {
			s.Errorf("with all of them set apart: %v after %v", err, time.Since(began)-time.Minute)
		}
		for i := range n {
			h.Release(fmt.Sprintf("stuck%d", i+1))
		}
		waiting.Wait()
	})
}

// With many keys that lead to one stuck queue, the exchange is set apart, and
// the channels stay few.
func TestManyKeysOfOneExchangeAreSetApartTogether(t *testing.T) {
	beforeStuckQueues(t, Limits{Messages: 100}, 0, func(s *fixture, h *stucktest.Holder) {
		s.do(func(ch *amqp.Channel) error {
			if err := ch.ExchangeDeclare("shop", "topic", true, false, false, false, nil); err != nil {
				return err
			}
			return ch.QueueBind("free", "#", "shop", false, nil)
		})
		brief, cancel := context.WithTimeout(s.Context(), 2*time.Minute)
		defer cancel()
		var waiting sync.WaitGroup
		for i := range 40 {
			key := fmt.Sprintf("order.%d", i)
			h.Hold(key)
			waiting.Go(func() {
				for brief.Err() == nil {
					m := to(key, key)
					m.Exchange = "shop"
					_ = s.publish(brief, m)
				}
			})
			time.Sleep(2 * time.Second)
			if _, err := s.resent(to("free", key)); err != nil {
				s.Error(err)
			}
		}
		if n := len(s.p.all()); n > 4*maxKeys { // some twice, for they last long
			s.Errorf("%d channels are open", n)
		}
		waiting.Wait()
	})
}

// Channels that a target holds up cannot be closed: there are never more than a
// bound of them, however long it lasts.
func TestChannelsAreBounded(t *testing.T) {
	const n = 40
	beforeStuckQueues(t, Limits{Messages: 100}, n, func(s *fixture, h *stucktest.Holder) {
		ctx, cancel := context.WithTimeout(s.Context(), time.Hour)
		defer cancel()
		var waiting sync.WaitGroup
		for i := range n {
			key := fmt.Sprintf("stuck%d", i+1)
			h.Hold(key)
			waiting.Go(func() {
				for ctx.Err() == nil {
					m := to(key, key)
					m.Timeout = 10 * time.Second
					_ = s.publish(ctx, m)
				}
			})
		}
		waiting.Wait()
		if n := len(s.p.all()); n > maxChannels {
			s.Errorf("%d channels are open, want at most %d", n, maxChannels)
		}
	})
}

// A broker that answers nothing at all is not flooded with channels and copies.
func TestASilentBrokerIsNotFlooded(t *testing.T) {
	beforeStuckQueues(t, Limits{Messages: 100}, 0, func(s *fixture, h *stucktest.Holder) {
		if err := s.publish(s.Context(), to("free", "0")); err != nil {
			s.Fatal(err)
		}
		h.Hold("free")
		before := h.Channels()
		ctx, cancel := context.WithTimeout(s.Context(), 5*time.Minute)
		defer cancel()
		for ctx.Err() == nil {
			_ = s.publish(ctx, to("free", "1"))
		}
		if n := h.Channels() - before; n > 12 {
			s.Errorf("%d channels were opened in five minutes", n)
		}
		h.Release("free")
	})
}

func TestPatience(t *testing.T) {
	beforeStuckQueues(t, Limits{Messages: 100}, 1, func(s *fixture, h *stucktest.Holder) {
		impatient := func(key string) (time.Duration, error) {
			m := to(key, key)
			began := time.Now()
			m.Patience, m.AnswerUntil = time.Second, began.Add(2*time.Second)
			err := s.publish(s.Context(), m)
			for errors.Is(err, ErrUnconfirmed) && !errors.Is(err, ErrImpatient) {
				err = s.publish(s.Context(), m)
			}
			return time.Since(began), err
		}
		if took, err := impatient("free"); err != nil || took > 0 {
			s.Errorf("without outage: %v after %v", err, took)
		}
		h.Hold("stuck1")
		// A second until it is noticed, and a second of patience.
		took, err := impatient("stuck1")
		if !errors.Is(err, ErrImpatient) || !errors.Is(err, ErrUnconfirmed) || took > 3*time.Second {
			s.Errorf("to a target that does not answer: %v after %v", err, took)
		}
		took, err = impatient("stuck1")
		if !errors.Is(err, ErrImpatient) || errors.Is(err, ErrUnconfirmed) || took > 0 {
			s.Errorf("the next one: %v after %v, want that it is not sent", err, took)
		}
		if took, err := impatient("free"); err != nil || took > 0 {
			s.Errorf("to another target: %v after %v", err, took)
		}
		h.Release("stuck1")
		time.Sleep(3 * time.Second)
		if took, err := impatient("stuck1"); err != nil || took > 0 {
			s.Errorf("when it answers again: %v after %v", err, took)
		}

		s.broker.Block("low on memory")
		took, err = impatient("free") // told so by the broker, once it publishes
		if !errors.Is(err, ErrImpatient) || took > 2*time.Second {
			s.Errorf("while the broker blocks publishers: %v after %v", err, took)
		}
		took, err = impatient("free")
		var blocked *connection.BlockedError
		if !errors.Is(err, ErrImpatient) || !errors.As(err, &blocked) || took > 0 {
			s.Errorf("the next one: %v after %v", err, took)
		}
		s.broker.Unblock()
		synctest.Wait()
		if took, err := impatient("free"); err != nil || took > 0 {
			s.Errorf("when it reads again: %v after %v", err, took)
		}

		s.broker.Stop()
		if took, err = impatient("free"); !errors.Is(err, ErrImpatient) || took != time.Second {
			s.Errorf("without a connection: %v after %v", err, took)
		}
		for range 3 {
			if took, err = impatient("free"); !errors.Is(err, ErrImpatient) || took > 0 {
				s.Errorf("the next one: %v after %v", err, took)
			}
		}
		s.broker.Start()
		time.Sleep(time.Minute) // nobody has to wait for the connection to come back
		if took, err := impatient("free"); err != nil || took > 0 {
			s.Errorf("when there is one again: %v after %v", err, took)
		}
	})
}
