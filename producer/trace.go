package producer

import (
	"context"
	"log/slog"
	"time"

	"github.com/rehop/rehop/internal/hooks"
)

// Trace is a set of hooks for metrics, traces and tests. Nil hooks are not
// called. The hooks of one message run one after the other, concurrently with the
// hooks of other messages, on the goroutine of Publish or PublishAll, or on one of the
// Producer. So they must return soon. They may publish. A panic in a hook is logged and
// harms nothing else.
type Trace struct {
	// Publishing: a message has its ID and is about to be checked and sent. The hook
	// may change the message, but not the map and the bytes that its Headers and Body
	// refer to: it adds a header to a copy of the map. It returns ctx, or a ctx derived
	// from it, such as one with a span. The later hooks of the message and the sinks of
	// the Fallback get that ctx. A nil result counts as ctx.
	Publishing func(ctx context.Context, m *Message) context.Context

	// Retrying: a try was cut off, and the message is sent once more.
	Retrying func(ctx context.Context, r Retrying)

	// Published: the message has its receipt. Without a Place it is not known to be safe,
	// and Receipt.Err says why. Once for each Publishing.
	Published func(ctx context.Context, p Published)
}

// Retrying is a message that is sent once more.
type Retrying struct {
	Message Message
	Err     error // of the try that was cut off
}

// Published is a message that has its receipt.
type Published struct {
	Message Message
	Receipt Receipt
	Took    time.Duration // since the hook Publishing
}

// merged returns the hooks of all Traces as one Trace.
func merged(traces []Trace, log *slog.Logger) Trace {
	s := hooks.Of(traces, log, "producer.Trace")
	return Trace{
		Publishing: hooks.Begin(s, "Publishing", func(t Trace) func(context.Context, *Message) context.Context { return t.Publishing }),
		Retrying:   hooks.Two(s, "Retrying", func(t Trace) func(context.Context, Retrying) { return t.Retrying }),
		Published:  hooks.Two(s, "Published", func(t Trace) func(context.Context, Published) { return t.Published }),
	}
}

// publishing calls the hook. It returns the ctx of the message, and when the
// message began if Published needs it.
func (t *Trace) publishing(ctx context.Context, m *Message) (_ context.Context, began time.Time) {
	if t.Published != nil {
		began = time.Now()
	}
	if t.Publishing == nil {
		return ctx, began
	}
	changed := *m // m itself is to stay on its stack
	ctx = t.Publishing(ctx, &changed)
	*m = changed
	return ctx, began
}

func (t *Trace) retrying(ctx context.Context, m *Message, err error) {
	if t.Retrying != nil {
		t.Retrying(ctx, Retrying{*m, err})
	}
}

func (t *Trace) published(ctx context.Context, m *Message, r Receipt, took time.Duration) {
	if t.Published != nil {
		t.Published(ctx, Published{*m, r, took})
	}
}
