package connection

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	p := new(peer).start(t)
	c := open(t, Config{URLs: []string{p.url()}})
	one, two := session(t, c, Publish), session(t, c, Consume)
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Errorf("Close = %v", err)
	}
	for _, s := range []*Session{one, two} {
		within(t, "Done after Conn.Close", s.Done())
		if err := s.Err(); !errors.Is(err, ErrSessionLost) || !errors.Is(err, ErrClosed) {
			t.Errorf("Err = %v, want ErrSessionLost and ErrClosed", err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("Session.Close after Conn.Close = %v", err)
		}
	}
	if _, err := c.Session(t.Context(), Consume); !errors.Is(err, ErrClosed) {
		t.Errorf("Session after Close = %v, want ErrClosed", err)
	}
	if c.State(Publish).Status == Blocked {
		t.Error("blocked after Close")
	}
}

func TestCloseUnblocksWhoeverWaitsForASession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, away := new(peer), false
		c := bubble(t, p, Config{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if away {
				return nil, errors.New("connection refused")
			}
			return p.dial(ctx, network, address)
		}})
		s := session(t, c, Consume)
		away = true
		p.hangUp()
		<-s.Done()
		waiting := make(chan error, 10)
		for range cap(waiting) {
			go func() {
				_, err := c.Session(context.Background(), Consume)
				waiting <- err
			}()
		}
		time.AfterFunc(50*time.Millisecond, func() { c.Close() })
		for range cap(waiting) {
			if err := <-waiting; !errors.Is(err, ErrClosed) {
				t.Errorf("Session = %v, want ErrClosed", err)
			}
		}
	})
}

func TestCloseIsBoundedWhenTheBrokerDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &peer{script: func(_ *peerConn, m method, _ uint16) bool { return m == connectionClose }}
		c := bubble(t, p, Config{})
		session(t, c, Consume)
		session(t, c, Publish)
		began := time.Now()
		err := c.Close()
		if took := time.Since(began); took > closeTimeout {
			t.Errorf("Close took %v", took)
		}
		if err == nil {
			t.Error("Close = nil, want the missing answer told")
		}
	})
}

func TestCloseIsNoErrorWhenTheBrokerHangsUp(t *testing.T) {
	t.Parallel()
	for rule, answers := range map[string]bool{"with its answer": true, "in place of an answer": false} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			p := (&peer{script: func(c *peerConn, m method, channel uint16) bool {
				if m != connectionClose {
					return false
				}
				if answers {
					c.answer(m, channel)
				}
				c.Close()
				return true
			}}).start(t)
			for range 100 {
				if err := open(t, Config{URLs: []string{p.url()}}).Close(); err != nil {
					t.Fatalf("Close = %v", err)
				}
			}
		})
	}
}

func TestConcurrentUseUntilClose(t *testing.T) {
	t.Parallel()
	p := new(peer).start(t)
	c := open(t, Config{URLs: []string{p.url()}})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for {
				s, err := c.Session(context.Background(), roles[i%2])
				if errors.Is(err, ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				err = errors.Join(s.Do(context.Background(), qos), s.Close())
				if err != nil && !errors.Is(err, ErrSessionLost) {
					t.Error(err)
				}
			}
		})
	}
	for range 5 {
		before := len(p.accepted())
		p.hangUp()
		waitUntil(t, func() bool { return len(p.accepted()) > before })
	}
	c.Close()
	wg.Wait()
}

// Whichever the caller of Session sees first.
func TestASessionThatFailsSaysThatItsContextEndedWhenTheSocketIsLostWithIt(t *testing.T) {
	t.Parallel()
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		p := (&peer{script: func(c *peerConn, m method, _ uint16) bool {
			if m != channelOpen {
				return false
			}
			c.Close()
			cancel()
			return true
		}}).start(t)
		c := open(t, Config{URLs: []string{p.url()}})
		_, err := c.Session(ctx, Consume)
		cancel()
		c.Close()
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("Session = %v, want context.Canceled", err)
		}
	}
}

func TestACloseThatMeetsALostSocketIsNoError(t *testing.T) {
	for rule, tt := range map[string]struct {
		err  error
		want bool
	}{
		"closed before":     {amqp.ErrClosed, true},
		"reset by the peer": {&net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.ECONNRESET)}, true},
		"a broken pipe":     {&net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)}, true},
		"a pipe in memory":  {io.ErrClosedPipe, true}, // of net.Pipe and of rehoptest, where a socket has EPIPE
		"no answer in time": {&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, false},
	} {
		if got := gone(tt.err); got != tt.want {
			t.Errorf("%s: gone(%v) = %v, want %v", rule, tt.err, got, tt.want)
		}
	}
}
