package hooks_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/rehop/rehop/internal/hooks"
)

// wild is a slog.Handler whose method of the given name panics.
type wild string

func (w wild) on(method string) {
	if string(w) == method {
		panic(method)
	}
}

func (w wild) Enabled(context.Context, slog.Level) bool  { w.on("Enabled"); return true }
func (w wild) Handle(context.Context, slog.Record) error { w.on("Handle"); return nil }
func (w wild) WithAttrs([]slog.Attr) slog.Handler        { w.on("WithAttrs"); return w }
func (w wild) WithGroup(string) slog.Handler             { w.on("WithGroup"); return w }

func TestALoggerThatPanicsHarmsNobody(t *testing.T) {
	for _, method := range []string{"Enabled", "Handle", "WithAttrs", "WithGroup"} {
		log := hooks.Logger(slog.New(wild(method)))
		log.Error("nobody hears this")
		log.With("a", 1).WithGroup("g").Error("nor this")
	}
	hooks.Logger(nil).Error("nor this")
}
