package connection

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipe returns a live socket and its peer's end.
func pipe(idle, patience time.Duration) (*socket, net.Conn) {
	near, far := net.Pipe()
	s := &socket{Conn: near, writeTimeout: patience}
	s.arm(idle)
	return s, far
}

func TestPausesGrowAndNeverEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := defaultPauses()
		want := 100 * time.Millisecond
		for range 1000 {
			got, more := p.next(false)
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

func TestPausesStayShortForAMinuteWhileNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := defaultPauses()
		began, longest := time.Now(), time.Duration(0)
		for time.Since(began) < cheapFor {
			got, _ := p.next(true)
			longest = max(longest, got)
			time.Sleep(got)
		}
		if longest > 500*time.Millisecond || longest < 400*time.Millisecond {
			t.Errorf("the longest pause was %v", longest)
		}
		for range 20 {
			longest, _ = p.next(true)
		}
		if longest < 5*time.Second {
			t.Errorf("after a minute: %v", longest)
		}
	})
}

func TestBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b blocked
		if err := b.wait(t.Context()); err != nil {
			t.Errorf("the zero value: %v", err)
		}
		began := time.Now()
		b.set("low on memory")
		time.Sleep(time.Second)
		b.set("low on memory and disk")
		if reason, since, active := b.state(); !active || !since.Equal(began) || reason != "low on memory and disk" {
			t.Errorf("state = %q since %v, %v", reason, since, active)
		}
		if err := b.waitFor(t.Context(), time.Minute); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute+time.Second {
			t.Errorf("waitFor = %v after %v", err, time.Since(began))
		}
		time.AfterFunc(time.Second, b.clear)
		if err := b.wait(t.Context()); err != nil {
			t.Errorf("wait = %v", err)
		}
		b.clear() // twice is once
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
		"waits while blocked": {func(s *socket, far net.Conn) { s.setBlocked(true); time.Sleep(time.Hour); far.Read(make([]byte, 8)) }, time.Hour, false},
		"fails once no longer blocked": {func(s *socket, far net.Conn) {
			s.setBlocked(true)
			time.Sleep(time.Minute - 1)
			s.setBlocked(false)
		}, 90 * time.Second, true},
		"has its patience anew after an alarm": {func(s *socket, far net.Conn) {
			s.setBlocked(true)
			time.Sleep(time.Minute - 1)
			s.setBlocked(false)
			time.Sleep(20*time.Second + 1)
			far.Read(make([]byte, 8))
		}, 80 * time.Second, false},
		"ends at the closing deadline": {func(s *socket, far net.Conn) {
			s.setBlocked(true)
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
		s := &socket{Conn: near, writeTimeout: time.Hour}
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

// A link whose calls return when its socket is closed, as the library's do.
func TestTheLimitOfACall(t *testing.T) {
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
		call  func(<-chan struct{}) error
		took  time.Duration
		lost  bool
		alarm time.Duration // its end; 0 for none
	}{
		"a reply in time":         {after(time.Second), time.Second, false, 0},
		"no reply":                {after(time.Hour), 30 * time.Second, true, 0},
		"a reply after an alarm":  {after(70 * time.Second), 70 * time.Second, false, time.Minute},
		"no reply after an alarm": {after(time.Hour), 90 * time.Second, true, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, far := pipe(0, time.Hour)
				defer far.Close()
				closed := make(chan struct{})
				go func() { far.Read(make([]byte, 1)); close(closed) }()
				l := &link{socket: s, limit: 30 * time.Second, log: slog.New(slog.DiscardHandler)}
				if c.alarm > 0 {
					time.AfterFunc(time.Second, func() { l.blocked.set("low on memory") })
					time.AfterFunc(c.alarm, l.blocked.clear)
				}
				began := time.Now()
				err := l.timed(func() error { return c.call(closed) })
				if took := time.Since(began); took != c.took || errors.Is(err, ErrSessionLost) != c.lost || errors.Is(err, reply) == c.lost {
					t.Errorf("timed = %v after %v, want after %v, lost: %v", err, took, c.took, c.lost)
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

// A caller leaves a call at the end of its ctx, and the call goes on.
func TestLeavingACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &link{limit: time.Hour, log: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began, returned := time.Now(), make(chan time.Duration, 1)
		_, left := l.call(func() error { time.Sleep(time.Minute); return nil }).
			wait(ctx, func() { returned <- time.Since(began) })
		if took := time.Since(began); !left || took != time.Second {
			t.Errorf("left: %v, after %v", left, took)
		}
		if took := <-returned; took != time.Minute {
			t.Errorf("what follows the call ran after %v", took)
		}
	})
}

func TestACallThatPanicsOrEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lines
		l := &link{limit: time.Hour, log: slog.New(slog.NewTextHandler(&out, nil))}
		err, left := l.call(func() error { runtime.Goexit(); return nil }).wait(t.Context(), nil)
		if left || err == nil || !strings.Contains(err.Error(), "ended its goroutine") {
			t.Errorf("wait = %v, left: %v", err, left)
		}
		func() {
			defer func() {
				if p := recover(); p != "mine" {
					t.Errorf("the panic that the caller sees is %v", p)
				}
			}()
			_, _ = l.call(func() error { panic("mine") }).wait(t.Context(), nil)
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		after := make(chan struct{})
		_, left = l.call(func() error { time.Sleep(time.Minute); panic("late") }).wait(ctx, func() { close(after) })
		<-after
		if !left || !strings.Contains(out.String(), "panic: late") {
			t.Errorf("left: %v; the log has %s", left, out.String())
		}
	})
}
