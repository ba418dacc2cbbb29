package connection

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// protect runs f, which calls a function of the user, and makes an error of its
// panic.
func protect(log *slog.Logger, what string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("connection: "+what+" panicked", "panic", p, "stack", string(debug.Stack()))
			err = WithClass(fmt.Errorf("panic: %v", p), Bug)
		}
	}()
	return f()
}

// safeHandler is a slog.Handler that drops a record whose handling panics: there
// is no other place to report it.
type safeHandler struct{ slog.Handler }

func (h safeHandler) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	defer func() { _ = recover() }()
	return h.Handler.Enabled(ctx, level)
}

func (h safeHandler) Handle(ctx context.Context, r slog.Record) error {
	defer func() { _ = recover() }()
	return h.Handler.Handle(ctx, r)
}

func (h safeHandler) WithAttrs(attrs []slog.Attr) (safe slog.Handler) {
	safe = h
	defer func() { _ = recover() }()
	return safeHandler{h.Handler.WithAttrs(attrs)}
}

func (h safeHandler) WithGroup(name string) (safe slog.Handler) {
	safe = h
	defer func() { _ = recover() }()
	return safeHandler{h.Handler.WithGroup(name)}
}
