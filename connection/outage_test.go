package connection

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestPausesHoldWhoeverDials(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pause = 200 * time.Millisecond
		var tries []time.Time
		c := bubble(t, new(peer), Config{
			Dial:    func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("connection refused") },
			Backoff: func(int) time.Duration { return pause },
			Traces:  []Trace{{DialAttempt: func(DialAttempt) { tries = append(tries, time.Now()) }}},
		})
		// Each caller gives up long before its turn would come.
		ctx, cancel := context.WithTimeout(t.Context(), 10*pause)
		defer cancel()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for ctx.Err() == nil {
					one, end := context.WithTimeout(ctx, pause/10)
					_, _ = c.Session(one, Consume)
					end()
				}
			})
		}
		wg.Wait()
		synctest.Wait() // the try that is under way is noted
		if len(tries) < 3 {
			t.Errorf("%d tries in %v, want one after each pause of %v", len(tries), 10*pause, pause)
		}
		for i := 1; i < len(tries); i++ {
			if gap := tries[i].Sub(tries[i-1]); gap < pause {
				t.Errorf("try %d came %v after the one before, want at least %v", i, gap, pause)
			}
		}
	})
}

func TestAnOutageTellsOnlyOfItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var down, silent atomic.Bool
		down.Store(true)
		p := &peer{script: func(c *peerConn, m method, _ uint16) bool {
			if m == connectionOpen && down.Load() {
				c.refuse(0, 541, "INTERNAL_ERROR - the first outage")
				return true
			}
			return silent.Load()
		}}
		c := bubble(t, p, Config{Backoff: func(int) time.Duration { return 100 * time.Millisecond }})
		brief := func() error {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(errors.New("the caller's own words")) })
			_, err := c.Session(ctx, Consume)
			return err
		}
		if err := brief(); err == nil || !strings.Contains(err.Error(), "the first outage") || !strings.Contains(err.Error(), "the caller's own words") {
			t.Errorf("Session = %v", err)
		}
		told := await(t, c, func(s State) bool { return s.Role == Consume && s.Status == Down })
		if err := told.Err; err == nil || strings.Contains(err.Error(), "the caller's own words") {
			t.Errorf("State.Err = %v, want nothing of one caller", err)
		}
		down.Store(false)
		s := session(t, c, Consume)
		silent.Store(true)
		p.hangUp()
		<-s.Done()
		if err := brief(); err == nil || strings.Contains(err.Error(), "outage") || !strings.Contains(err.Error(), "no connection yet, ") {
			t.Errorf("Session while a dial is in progress = %v, want nothing of the first outage", err)
		}
	})
}

func TestASocketThatFindsABrokerEndsTheRestOfTheOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := new(peer)
		var down atomic.Bool
		p.script = func(c *peerConn, m method, _ uint16) bool {
			if m == connectionOpen && down.Load() {
				c.refuse(0, 541, "INTERNAL_ERROR")
				return true
			}
			return false
		}
		c := bubble(t, p, Config{Backoff: func(int) time.Duration { return time.Hour }})
		session(t, c, Consume)
		session(t, c, Publish)
		time.Sleep(steady) // or the loss of a socket is followed by a pause
		down.Store(true)
		p.hangUp()
		await(t, c, func(s State) bool { return s.Role == Consume && s.Status == Down })
		var wg sync.WaitGroup
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if _, err := c.Session(ctx, Consume); err != nil {
				t.Errorf("the resting socket: %v", err)
			}
		})
		await(t, c, func(s State) bool { return s.Role == Consume && !s.NextTry.IsZero() })
		down.Store(false)
		session(t, c, Publish)
		wg.Wait()
	})
}
