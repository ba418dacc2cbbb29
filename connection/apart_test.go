package connection

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
)

func TestAConnApart(t *testing.T) {
	t.Parallel()
	p := new(peer).start(t)
	var ran, ups atomic.Int32
	c := open(t, Config{
		URLs: []string{p.url()},
		OnConnect: func(context.Context, *Conn) error {
			ran.Add(1)
			return nil
		},
		Traces: []Trace{{State: func(s State) {
			if s.Role == Consume && s.Status == Up {
				ups.Add(1)
			}
		}}},
	})
	shared := session(t, c, Consume)
	first, second := c.apart("first"), c.apart("second")
	s, other := session(t, first, Consume), session(t, second, Consume)
	if s.link == shared.link || s.link == other.link {
		t.Error("two Conns share a socket, want one for each")
	}
	if ran.Load() != 1 || ups.Load() != 1 {
		t.Errorf("OnConnect ran %d times, and State told %d times of a socket that is up, want once each: of the shared socket", ran.Load(), ups.Load())
	}
	if err := first.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	within(t, "the end of the session of the Conn that is closed", s.Done())
	if err := errors.Join(shared.Err(), other.Err()); err != nil {
		t.Errorf("Close of one ended the sessions of others: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	within(t, "the end of all sessions", other.Done())
	if _, err := second.Session(t.Context(), Consume); !errors.Is(err, ErrClosed) {
		t.Errorf("Session after Close = %v, want ErrClosed", err)
	}
	if _, err := c.apart("late").Session(t.Context(), Consume); !errors.Is(err, ErrClosed) {
		t.Errorf("Session of a Conn apart from one that is closed = %v, want ErrClosed", err)
	}
	if n := len(c.aparts.all); n > 1 {
		t.Errorf("%d Conns are kept, want those that were closed to be forgotten", n)
	}
}

// A queue that is not handled has a socket for each session. Its consumer says so; the lines of each
// socket would say it again and again.
func TestASocketApartSaysLittle(t *testing.T) {
	t.Parallel()
	p := new(peer).start(t)
	var out lines
	c := open(t, Config{URLs: []string{p.url()}, Logger: slog.New(slog.NewTextHandler(&out, nil))})
	for range 3 {
		a := c.apart("orders")
		s := session(t, a, Consume)
		s.link.kill(errors.New("an internal error"))
		within(t, "the end of the session", s.Done())
		if err := a.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	}
	if text := out.String(); strings.Contains(text, "apart=") {
		t.Errorf("the log says\n%s", text)
	}
}
