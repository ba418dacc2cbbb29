package connection

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipe returns a live socket and its peer's end.
func pipe(idle, patience time.Duration) (*socket, net.Conn) {
	near, far := net.Pipe()
	s := &socket{Conn: near, patience: patience}
	s.arm(idle)
	return s, far
}

func TestPausesGrowAndNeverEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPauses(nil)
		want := 100 * time.Millisecond
		for range 1000 {
			got, more := p.next()
			if !more {
				t.Fatal("no more pauses")
			}
			if got < want/2 || got > want*3/2 {
				t.Fatalf("pause of %v, want %v give or take half", got, want)
			}
			want = min(2*want, 10*time.Second)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, ErrClosed)
		defer cancel()
		if err := sleep(ctx, time.Hour); !errors.Is(err, ErrClosed) {
			t.Errorf("sleep = %v, want the cause of ctx", err)
		}
	})
}

func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		if err := g.wait(t.Context()); err != nil {
			t.Errorf("the zero gate: %v", err)
		}
		began := time.Now()
		g.shut("low on memory")
		time.Sleep(time.Second)
		g.shut("low on memory and disk")
		if reason, since, shut := g.state(); !shut || !since.Equal(began) || reason != "low on memory and disk" {
			t.Errorf("state = %q since %v, %v", reason, since, shut)
		}
		if err := g.waitFor(t.Context(), time.Minute); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute+time.Second {
			t.Errorf("waitFor = %v after %v", err, time.Since(began))
		}
		time.AfterFunc(time.Second, g.open)
		if err := g.wait(t.Context()); err != nil {
			t.Errorf("wait = %v", err)
		}
		g.open() // twice is once
	})
}

func TestSilenceEndsARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, far := pipe(15*time.Second, time.Minute)
		defer far.Close()
		go func() {
			time.Sleep(14 * time.Second)
			far.Write([]byte("x"))
		}()
		began, buf := time.Now(), make([]byte, 8)
		// The library's heartbeater must not be able to shorten or lengthen it.
		s.SetReadDeadline(time.Now().Add(time.Hour))
		if n, err := s.Read(buf); n != 1 || err != nil {
			t.Fatalf("Read = %d, %v", n, err)
		}
		_, err := s.Read(buf)
		if took := time.Since(began); took != 29*time.Second || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read = %v after %v, want a timeout after 29s", err, took)
		}
		if _, err := s.Write(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Write after a failed Read = %v, want its error", err)
		}
		if _, err := s.Conn.Write(buf); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Write = %v, want a closed socket", err)
		}
		if !errors.Is(s.firstFault(), os.ErrDeadlineExceeded) {
			t.Errorf("first fault = %v", s.firstFault())
		}
	})
}

func TestWriteWithoutProgress(t *testing.T) {
	for name, c := range map[string]struct {
		peer func(*socket, net.Conn)
		took time.Duration
		fail bool
	}{
		"fails":                      {func(*socket, net.Conn) {}, 30 * time.Second, true},
		"fails after the last of it": {func(_ *socket, far net.Conn) { time.Sleep(20 * time.Second); far.Read(make([]byte, 1)) }, 60 * time.Second, true},
		"waits while there is some": {func(_ *socket, far net.Conn) {
			for range 8 {
				time.Sleep(20 * time.Second)
				far.Read(make([]byte, 1))
			}
		}, 160 * time.Second, false},
		"waits while blocked": {func(s *socket, far net.Conn) { s.blocked(true); time.Sleep(time.Hour); far.Read(make([]byte, 8)) }, time.Hour, false},
		"fails once no longer blocked": {func(s *socket, far net.Conn) {
			s.blocked(true)
			time.Sleep(time.Minute - 1)
			s.blocked(false)
		}, 90 * time.Second, true},
		"has its patience anew after an alarm": {func(s *socket, far net.Conn) {
			s.blocked(true)
			time.Sleep(time.Minute - 1)
			s.blocked(false)
			time.Sleep(20*time.Second + 1)
			far.Read(make([]byte, 8))
		}, 80 * time.Second, false},
		"ends at the closing deadline": {func(s *socket, far net.Conn) {
			s.blocked(true)
			time.Sleep(time.Second)
			s.SetDeadline(time.Now().Add(5 * time.Second))
		}, 6 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, far := pipe(0, 30*time.Second)
				defer far.Close()
				defer s.Close()
				go c.peer(s, far)
				began := time.Now()
				err := s.send(make([]byte, 8))
				if took := time.Since(began); took != c.took || (err != nil) != c.fail {
					t.Errorf("send = %v after %v; want after %v, an error: %v", err, took, c.took, c.fail)
				}
			})
		})
	}
}

func TestHandshakeDeadlineStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		s := &socket{Conn: near, patience: time.Hour}
		near.SetDeadline(time.Now().Add(10 * time.Second))
		began := time.Now()
		go func() { far.Read(make([]byte, 1)); far.Write([]byte("x")) }()
		s.Write([]byte("x"))
		s.Read(make([]byte, 1))
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != 10*time.Second {
			t.Errorf("Read = %v after %v", err, time.Since(began))
		}
	})
}

// A link whose calls reply when its socket is closed, as the library's do.
func TestAwait(t *testing.T) {
	reply := errors.New("reply")
	after := func(d time.Duration) func(closed <-chan struct{}) error {
		return func(closed <-chan struct{}) error {
			select {
			case <-time.After(d):
				return reply
			case <-closed:
				return io.ErrClosedPipe
			}
		}
	}
	for name, c := range map[string]struct {
		call   func(<-chan struct{}) error
		cancel time.Duration
		took   time.Duration
		lost   bool
		alarm  time.Duration // its end; 0 for none
	}{
		"a reply in time":               {after(time.Second), time.Hour, time.Second, false, 0},
		"no reply":                      {after(time.Hour), 2 * time.Hour, 30 * time.Second, true, 0},
		"cancelled, reply in the grace": {after(10500 * time.Millisecond), 10 * time.Second, 10500 * time.Millisecond, false, 0},
		"cancelled, no reply":           {after(time.Hour), 10 * time.Second, 11 * time.Second, true, 0},
		"ctx ended before the start":    {after(time.Hour), 0, time.Second, true, 0},
		"a reply after an alarm":        {after(70 * time.Second), time.Hour, 70 * time.Second, false, time.Minute},
		"no reply after an alarm":       {after(time.Hour), 2 * time.Hour, 90 * time.Second, true, time.Minute},
		"cancelled in an alarm":         {after(time.Hour), 40 * time.Second, 41 * time.Second, true, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, far := pipe(0, time.Hour)
				defer far.Close()
				closed := make(chan struct{})
				go func() { far.Read(make([]byte, 1)); close(closed) }()
				l := &link{socket: s, limit: 30 * time.Second, log: slog.New(slog.DiscardHandler)}
				ctx, cancel := context.WithTimeout(t.Context(), c.cancel)
				defer cancel()
				if c.alarm > 0 {
					time.AfterFunc(time.Second, func() { l.gate.shut("low on memory") })
					time.AfterFunc(c.alarm, l.gate.open)
				}
				began := time.Now()
				err := l.await(ctx, func() error { return c.call(closed) })
				if took := time.Since(began); took != c.took || errors.Is(err, ErrSessionLost) != c.lost || errors.Is(err, reply) == c.lost {
					t.Errorf("await = %v after %v, want after %v, lost: %v", err, took, c.took, c.lost)
				}
				if c.lost && c.cancel < time.Minute && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("await = %v, want the cause of ctx in it", err)
				}
				if err != nil && strings.Contains(err.Error(), "%!") {
					t.Errorf("await = %q", err)
				}
				// Nothing may close the socket later.
				time.Sleep(time.Hour)
				select {
				case <-closed:
					if !c.lost {
						t.Error("the socket was closed after the reply")
					}
				default:
				}
				s.Close()
			})
		})
	}
}
