package confirm

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A message that a lost connection cuts off is sent again. The outage that it meets then is the silence from before the
// loss, and for a message that comes long afterwards the loss is not known.
func TestASilenceIsTheSameOutageUntilItsMessagesAreSentAgain(t *testing.T) {
	for _, tt := range []struct {
		rule  string
		again time.Duration // after the loss; the watch looks 150 ms after it, and every 250 ms
		same  bool
	}{
		{"sent again at once", 0, true},
		{"sent again after a look", 200 * time.Millisecond, true},
		{"another message, an hour later", time.Hour, false},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			inBubble(t, Limits{Messages: 10}, func(s *fixture) {
				s.declare(nil, "open")
				if err := s.publish(s.Context(), to("open", "before")); err != nil {
					s.Fatal(err)
				}
				time.Sleep(time.Minute) // nobody watches any more
				s.broker.Stall()
				defer s.broker.Resume()
				cut := s.sendReported(s.Context(), to("open", "1"))
				time.Sleep(2*time.Second + 100*time.Millisecond)
				silent := s.p.Outage()
				if silent.Cause == nil {
					s.Fatal("no outage, 2 s after a message without an answer")
				}
				s.broker.Kill()
				cut.all.Wait()
				time.Sleep(tt.again)
				ctx, cancel := context.WithCancel(s.Context())
				defer cancel()
				again := to("open", "1")
				var sending sync.WaitGroup
				sending.Go(func() { s.p.Send(ctx, again) })
				synctest.Wait()
				now := s.p.Outage()
				if now.Cause == nil || now.Since.Equal(silent.Since) != tt.same {
					s.Errorf("%v since %v, before the loss since %v, want the same: %v", now.Cause, now.Since, silent.Since, tt.same)
				}
				cancel()
				sending.Wait()
				if err := again.Wait(s.Context()); !errors.Is(err, context.Canceled) {
					s.Error(err)
				}
			})
		})
	}
}

// A channel that was just opened has been answered: no message on it is impatient for the outage before.
func TestANewChannelEndsTheSilenceOfALostOne(t *testing.T) {
	inBubble(t, Limits{Messages: 10}, func(s *fixture) {
		s.declare(nil, "open")
		if err := s.publish(s.Context(), to("open", "before")); err != nil {
			s.Fatal(err)
		}
		time.Sleep(time.Minute)
		s.broker.Stall()
		defer s.broker.Resume()
		cut := s.sendReported(s.Context(), to("open", "1"))
		time.Sleep(5*time.Second + 100*time.Millisecond)
		if s.p.Outage().Cause == nil {
			s.Fatal("no outage, 5 s after a message without an answer")
		}
		s.broker.Cut("")
		s.broker.Resume()
		cut.all.Wait()
		if err := s.publish(s.Context(), to("open", "1")); err != nil {
			s.Fatal(err)
		}
		m := to("open", "2")
		m.Patience = time.Second
		if err := s.publish(s.Context(), m); err != nil {
			s.Errorf("a message after the outage: %v", err)
		}
	})
}

// A channel that is lost releases its messages, which looks like an answer to a look that has begun before.
func TestALossDuringALookIsNoAnswer(t *testing.T) {
	inBubble(t, Limits{Messages: 10}, func(s *fixture) {
		s.declare(nil, "open")
		if err := s.publish(s.Context(), to("open", "before")); err != nil {
			s.Fatal(err)
		}
		s.broker.Stall()
		defer s.broker.Resume()
		cut := s.sendReported(s.Context(), to("open", "1"))
		time.Sleep(2*time.Second + lookEvery/2)
		before := s.p.suspect.Load()
		c := s.p.main.Load()
		c.mu.Lock()
		var look sync.WaitGroup
		look.Go(func() { s.p.lookAt(c, time.Now()) })
		for range 1000 {
			runtime.Gosched() // until the look waits for c.mu
		}
		released := c.head().confirm.Done()
		s.broker.Kill()
		<-released
		c.mu.Unlock()
		look.Wait()
		if after := s.p.suspect.Load(); before == 0 || after != before {
			s.Errorf("silent since %d, and after the loss since %d", before, after)
		}
		cut.all.Wait()
	})
}
