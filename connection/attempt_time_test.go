package connection

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// bubble opens a lazy Conn to p through pipes, within a synctest bubble, and
// closes both before the bubble ends.
func bubble(t *testing.T, p *peer, cfg Config) *Conn {
	t.Helper()
	cfg.Lazy = true
	if cfg.URLs == nil {
		cfg.URLs = []string{"amqp://bob:s3cret@peer/?heartbeat=0"}
	}
	if cfg.Dial == nil {
		cfg.Dial = p.dial
	}
	c, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		p.hangUp()
		p.wg.Wait()
	})
	return c
}

// slowHandshake answers a login after 300 ms.
func slowHandshake(_ *peerConn, m method, _ uint16) bool {
	if m == connectionStartOk {
		time.Sleep(300 * time.Millisecond)
	}
	return false
}

// reaching asks for a session twenty times, with 250 ms each, and returns how
// many there were.
func reaching(t *testing.T, c *Conn, role Role) (n int) {
	t.Helper()
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		began := time.Now()
		s, err := c.Session(ctx, role)
		if err == nil {
			n++
			_ = s.Close()
		} else if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != 250*time.Millisecond {
			t.Errorf("Session = %v after %v, want the end of ctx", err, took)
		}
		cancel()
	}
	return n
}

func TestShortCallersGetAConnectionAllTheSame(t *testing.T) {
	for _, role := range []Role{Publish, Consume} {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{script: slowHandshake}
			c := bubble(t, p, Config{})
			if n := reaching(t, c, role); n != 19 || len(p.accepted()) != 1 {
				t.Errorf("%d of 20 sessions for %v from %d dials, want all but the first from one dial", n, role, len(p.accepted()))
			}
		})
	}
}

// A caller who waits for another one's dial leaves when its own ctx ends, and
// the dial goes on when the one who began it leaves.
func TestWaitingCallersAreBoundByTheirOwnContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent atomic.Bool
		p := &peer{script: func(*peerConn, method, uint16) bool { return silent.Load() }}
		c := bubble(t, p, Config{DialTimeout: 500 * time.Millisecond})
		s := session(t, c, Consume)
		silent.Store(true)
		p.hangUp()
		<-s.Done()

		var wg sync.WaitGroup
		for range 2 { // one of them begins the dial, the other joins it
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				began := time.Now()
				if _, err := c.Session(ctx, Consume); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Session = %v", err)
				}
				if took := time.Since(began); took != 100*time.Millisecond {
					t.Errorf("returned after %v", took)
				}
			})
		}
		wg.Go(func() {
			if _, err := c.Session(t.Context(), Consume); err != nil {
				t.Errorf("the patient caller: %v", err)
			}
		})
		time.AfterFunc(200*time.Millisecond, func() { silent.Store(false) })
		wg.Wait()
	})
}

func TestOnConnectIsNotCutShortByItsCallers(t *testing.T) {
	for _, role := range []Role{Publish, Consume} {
		synctest.Test(t, func(t *testing.T) {
			p := new(peer)
			var runs atomic.Int32
			c := bubble(t, p, Config{OnConnect: func(ctx context.Context, _ *Conn) error {
				runs.Add(1)
				return sleep(ctx, 300*time.Millisecond)
			}})
			session(t, c, role)
			time.Sleep(time.Minute)
			p.hangUp()
			synctest.Wait()
			if n := reaching(t, c, role); n != 19 || runs.Load() != 2 {
				t.Errorf("%d of 20 sessions for %v, OnConnect ran %d times; want all but the first, and twice", n, role, runs.Load())
			}
		})
	}
}

func TestOnConnectEndsWithItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(peer)
		began, causes := time.Now(), make(chan error, 10)
		c := bubble(t, p, Config{OnConnect: func(ctx context.Context, _ *Conn) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		}})
		ctx, cancel := context.WithTimeout(t.Context(), onConnectLimit+time.Second)
		defer cancel()
		if _, err := c.Session(ctx, Consume); err == nil {
			t.Error("a session without OnConnect")
		}
		if err := <-causes; !errors.Is(err, errOnConnectLimit) || time.Since(began) != onConnectLimit+time.Second {
			t.Errorf("the first ctx ended with %v", err)
		}
		p.hangUp()
		if err := <-causes; !errors.Is(err, ErrSessionLost) {
			t.Errorf("the ctx of a lost connection ended with %v", err)
		}
	})
}

func TestNoRoundBeginsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(peer)
		var tries atomic.Int32
		c := bubble(t, p, Config{Dial: func(context.Context, string, string) (net.Conn, error) {
			tries.Add(1)
			return nil, errors.New("no route to host")
		}})
		for range 2 {
			before := tries.Load()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			if _, err := c.Session(ctx, Consume); err == nil || !strings.Contains(err.Error(), "no route to host") {
				t.Errorf("Session = %v", err)
			}
			cancel()
			while := tries.Load()
			time.Sleep(time.Hour)
			if during := while - before; during < 5 || tries.Load() != while {
				t.Errorf("%d tries while somebody waited, %d after that", during, tries.Load()-while)
			}
			if s := c.State(Consume); s.Status != Down || s.Err == nil || !s.NextTry.IsZero() {
				t.Errorf("state is %+v", s)
			}
		}
	})
}

func TestAConnectionThatComesLateStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{script: slowHandshake}
		c := bubble(t, p, Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, _ = c.Session(ctx, Consume)
		time.Sleep(time.Hour)
		if s := c.State(Consume); s.Status != Up || s.generation != 1 {
			t.Errorf("state is %+v", s)
		}
	})
}

func TestOpenDialsBothSocketsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{script: slowHandshake}
		began := time.Now()
		c, err := Open(t.Context(), Config{URLs: []string{"amqp://peer/?heartbeat=0"}, Dial: p.dial})
		if err != nil {
			t.Fatal(err)
		}
		session(t, c, Publish)
		if took := time.Since(began); took != 300*time.Millisecond || len(p.accepted()) != 2 {
			t.Errorf("%d sockets after %v, want both after one handshake", len(p.accepted()), took)
		}
		c.Close()
		p.wg.Wait()
	})
}

func TestLazyOpensNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(peer)
		c := bubble(t, p, Config{})
		time.Sleep(time.Hour)
		if n := len(p.accepted()); n != 0 || c.Health() != nil {
			t.Errorf("%d sockets, Health = %v", n, c.Health())
		}
	})
}

func TestThePublishSocketOfOpenMayFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refusals atomic.Int32
		p := &peer{script: func(c *peerConn, m method, _ uint16) bool {
			if m == connectionOpen && c.role == Publish && refusals.Add(1) == 1 {
				c.refuse(0, 541, "INTERNAL_ERROR")
				return true
			}
			return false
		}}
		c, err := Open(t.Context(), Config{URLs: []string{"amqp://peer/?heartbeat=0"}, Dial: p.dial})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if s := c.State(Publish); s.Status != Down || refusals.Load() != 1 {
			t.Errorf("state is %+v after %d tries, want one try", s, refusals.Load())
		}
		session(t, c, Publish)
		c.Close()
		p.wg.Wait()
	})
}

func TestPublishingWaitsForOnConnectOfTheOtherSocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{script: slowHandshake}
		c := bubble(t, p, Config{OnConnect: func(ctx context.Context, _ *Conn) error { return sleep(ctx, 5*time.Second) }})
		began := time.Now()
		session(t, c, Publish)
		if took := time.Since(began); took != 5300*time.Millisecond {
			t.Errorf("a session for Publish after %v, want both handshakes at once, then OnConnect", took)
		}
	})
}

