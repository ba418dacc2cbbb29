package connection

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop"
)

// history records the states of one use, as Trace.State tells them.
type history struct {
	mu  sync.Mutex
	all []State
}

func (h *history) add(s State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, s)
}

func (h *history) of(role Role) (statuses []Status) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.all {
		if s.Role == role {
			statuses = append(statuses, s.Status)
		}
	}
	return statuses
}

func TestStatesOfALife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		blocking := make(chan struct{})
		var block sync.Once
		p := new(peer)
		p.script = func(c *peerConn, m method, _ uint16) bool {
			if m == basicQos {
				block.Do(func() {
					c.send(connectionBlocked, 0, short("low on memory"))
					<-blocking
					c.send(connectionUnblocked, 0)
				})
			}
			return false
		}
		var h history
		c := bubble(t, p, Config{Traces: []Trace{{State: h.add}}})
		if err := session(t, c, Consume).Close(); err != nil {
			t.Fatal(err)
		}
		if s := c.State(Publish); s.Status != Idle || s.generation != 0 {
			t.Errorf("State(Publish) = %+v before its first use", s)
		}
		if s := c.State(Consume); s.Status != Up || s.generation != 1 || s.Server != c.Server() || s.URL == "" || s.Since.IsZero() {
			t.Errorf("State(Consume) = %+v after Open", s)
		}

		s := session(t, c, Publish)
		go func() {
			for state := range c.States(t.Context()) {
				if state.Status == Blocked {
					if state.Reason != "low on memory" {
						t.Errorf("Blocked because of %q", state.Reason)
					}
					close(blocking)
					return
				}
			}
		}()
		if err := s.Do(t.Context(), qos); err != nil {
			t.Fatal(err)
		}
		await(t, c, func(s State) bool { return s.Role == Publish && s.Status == Up })
		p.hangUp()
		lost := await(t, c, func(s State) bool { return s.Role == Publish && s.Status == Down })
		if lost.Err == nil || !lost.NextTry.IsZero() {
			t.Errorf("state after a loss is %+v, want its cause, and no next try while nobody waits", lost)
		}
		if s := session(t, c, Publish); s.link.generation != 2 {
			t.Errorf("Generation = %d after one loss", s.link.generation)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for _, role := range []Role{Publish, Consume} {
			if s := c.State(role); s.Status != Closed {
				t.Errorf("%v is %v after Close", role, s.Status)
			}
		}
		if got, want := h.of(Publish), []Status{Connecting, Up, Blocked, Up, Down, Down, Connecting, Up, Closed}; !slices.Equal(got, want) {
			t.Errorf("the publish socket was %v, want %v", got, want)
		}
	})
}

// await returns the first state that is wanted.
func await(t *testing.T, c *Conn, wanted func(State) bool) State {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for s := range c.States(ctx) {
		if wanted(s) {
			return s
		}
	}
	t.Fatal("the state never came")
	return State{}
}

func TestStatesOfASlowReaderEndWithTheLatest(t *testing.T) {
	t.Parallel()
	s := newStates(nil)
	c := &Conn{states: s}
	var got []uint64
	for state := range c.States(t.Context()) {
		if state.Role != Publish {
			continue
		}
		got = append(got, state.generation)
		if state.Status == Idle {
			for i := range uint64(10) {
				s.set(State{Role: Publish, Status: Up, generation: i + 1})
			}
			s.set(State{Role: Publish, Status: Closed, generation: 11})
			s.set(State{Role: Consume, Status: Closed})
		}
	}
	if !slices.Equal(got, []uint64{0, 11}) {
		t.Errorf("generations %v, want the first and the latest", got)
	}
}

func TestStatesEndWithTheirContext(t *testing.T) {
	t.Parallel()
	p := new(peer).start(t)
	c := open(t, Config{URLs: []string{p.url()}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	for range c.States(ctx) {
		if n++; n == 2 { // one of each socket
			cancel()
		}
	}
	if n != 2 {
		t.Errorf("%d states, want the present one of each socket", n)
	}
}

func TestDownTellsTheNextTryAndTheEndOfTrying(t *testing.T) {
	t.Parallel()
	var h history
	var tries []DialAttempt
	c, err := Open(t.Context(), Config{
		URLs: []string{nobody(1)}, Lazy: true,
		Backoff: func(failures int) time.Duration { return 1 - 2*time.Duration(failures/3) },
		Traces:  []Trace{{State: h.add, DialAttempt: func(t DialAttempt) { tries = append(tries, t) }}},
	})
	if err != nil {
		t.Fatalf("Open is lazy, and fails: %v", err)
	}
	defer c.Close()
	_, err = c.Session(t.Context(), Consume)
	if rehop.ClassOf(err) != rehop.ClassTransient {
		t.Errorf("Session = %v of class %v after the last pause, want a transient error", err, rehop.ClassOf(err))
	}
	if len(tries) != 3 || tries[0].Err == nil || tries[0].URL == "" || tries[0].Role != Consume || !errors.Is(err, tries[2].Err) {
		t.Errorf("tries are %+v", tries)
	}
	for i, s := range h.all {
		again := i%2 == 1 && i < len(h.all)-1
		if s.Status == Down && (s.Err == nil || s.NextTry.IsZero() == again) {
			t.Errorf("state %d is %+v", i, s)
		}
	}
	if got, want := h.of(Consume), []Status{Connecting, Down, Connecting, Down, Connecting, Down}; !slices.Equal(got, want) {
		t.Errorf("the socket was %v, want %v", got, want)
	}
	if _, err := c.Session(t.Context(), Consume); err == nil || len(tries) != 6 {
		t.Errorf("%d tries after a second Session, want it to start anew", len(tries))
	}
}
