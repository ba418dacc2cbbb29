package producer

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rehop/rehop/internal/confirm"
)

// Config of a Producer. Its zero value is usable.
type Config struct {
	// Window is how many messages may be unconfirmed at a time; a further
	// Publish waits for room. 1 to 10,000; defaults to 1000.
	Window int

	// WindowBytes is how many bytes of bodies and headers may be unconfirmed at
	// a time. A larger message is sent when nothing else is unconfirmed. At
	// least 1; defaults to 64 MiB. A target (exchange and key) whose queue does
	// not answer has an eighth of Window and WindowBytes for itself, so that it
	// holds up no other.
	WindowBytes int

	// Timeout is how long Publish tries to get a message confirmed. Then it
	// turns to Fallback, or returns. The ctx of Publish bounds all of it.
	// Defaults to 30 s.
	Timeout time.Duration

	// Fallback takes messages that could not be confirmed. The sinks are tried in
	// order; the first one that takes such messages and does not fail keeps it,
	// see [Sink]. Each sink has up to Timeout. A sink that is an io.Closer is closed with the Producer, and
	// belongs to no other.
	Fallback []Sink

	// FallbackAfter is how long a trouble may last before messages go to the
	// Fallback: a lost connection, a broker that blocks publishers, being short
	// of memory or disk, a queue that does not answer, a window that stays full.
	// It counts from when the trouble was noticed and not from each call: the
	// first callers wait that long, and messages of later callers go to the
	// Fallback at once until the trouble is over. It counts only where a sink of
	// the Fallback takes messages with that cause; else Publish tries for
	// Timeout. At most Timeout; defaults to 1 s.
	FallbackAfter time.Duration

	// Trace is called for every message.
	Trace Trace

	// Logger logs that messages go to the fallback, and panics in hooks. Each cause
	// is said at its first message, and then with growing pauses and the number
	// of messages; the others are logged at level Debug. If nil, nothing is
	// logged.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Window = cmp.Or(c.Window, 1000)
	c.WindowBytes = cmp.Or(c.WindowBytes, confirm.DefaultBytes)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.FallbackAfter = cmp.Or(c.FallbackAfter, min(time.Second, c.Timeout))
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("producer: Config."+format, args...))
	}
	if c.Window < 1 || c.Window > 10_000 {
		fault("Window is %d, want 1 to 10000", c.Window)
	}
	if c.WindowBytes < 1 {
		fault("WindowBytes is %d, want at least 1", c.WindowBytes)
	}
	if c.Timeout < 0 {
		fault("Timeout is %v, want more than 0", c.Timeout)
	}
	if c.FallbackAfter < 0 || c.FallbackAfter > max(c.Timeout, 0) {
		fault("FallbackAfter is %v, want more than 0, and at most Timeout (%v)", c.FallbackAfter, c.Timeout)
	}
	for i, s := range c.Fallback {
		if s == nil {
			fault("Fallback[%d] is nil", i)
		}
	}
	return errors.Join(errs...)
}
