package connection

import (
	"context"
	"iter"
	"sync"
	"time"
)

// Status of a socket. The zero value is invalid.
type Status string

// The statuses of a socket.
const (
	Idle       Status = "idle"       // never needed; only with Config.Lazy
	Connecting Status = "connecting" // trying the URLs
	Up         Status = "up"         // connected
	Blocked    Status = "blocked"    // connected, but the broker takes no messages, see State.Reason
	Down       Status = "down"       // failed or lost; State.Err says why
	Closed     Status = "closed"     // by Conn.Close
)

// State of the socket for one role.
type State struct {
	Role   Role
	Status Status
	Since  time.Time

	URL    string // without password; for Up and Blocked
	Server Server // for Up and Blocked

	// Reason, for Blocked, is in the broker's words, such as "low on memory". A
	// broker reports its alarm on a socket only after a publish on that socket.
	Reason string

	Err error // for Down

	// NextTry, for Down, is when the URLs are tried again, if a session is still
	// wanted then. If it is zero, no try is planned, and the next caller of
	// Session dials at once. For a readiness probe use [Conn.Health].
	NextTry time.Time

	generation uint64 // counts the successful handshakes of this socket, from 1
}

// State returns the present state of the socket for role. For a readiness probe
// use [Conn.Health].
func (c *Conn) State(role Role) State {
	now, _, _ := c.states.snapshot()
	if role != Publish && role != Consume {
		return State{Role: role}
	}
	return now[role.index()]
}

// States yields the present state of each socket, then every change, until ctx
// ends or the Conn is closed; [Closed] comes last. A loop that is slower than the
// changes misses some of them, but never the latest of each socket. States starts
// no goroutine.
//
//	for s := range conn.States(ctx) {
//		up.WithLabelValues(string(s.Role)).Set(...)
//	}
func (c *Conn) States(ctx context.Context) iter.Seq[State] {
	if ctx == nil {
		ctx = context.Background()
	}
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

// states holds the state of both sockets and wakes the callers of States.
type states struct {
	hook func(State) // Trace.State
	turn sync.Mutex  // keeps the calls of hook in order

	mu      sync.Mutex
	now     [2]State
	away    [2]time.Time // see report
	tried   [2]time.Time
	idle    [2]time.Duration
	errs    [2]error
	numbers [2]uint64 // of the changes
	changed chan struct{}
}

func newStates(hook func(State)) *states {
	s := &states{hook: hook, changed: make(chan struct{})}
	for i, role := range roles {
		s.now[i], s.numbers[i] = State{Role: role, Status: Idle, Since: time.Now()}, 1
	}
	return s
}

func (s *states) set(next State) {
	s.turn.Lock()
	defer s.turn.Unlock()
	next.Since = time.Now()
	s.mu.Lock()
	i := next.Role.index()
	switch before := s.now[i]; {
	case before.Status == Down && before.NextTry.IsZero() && !s.tried[i].IsZero():
		s.idle[i] = next.Since.Sub(before.Since)
	case before.Status == Connecting:
		s.idle[i] = 0
	}
	s.now[i] = next
	switch {
	case next.Status == Up || next.Status == Blocked:
		s.away[i], s.tried[i], s.errs[i] = time.Time{}, time.Time{}, nil
	case s.away[i].IsZero():
		s.away[i] = next.Since
	}
	if next.Status == Connecting && s.tried[i].IsZero() {
		s.tried[i] = next.Since
	}
	if next.Err != nil {
		s.errs[i] = next.Err
	}
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

func (s *states) reports() (reports [2]report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range reports {
		reports[i] = report{State: s.now[i], away: s.away[i], tried: s.tried[i], idle: s.idle[i], err: s.errs[i]}
	}
	return reports
}
