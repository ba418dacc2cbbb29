package producer

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"
)

// Trace is a set of hooks for metrics, traces and tests. Nil hooks are not
// called. Those of one message run one after the other, concurrently with those
// of other messages, on the goroutine of Publish or on one of the Producer; so
// they must return soon. A panic in a hook is logged and harms nothing else.
type Trace struct {
	// Publishing: a message has its ID and is about to be checked and sent. The
	// hook may change it, but not what its Headers and Body refer to: a header
	// is added to a copy of them.
	Publishing func(ctx context.Context, m *Message)

	// Retrying: a try was cut off, because of err, and the message is sent once
	// more.
	Retrying func(ctx context.Context, m Message, err error)

	// Published: the message has its receipt, took after Publishing. With
	// Place 0 it is not known to be safe, and r.Err says why. Once for each
	// Publishing.
	Published func(ctx context.Context, m Message, r Receipt, took time.Duration)
}

// hooks are a Trace whose panics go to a log.
type hooks struct {
	trace Trace
	log   *slog.Logger
}

func (h *hooks) guard(hook string) {
	if p := recover(); p != nil {
		h.log.Error("a hook of producer.Trace panicked", "hook", hook, "panic", p, "stack", string(debug.Stack()))
	}
}

// publishing calls the hook, and returns when the message began if Published
// needs it.
func (h *hooks) publishing(ctx context.Context, m *Message) (began time.Time) {
	if h.trace.Published != nil {
		began = time.Now()
	}
	if h.trace.Publishing == nil {
		return began
	}
	defer h.guard("Publishing")
	changed := *m // m itself is to stay on its stack
	h.trace.Publishing(ctx, &changed)
	*m = changed
	return began
}

func (h *hooks) retrying(ctx context.Context, m *Message, err error) {
	if h.trace.Retrying == nil {
		return
	}
	defer h.guard("Retrying")
	h.trace.Retrying(ctx, *m, err)
}

func (h *hooks) published(ctx context.Context, m *Message, r Receipt, began time.Time) {
	if h.trace.Published == nil {
		return
	}
	defer h.guard("Published")
	h.trace.Published(ctx, *m, r, time.Since(began))
}
