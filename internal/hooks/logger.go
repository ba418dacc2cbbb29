package hooks

import (
	"context"
	"log/slog"
)

// Logger returns a logger with the handler of log that drops each record whose handling
// panics, because nobody is left to tell. If log is nil, it drops all records.
func Logger(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(safeHandler{log.Handler()})
}

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