// OnConnect opens sessions of the new connection while callers of both uses wait for
// it, at first with nothing opened yet, then after a loss.
func TestOnConnectThatDeclaresDoesNotBlockItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(peer)
		var runs atomic.Int32
		c := bubble(t, p, Config{OnConnect: func(ctx context.Context, conn *Conn) error {
			runs.Add(1)
			s, err := conn.Session(ctx, Consume)
			if err != nil {
				return err
			}
			return errors.Join(s.Do(ctx, qos), s.Close())
		}})
		for round := range int32(2) {
			var wg sync.WaitGroup
			for i := range 10 {
				wg.Go(func() {
					s, err := c.Session(t.Context(), roles[i%2])
					if err == nil {
						err = errors.Join(s.Do(t.Context(), qos), s.Close())
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if runs.Load() != round+1 {
				t.Errorf("OnConnect ran %d times in round %d", runs.Load(), round)
			}
			time.Sleep(time.Minute)
			p.hangUp()
			synctest.Wait()
		}
	})
}

func TestConnectionsThatDieYoungAreDialledEverLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(peer)
		c := bubble(t, p, Config{Backoff: func(failures int) time.Duration { return time.Duration(failures) * time.Second }})
		var took []time.Duration
		for range 4 {
			began := time.Now()
			session(t, c, Consume)
			took = append(took, time.Since(began))
			p.hangUp()
			synctest.Wait()
		}
		session(t, c, Consume)
		time.Sleep(time.Minute)
		p.hangUp()
		synctest.Wait()
		began := time.Now()
		session(t, c, Consume)
		took = append(took, time.Since(began))
		if want := []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second, 0}; !slices.Equal(took, want) {
			t.Errorf("dialled after %v, want %v", took, want)
		}
	})
}

// Where Config.Backoff gives up, a life that is no life counts once: the callers get the
// error, and the next one dials.
func TestAConnectionThatDiesYoungIsGivenUpLikeARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(peer)
		c := bubble(t, p, Config{Backoff: func(int) time.Duration { return -1 }})
		for dials := 1; dials <= 3; dials++ {
			session(t, c, Consume)
			if n := len(p.accepted()); n != dials {
				t.Errorf("%d dials, want %d", n, dials)
			}
			p.hangUp()
			synctest.Wait()
			if _, err := c.Session(t.Context(), Consume); !errors.Is(err, ErrSessionLost) || len(p.accepted()) != dials {
				t.Errorf("Session = %v after %d dials, want that the connection was lost, and no other dial", err, len(p.accepted()))
			}
		}
	})
}

// A dial that nobody waits for reports its end before the next one begins.
func TestOneDialAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(peer)
		c := bubble(t, p, Config{})
		k := c.connector(Consume)
		before := &dial{tried: newAttempts(1), done: make(chan struct{})}
		k.mu.Lock()
		k.dialing, k.last = before, before.done
		k.mu.Unlock()
		if !k.abandoned(before) {
			t.Fatal("a dial that nobody waits for is not abandoned")
		}
		reached := make(chan error, 1)
		go func() {
			_, err := c.Session(t.Context(), Consume)
			reached <- err
		}()
		synctest.Wait()
		if n := len(p.accepted()); n > 0 {
			t.Errorf("%d dials before the one that is abandoned has ended", n)
		}
		close(before.done)
		if err := <-reached; err != nil {
			t.Error(err)
		}
	})
}

func TestCloseEndsWhatIsInProgress(t *testing.T) {
	for name, stuck := range map[string]method{"a handshake": connectionStartOk, "a call": basicQos, "the opening of a channel": channelOpen} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{script: func(_ *peerConn, m method, _ uint16) bool { return m == stuck }}
				c := bubble(t, p, Config{})
				done := make(chan error)
				go func() {
					s, err := c.Session(t.Context(), Consume)
					if err == nil {
						err = s.Do(t.Context(), qos)
					}
					done <- err
				}()
				synctest.Wait()
				if err := c.Close(); err != nil {
					t.Errorf("Close = %v", err)
				}
				if err := <-done; !errors.Is(err, ErrClosed) {
					t.Errorf("the caller got %v", err)
				}
			})
		})
	}
}
