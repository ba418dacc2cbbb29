package connection

import (
	"context"
	"iter"
	"sync"
	"time"
)

// Status is what a socket is doing. The zero value is invalid.
type Status uint8

// The statuses of a socket.
const (
	Idle       Status = iota + 1 // never needed yet: the first who needs it dials
	Connecting                   // trying the URLs
	Up                           // sessions are handed out
	Blocked                      // up, but the broker does not read from publishers
	Down                         // failed or lost; State.Err says why
	Closed                       // by Conn.Close
)

func (s Status) String() string {
	return [...]string{"invalid", "idle", "connecting", "up", "blocked", "down", "closed"}[min(s, Closed)]
}

// State of the socket for one use.
type State struct {
	Use    Use
	Status Status
	Since  time.Time

	// Generation counts the successful handshakes of this socket, from 1.
	Generation uint64

	URL    string // without password; of Up and Blocked
	Server Server // of Up and Blocked
	Reason string // of Blocked: the broker's words
	Err    error  // of Down

	// NextTry, of Down: zero if nobody waits for a session, so that nothing is
	// tried. That says nothing about the broker: the next who needs a session
	// dials at once. A readiness probe must not count it as a fault.
	NextTry time.Time
}

// State returns the present state of the socket for use.
func (c *Conn) State(use Use) State {
	now, _, _ := c.states.snapshot()
	if use != Publish && use != Consume {
		return State{Use: use}
	}
	return now[use-Publish]
}

// States yields the present state of each socket, then every change, until ctx
// ends or the Conn is closed; [Closed] comes last. Who is slower than the
// changes misses some, but not the latest of each socket. It starts no
// goroutine.
//
//	for s := range conn.States(ctx) {
//		up.WithLabelValues(s.Use.String()).Set(...)
//	}
func (c *Conn) States(ctx context.Context) iter.Seq[State] {
	return func(yield func(State) bool) {
		var seen [2]uint64
		for ctx.Err() == nil {
			now, numbers, changed := c.states.snapshot()
			open := false
			for i, state := range now {
				open = open || state.Status != Closed
				if numbers[i] != seen[i] && !yield(state) {
					return
				}
			}
			if !open {
				return
			}
			seen = numbers
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}
}

// states holds the state of both sockets and tells who waits for a change.
type states struct {
	hook func(State) // Trace.State
	turn sync.Mutex  // keeps the calls of hook in order

	mu      sync.Mutex
	now     [2]State
	numbers [2]uint64 // of the changes
	changed chan struct{}
}

func newStates(hook func(State)) *states {
	s := &states{hook: hook, changed: make(chan struct{})}
	for i, use := range []Use{Publish, Consume} {
		s.now[i], s.numbers[i] = State{Use: use, Status: Idle, Since: time.Now()}, 1
	}
	return s
}

func (s *states) set(next State) {
	s.turn.Lock()
	defer s.turn.Unlock()
	next.Since = time.Now()
	s.mu.Lock()
	i := next.Use - Publish
	s.now[i] = next
	s.numbers[i]++
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
	if s.hook != nil {
		s.hook(next)
	}
}

func (s *states) snapshot() (now [2]State, numbers [2]uint64, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now, s.numbers, s.changed
}
