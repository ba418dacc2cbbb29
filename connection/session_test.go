package connection

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// qos is the shortest call that waits for a reply.
func qos(ch *amqp.Channel) error { return ch.Qos(1, 0, false) }

func session(t *testing.T, c *Conn, role Role) *Session {
	t.Helper()
	s, err := c.Session(t.Context(), role)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSessionsOfBothUses(t *testing.T) {
	t.Parallel()
	p := new(peer).start(t)
	c := open(t, Config{URLs: []string{p.url()}})
	for _, role := range []Role{Publish, Consume, Publish, Consume} {
		s := session(t, c, role)
		if err := s.Do(t.Context(), qos); err != nil {
			t.Errorf("%v: Do = %v", role, err)
		}
		if s.link.endpoint.uri.Username != "bob" || s.Server() != c.Server() || s.Channel() == nil || s.Err() != nil {
			t.Errorf("%v: %q, %+v, %v", role, s.link.endpoint.uri.Username, s.Server(), s.Err())
		}
	}
	if n := len(p.accepted()); n != 2 {
		t.Errorf("%d sockets, want one for each use", n)
	}
	if _, err := c.Session(t.Context(), ""); err == nil {
		t.Error("the zero Role is accepted")
	}
}

func TestSessionClose(t *testing.T) {
	t.Parallel()
	p := new(peer).start(t)
	c := open(t, Config{URLs: []string{p.url()}})
	s, other := session(t, c, Consume), session(t, c, Consume)
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Errorf("Close = %v", err)
	}
	within(t, "Done after Close", s.Done())
	if err := s.Err(); !errors.Is(err, ErrSessionLost) || errors.Is(err, ErrClosed) {
		t.Errorf("Err = %v, want ErrSessionLost alone", err)
	}
	if err := s.Do(t.Context(), qos); !errors.Is(err, ErrSessionLost) {
		t.Errorf("Do after Close = %v, want ErrSessionLost", err)
	}
	if err := other.Do(t.Context(), qos); err != nil {
		t.Errorf("the other session: %v", err)
	}
}

func TestRefusedCallEndsItsSessionOnly(t *testing.T) {
	t.Parallel()
	p := (&peer{script: func(c *peerConn, m method, channel uint16) bool {
		if m == basicQos && channel == 1 {
			c.refuse(channel, 404, "NOT_FOUND - no queue")
			return true
		}
		return false
	}}).start(t)
	c := open(t, Config{URLs: []string{p.url()}})
	s, other := session(t, c, Consume), session(t, c, Consume)
	err := s.Do(t.Context(), qos)
	var refused *amqp.Error
	if !errors.As(err, &refused) || refused.Code != 404 || errors.Is(err, ErrSessionLost) {
		t.Errorf("Do = %v, want the 404 alone", err)
	}
	within(t, "Done after a 404", s.Done())
	if err := s.Err(); !errors.Is(err, ErrSessionLost) || !errors.As(err, &refused) || refused.Code != 404 {
		t.Errorf("Err = %v, want ErrSessionLost and the 404", err)
	}
	if err := other.Do(t.Context(), qos); err != nil {
		t.Errorf("the other session: %v", err)
	}
}

func TestCallWithoutReplyEndsAtOperationTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &peer{script: func(_ *peerConn, m method, _ uint16) bool { return m == basicQos }}
		c := bubble(t, p, Config{OperationTimeout: 2 * time.Second})
		s, other := session(t, c, Consume), session(t, c, Consume)
		began := time.Now()
		err := s.Do(t.Context(), qos)
		if took := time.Since(began); took != 2*time.Second || !errors.Is(err, ErrSessionLost) || !strings.Contains(err.Error(), "no reply from the broker within 2s") {
			t.Errorf("Do = %v after %v", err, took)
		}
		<-other.Done() // it is on the same socket
		if err := session(t, c, Consume).Err(); err != nil {
			t.Errorf("the next session: %v", err)
		}
	})
}

