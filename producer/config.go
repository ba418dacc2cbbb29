package producer

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/hooks"
	"github.com/rehop/rehop/internal/transport"
)

// maxWindow is the largest Config.Window.
const maxWindow = 10_000

// Config of a Producer. Its zero value is usable.
type Config struct {
	// Window is how many messages may be unconfirmed at a time; a further
	// Publish waits for room. PublishAsync waits while so many of its messages have
	// no receipt: one that is tried again, or given to the Fallback, counts too.
	// 1 to 10,000; defaults to 1000.
	Window int

	// WindowBytes is how many bytes of bodies and headers may be unconfirmed at a time.
	// A larger message is sent when nothing else is unconfirmed. At least 1; defaults
	// to 64 MiB. A target (exchange and routing key) whose queue does not answer has an
	// eighth of Window and WindowBytes for itself, so that it does not hold up other
	// targets.
	WindowBytes int

	// Timeout is how long Publish tries to get a message confirmed. Then Publish turns
	// to the Fallback, or returns. The ctx of Publish bounds the tries and the
	// Fallback together. Defaults to 30 s.
	Timeout time.Duration

	// Fallback takes messages that could not be confirmed. The sinks are tried in
	// order. A message stays in the first sink that takes messages with its cause and
	// does not fail, see [Sink]. Each sink has up to Timeout. If the ctx of a message has
	// a deadline, a sink has at most an equal share of the time until then: half of it
	// if one other sink can take the message after it. A sink that is an io.Closer is
	// closed with the Producer, and must belong to no other Producer.
	Fallback []Sink

	// FallbackAfter is how long a message may wait to be written before it goes to the
	// Fallback: for a connection, for a broker that blocks publishers because it is
	// short of memory or disk, for a queue that does not answer, for room in the
	// window. It counts from the beginning of that state and not from each call: the first
	// callers wait that long, and the messages of later callers go to the Fallback at
	// once until the state is over.
	//
	// A message that is written waits for its answer while the connection lives, until
	// Timeout: the confirm of a healthy broker may take long, and the Fallback would
	// duplicate the message.
	//
	// If the ctx of a message has a deadline, both waits end before it and leave time
	// for the sinks: a quarter of the time until the deadline, or four times as long as
	// the sinks have needed lately (25 ms at least), whichever is less. A message
	// without an answer then goes to the Fallback as unconfirmed.
	//
	// FallbackAfter has an effect only if a sink of the Fallback takes messages with
	// that cause. Otherwise Publish tries for Timeout. From 20 ms to Timeout; defaults
	// to 1 s.
	FallbackAfter time.Duration

	// Traces are sets of hooks, called for every message in their order. If nil, they
	// are those of connection.Config.Telemetry.
	Traces []Trace

	// Defaults are properties of messages that have none of their own, also of messages
	// that come out of a store.
	Defaults Defaults

	// Logger gets a record when messages go to the Fallback, and for a panic in a hook.
	// Each cause is logged at its first message, and then with growing pauses and the
	// number of messages; each message in between is logged at level Debug. If nil,
	// it is the Logger of the Conn.
	Logger *slog.Logger
}

func (c Config) withDefaults(conn *connection.Conn) Config {
	log, telemetry := transport.Inherited(conn)
	if t, ok := telemetry.(interface{ Producer() Trace }); ok && c.Traces == nil {
		c.Traces = []Trace{t.Producer()}
	}
	c.Logger = cmp.Or(c.Logger, log)
	c.Window = cmp.Or(c.Window, 1000)
	c.WindowBytes = cmp.Or(c.WindowBytes, confirm.DefaultBytes)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.FallbackAfter = cmp.Or(c.FallbackAfter, min(time.Second, c.Timeout))
	c.Logger = hooks.Logger(c.Logger)
	return c
}

// leastFallbackAfter is about the time in which a healthy broker opens a channel.
const leastFallbackAfter = 20 * time.Millisecond

func (c Config) validate() error {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("producer: Config."+format, args...))
	}
	if c.Window < 1 || c.Window > maxWindow {
		fault("Window is %d, want 1 to %d", c.Window, maxWindow)
	}
	if c.WindowBytes < 1 {
		fault("WindowBytes is %d, want at least 1", c.WindowBytes)
	}
	if c.Timeout < 0 {
		fault("Timeout is %v, want more than 0", c.Timeout)
	}
	if c.FallbackAfter > max(c.Timeout, 0) || c.FallbackAfter < min(leastFallbackAfter, c.Timeout) {
		fault("FallbackAfter is %v, want at least %v, and at most Timeout (%v)", c.FallbackAfter, leastFallbackAfter, c.Timeout)
	}
	for i, s := range c.Fallback {
		if s == nil {
			fault("Fallback[%d] is nil", i)
		}
	}
	return errors.Join(errs...)
}
