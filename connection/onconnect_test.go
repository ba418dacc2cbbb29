package connection

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop"
)

func TestOnConnectRunsOncePerConnectBeforeAnySession(t *testing.T) {
	t.Parallel()
	p := new(peer).start(t)
	var runs, during atomic.Int32
	c := open(t, Config{URLs: []string{p.url()}, OnConnect: func(ctx context.Context, conn *Conn) error {
		runs.Add(1)
		for _, role := range []Role{Consume, Publish} {
			s, err := conn.Session(ctx, role)
			if err != nil {
				return err
			}
			if err := s.Do(ctx, qos); err != nil {
				return err
			}
			if s.link.generation != uint64(runs.Load()) || conn.Server().Product != "RabbitMQ" || conn.cfg.Logger == nil {
				t.Errorf("run %d: a session of generation %d, server %+v", runs.Load(), s.link.generation, conn.Server())
			}
			during.Add(1)
		}
		return conn.Close() // of no effect
	}})
	for range 3 {
		session(t, c, Consume)
		session(t, c, Publish)
	}
	if runs.Load() != 1 || during.Load() != 2 || len(p.accepted()) != 2 {
		t.Fatalf("%d runs with %d sessions and %d sockets, want 1, 2 and 2", runs.Load(), during.Load(), len(p.accepted()))
	}
	lost := session(t, c, Publish)
	p.hangUp()
	within(t, "Done", lost.Done())
	// Nobody asks for a session to consume, and yet it runs before the first to publish.
	await(t, c, func(s State) bool { return s.Role == Consume && s.Status == Down })
	session(t, c, Publish)
	if runs.Load() != 2 {
		t.Errorf("%d runs after one reconnect, want 2", runs.Load())
	}
}

func TestOnConnectThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := new(peer)
		mistake := errors.New("no such exchange type")
		began := time.Now()
		var tries []DialAttempt
		_, err := Open(t.Context(), Config{
			URLs: []string{"amqp://peer/?heartbeat=0"}, Dial: p.dial, OnConnect: func(context.Context, *Conn) error { return mistake },
			Traces: []Trace{{DialAttempt: func(try DialAttempt) {
				if try.Role == Consume {
					tries = append(tries, try)
				}
			}}},
		})
		if !errors.Is(err, mistake) || !strings.Contains(err.Error(), ": OnConnect: no such exchange type") || rehop.ClassOf(err) != rehop.ClassConfiguration {
			t.Errorf("Open = %v of class %v", err, rehop.ClassOf(err))
		}
		if time.Since(began) > 0 || len(tries) != 1 {
			t.Errorf("%d tries in %v, want the first to be the last", len(tries), time.Since(began))
		}

		// What may pass is tried again, on a new connection.
		var runs atomic.Int32
		var h history
		c := bubble(t, p, Config{Traces: []Trace{{State: h.add}}, OnConnect: func(context.Context, *Conn) error {
			if runs.Add(1) < 3 {
				return ErrSessionLost
			}
			return nil
		}})
		session(t, c, Consume)
		if s := c.State(Consume); s.Status != Up || s.generation != 3 || runs.Load() != 3 {
			t.Errorf("state is %+v after %d runs", s, runs.Load())
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, s := range h.all[:len(h.all)-1] {
			if s.Role == Consume && s.Status == Up {
				t.Error("up before OnConnect was done")
			}
		}
	})
}

func TestOnConnectThatUsesTheOuterConnIsTold(t *testing.T) {
	t.Parallel()
	p := new(peer).start(t)
	var outer atomic.Pointer[Conn]
	c := open(t, Config{URLs: []string{p.url()}, OnConnect: func(ctx context.Context, _ *Conn) error {
		if c := outer.Load(); c != nil {
			_, err := c.Session(ctx, Publish)
			if rehop.ClassOf(err) != rehop.ClassBug || !strings.Contains(err.Error(), "another Conn than the one it was given") {
				t.Errorf("Session of the outer Conn = %v", err)
			}
			outer.Store(nil)
		}
		return nil
	}})
	outer.Store(c)
	s := session(t, c, Consume)
	p.hangUp()
	within(t, "Done", s.Done())
	session(t, c, Consume)
	if outer.Load() != nil {
		t.Error("OnConnect did not run again")
	}
}

func TestOnConnectThatPanicsOrEndsItsGoroutineLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		up   func()
		want string
	}{
		"panics":             {func() { panic("no such vault") }, "OnConnect: panic: no such vault"},
		"ends its goroutine": {runtime.Goexit, "OnConnect: it ended its goroutine"},
	} {
		up, want := c.up, c.want
		p := new(peer).start(t)
		c, err := Open(t.Context(), Config{URLs: []string{p.url()}, Lazy: true, OnConnect: func(context.Context, *Conn) error { up(); return nil }})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(done)
			_, err := c.Session(ctx, Consume)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: Session = %v", name, err)
			}
		}()
		await(t, c, func(s State) bool { return s.Role == Consume && s.Status == Down && s.Err != nil })
		cancel()
		within(t, "Session", done)
		if err := c.Close(); err != nil {
			t.Errorf("%s: Close = %v", name, err)
		}
		for _, conn := range p.accepted() {
			if _, err := conn.Write(nil); err == nil {
				if _, err := conn.Read(make([]byte, 1)); err == nil {
					t.Errorf("%s: a socket is left", name)
				}
			}
		}
	}
}

func TestCloseDoesNotWaitForAnOnConnectThatDoesNotHeedItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := new(peer)
		entered, leave := make(chan struct{}), make(chan struct{})
		c := bubble(t, p, Config{OnConnect: func(context.Context, *Conn) error {
			close(entered)
			<-leave
			return nil
		}})
		done := make(chan struct{})
		go func() {
			defer close(done)
			if _, err := c.Session(t.Context(), Consume); !errors.Is(err, ErrClosed) {
				t.Errorf("Session = %v, want ErrClosed", err)
			}
		}()
		<-entered
		began := time.Now()
		if err := c.Close(); err == nil || !strings.Contains(err.Error(), "OnConnect has not returned") || time.Since(began) > closeTimeout {
			t.Errorf("Close = %v after %v", err, time.Since(began))
		}
		close(leave)
		<-done // and the bubble ends without a socket
	})
}

func TestOnConnectUnderALossIsRunAgain(t *testing.T) {
	t.Parallel()
	p := new(peer).start(t)
	var runs atomic.Int32
	c := open(t, Config{URLs: []string{p.url()}, OnConnect: func(ctx context.Context, conn *Conn) error {
		s, err := conn.Session(ctx, Consume)
		if err != nil {
			return err
		}
		if runs.Add(1) == 1 {
			p.hangUp()
			<-s.Done()
		}
		return s.Do(ctx, qos)
	}})
	if s := session(t, c, Consume); s.link.generation != 2 || runs.Load() != 2 {
		t.Errorf("generation %d after %d runs", s.link.generation, runs.Load())
	}
}