func TestCallReturnsWhenTheSocketIsLost(t *testing.T) {
	t.Parallel()
	p := (&peer{script: func(c *peerConn, m method, _ uint16) bool {
		if m == basicQos {
			c.Close()
		}
		return m == basicQos
	}}).start(t)
	c := open(t, Config{URLs: []string{p.url()}})
	s := session(t, c, Consume)
	if err := s.Do(t.Context(), qos); !errors.Is(err, ErrSessionLost) {
		t.Errorf("Do = %v, want ErrSessionLost", err)
	}
}

func TestCallsOfOneSessionTakeTurns(t *testing.T) {
	t.Parallel()
	p := new(peer).start(t)
	c := open(t, Config{URLs: []string{p.url()}})
	s := session(t, c, Consume)
	var inside, most atomic.Int32
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			err := s.Do(t.Context(), func(ch *amqp.Channel) error {
				most.Store(max(most.Load(), inside.Add(1)))
				defer inside.Add(-1)
				return qos(ch)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if most.Load() != 1 {
		t.Errorf("%d calls at a time", most.Load())
	}
}

func TestDoWithAnEndedContextKeepsTheSession(t *testing.T) {
	t.Parallel()
	p := new(peer).start(t)
	c := open(t, Config{URLs: []string{p.url()}})
	s := session(t, c, Consume)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	called := false
	err := s.Do(ctx, func(*amqp.Channel) error { called = true; return nil })
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrSessionLost) || called {
		t.Errorf("Do = %v, called: %v", err, called)
	}
	if err := s.Do(t.Context(), qos); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

func TestSessionAfterALossIsANewOne(t *testing.T) {
	t.Parallel()
	p := new(peer).start(t)
	c := consuming(t, Config{URLs: []string{p.url()}})
	s := session(t, c, Consume)
	p.hangUp()
	within(t, "Done after a loss", s.Done())
	var reported *amqp.Error
	if err := s.Err(); !errors.Is(err, ErrSessionLost) || !errors.As(err, &reported) {
		t.Errorf("Err = %v, want ErrSessionLost and the library's reason", err)
	}
	// Whoever asks next shares one dial.
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if s, err := c.Session(t.Context(), Consume); err != nil {
				t.Error(err)
			} else if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(p.accepted()); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

func TestLateUseOfASessionNeverReachesTheBroker(t *testing.T) {
	t.Parallel()
	var late atomic.Int32
	p := new(peer)
	p.script = func(_ *peerConn, m method, _ uint16) bool {
		if m.class == basicQos.class {
			late.Add(1)
		}
		return false
	}
	p.start(t)
	c := open(t, Config{URLs: []string{p.url()}})
	old := session(t, c, Consume)
	p.hangUp()
	within(t, "Done", old.Done())
	if err := old.Do(t.Context(), qos); !errors.Is(err, ErrSessionLost) {
		t.Errorf("Do = %v, want ErrSessionLost", err)
	}
	// The fresh session has the same channel number.
	fresh := session(t, c, Consume)
	for name, call := range map[string]func(*amqp.Channel) error{
		"ack":  func(ch *amqp.Channel) error { return ch.Ack(1, true) },
		"nack": func(ch *amqp.Channel) error { return ch.Nack(1, true, true) },
		"publish": func(ch *amqp.Channel) error {
			return ch.PublishWithContext(t.Context(), "", "q", true, false, amqp.Publishing{})
		},
	} {
		if err := call(old.Channel()); !errors.Is(err, amqp.ErrClosed) {
			t.Errorf("late %s = %v, want amqp.ErrClosed", name, err)
		}
	}
	if late.Load() != 0 {
		t.Errorf("%d late calls reached the broker", late.Load())
	}
	if err := errors.Join(fresh.Err(), fresh.Do(t.Context(), qos)); err != nil || late.Load() != 1 {
		t.Errorf("the fresh session: %v, and the broker got %d calls, want its one", err, late.Load())
	}
}

func TestSilentBrokerIsNoticedWithinOneAndAHalfHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := new(peer) // answers the handshake, and never sends a heartbeat
		c := bubble(t, p, Config{URLs: []string{"amqp://peer/"}, Heartbeat: time.Second})
		s := session(t, c, Consume)
		began := time.Now()
		<-s.Done()
		if took := time.Since(began); took != 1500*time.Millisecond {
			t.Errorf("noticed after %v", took)
		}
		if err := s.Err(); !strings.Contains(err.Error(), "silent for 1.5s") {
			t.Errorf("Err = %v", err)
		}
	})
}

func TestRefusalAfterOpenIsTriedOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int32
		p := new(peer)
		p.script = func(c *peerConn, m method, _ uint16) bool {
			// The first connection is Open's; then the password is wrong for a while.
			if m == connectionStartOk {
				if n := tries.Add(1); n > 1 && n < 5 {
					c.refuse(0, 403, "ACCESS_REFUSED")
					return true
				}
			}
			return false
		}
		c := bubble(t, p, Config{})
		s := session(t, c, Consume)
		p.hangUp()
		<-s.Done()
		session(t, c, Consume)
		if n := tries.Load(); n != 5 {
			t.Errorf("%d logins, want 5", n)
		}
	})
}

func TestNoChannelLeft(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]*peer{
		"by channel_max": {channelMax: 1},
		"by the user's limit": {script: func(c *peerConn, m method, channel uint16) bool {
			if m == channelOpen && channel == 2 {
				c.refuse(0, 530, "NOT_ALLOWED - number of channels opened for user 'bob' has reached the maximum allowed limit of (1)")
				return true
			}
			return false
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p.start(t)
			c := open(t, Config{URLs: []string{p.url()}})
			session(t, c, Consume)
			_, err := c.Session(t.Context(), Consume)
			if err == nil || !strings.Contains(err.Error(), "no channel left") || !strings.Contains(err.Error(), "close sessions that are not needed") {
				t.Errorf("Session = %v", err)
			}
		})
	}
}

func TestSocketThatDiesUnderANewChannelIsDialledAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var opened atomic.Int32
		p := &peer{script: func(c *peerConn, m method, _ uint16) bool {
			if m == channelOpen && opened.Add(1) < 3 {
				c.Close()
				return true
			}
			return false
		}}
		c := bubble(t, p, Config{})
		session(t, c, Consume)
		if n := len(p.accepted()); n != 3 {
			t.Errorf("%d connections, want 3", n)
		}
	})
}

func TestBlockedPublisherWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := new(peer)
		c := bubble(t, p, Config{OperationTimeout: 2 * time.Second})
		s := session(t, c, Publish)
		socket := p.accepted()[0]
		began := time.Now()
		socket.send(connectionBlocked, 0, short("low on memory"))
		synctest.Wait()
		if now := c.State(Publish); now.Status != Blocked || now.Reason != "low on memory" || !now.Since.Equal(began) {
			t.Errorf("State = %+v", now)
		}

		// Neither of them sends anything, so neither costs the socket.
		if err := s.Do(t.Context(), qos); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "low on memory") {
			t.Errorf("Do = %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := c.Session(ctx, Publish); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "low on memory") {
			t.Errorf("Session = %v", err)
		}

		waiting := make(chan error, 1)
		go func() { waiting <- s.Do(t.Context(), qos) }()
		socket.send(connectionUnblocked, 0)
		if err := <-waiting; err != nil {
			t.Errorf("Do when unblocked = %v", err)
		}
		if c.State(Publish).Status == Blocked || s.Err() != nil {
			t.Errorf("State: %+v, Err: %v", c.State(Publish), s.Err())
		}
	})
}

// waitUntil polls for what has no notice of its own.
func waitUntil(t *testing.T, what func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !what() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within %v", patience)
		}
	}
}
