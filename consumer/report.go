package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/rehop/rehop/internal/repeats"
	"github.com/rehop/rehop/topology"
)

// reporter tells Trace and the Logger what becomes of messages. A panic of a hook is
// logged.
type reporter struct {
	trace Trace
	log   *slog.Logger
	again *repeats.Log
}

func (r reporter) received(d *Delivery) {
	if r.trace.Received != nil {
		defer r.recovered("Received")
		r.trace.Received(d)
	}
}

func (r reporter) handled(d *Delivery, err error, took time.Duration) {
	if r.trace.Handled != nil {
		defer r.recovered("Handled")
		r.trace.Handled(d, err, took)
	}
}

func (r reporter) copied(d *Delivery, to topology.Address) {
	if r.trace.Copied != nil {
		defer r.recovered("Copied")
		r.trace.Copied(d, to)
	}
}

func (r reporter) confirmed(d *Delivery, to topology.Address) {
	if r.trace.Confirmed != nil {
		defer r.recovered("Confirmed")
		r.trace.Confirmed(d, to)
	}
}

func (r reporter) due(c Carried) {
	if r.trace.Due != nil {
		defer r.recovered("Due")
		r.trace.Due(c)
	}
}

func (r reporter) carried(c Carried) {
	if r.trace.Carried != nil {
		defer r.recovered("Carried")
		r.trace.Carried(c)
	}
}

// settled tells where a message went.
func (r reporter) settled(m *message) {
	r.logSettled(m)
	if r.trace.Settled != nil {
		defer r.recovered("Settled")
		r.trace.Settled(m.delivery, m.end)
	}
}

// recovered is deferred around a hook.
func (r reporter) recovered(hook string) {
	if v := recover(); v != nil {
		r.log.Error("a hook of consumer.Trace panicked", "hook", hook, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	}
}

// logSettled says where a message went that is not simply done.
func (r reporter) logSettled(m *message) {
	d := m.delivery
	if m.end.Place == PlaceDone && m.result.err == nil || !r.log.Enabled(context.Background(), slog.LevelError) {
		return // most messages, and all of a silent logger
	}
	about := []any{"queue", d.Queue, "message", d.ID, "attempt", d.Attempt}
	if m.result.err != nil {
		about = append(about, "error", m.result.text)
	}
	if stack := m.result.stack(); stack != "" {
		about = append(about, "stack", stack)
	}
	switch m.end.Place {
	case PlaceDone:
		r.log.Info("message discarded", "queue", d.Queue, "message", d.ID, "attempt", d.Attempt, "reason", m.result.outcome.Reason)
	case PlaceWait:
		if m.end.Rung > 0 {
			about = append(about, "wait", m.from.route.Waits[m.end.Rung-1])
		} else if takes := m.verdict.exact.takes; takes > 0 {
			about = append(about, "wait", takes)
		}
		switch {
		case m.verdict.unspent:
			r.log.Info("message not due yet, it is sent to a wait again", about...)
		case d.Attempt == len(m.from.route.Waits):
			r.log.Warn("attempt failed, one attempt is left", about...)
		default:
			r.log.Info("attempt failed, the message is sent to its wait", about...)
		}
	case PlaceDeadLetter:
		r.log.Error("message dead-lettered", append(about, "cause", string(m.end.Cause))...)
	case PlaceQueue:
		r.log.Info("message left to its queue", about...)
	}
}

// recoveringHandler is a slog.Handler whose panics become errors.
type recoveringHandler struct{ slog.Handler }

func (h recoveringHandler) Handle(ctx context.Context, record slog.Record) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v) // there is nobody left to tell
		}
	}()
	return h.Handler.Handle(ctx, record)
}

func (h recoveringHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return recoveringHandler{h.Handler.WithAttrs(attrs)}
}

func (h recoveringHandler) WithGroup(name string) slog.Handler {
	return recoveringHandler{h.Handler.WithGroup(name)}
}
