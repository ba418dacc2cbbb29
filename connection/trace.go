package connection

import (
	"log/slog"
	"time"

	"github.com/rehop/rehop/internal/hooks"
)

// Trace is a set of hooks for metrics and tests. Nil hooks are not called. Hooks
// run on the goroutine that does the work, for all sockets concurrently, and
// must not wait for the Conn. A panic in a hook is logged and harms nothing else.
type Trace struct {
	// DialAttempt: one try at one URL ended. Err is nil if the broker accepted the
	// login and Config.OnConnect, where it runs, succeeded.
	DialAttempt func(DialAttempt)

	// State: the state of a socket changed. The changes of one socket come in
	// order, and none is left out. The socket that a queue has of its own for a while has
	// no State.
	State func(State)

	// SessionOpened: the broker has opened a channel on the socket for a role.
	// SessionEnded: the session has ended. Each is called once for each session.
	SessionOpened, SessionEnded func(SessionEvent)
}

// SessionEvent is the beginning or the end of a session.
type SessionEvent struct {
	Role Role
}

// Telemetry gives hooks to a Conn and to everything that uses the Conn: see
// Config.Telemetry. The Telemetry of package
// [github.com/rehop/rehop/otel] has all methods that it names.
type Telemetry interface {
	// Connection returns the hooks of a Conn of a name.
	Connection(name string) Trace
}

// DialAttempt is one try at one URL: TCP, TLS, login and virtual host, and then
// Config.OnConnect on the socket for [Consume]. Took is the time of all of them.
type DialAttempt struct {
	Role Role
	URL  string // without password
	Took time.Duration
	Err  error
}

// merged returns the hooks of all Traces as one Trace.
func merged(traces []Trace, log *slog.Logger) Trace {
	s := hooks.Of(traces, log, "connection.Trace")
	return Trace{
		DialAttempt: hooks.One(s, "DialAttempt", func(t Trace) func(DialAttempt) { return t.DialAttempt }),
		State:       hooks.One(s, "State", func(t Trace) func(State) { return t.State }),

		SessionOpened: hooks.One(s, "SessionOpened", func(t Trace) func(SessionEvent) { return t.SessionOpened }),
		SessionEnded:  hooks.One(s, "SessionEnded", func(t Trace) func(SessionEvent) { return t.SessionEnded }),
	}
}

func (t Trace) attempted(a DialAttempt) {
	if t.DialAttempt != nil {
		t.DialAttempt(a)
	}
}

func (t Trace) sessionOpened(r Role) {
	if t.SessionOpened != nil {
		t.SessionOpened(SessionEvent{Role: r})
	}
}

func (t Trace) sessionEnded(r Role) {
	if t.SessionEnded != nil {
		t.SessionEnded(SessionEvent{Role: r})
	}
}
