package otel

import (
	"context"
	"reflect"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// tracer starts spans. Most programs with metrics alone leave the global provider
// as it is, and its spans, which record nothing, would cost each message two
// allocations. So a tracer of the global provider asks for no span until the program
// has set a provider, except for one each second.
type tracer struct {
	trace.Tracer
	global bool
	vain   atomic.Int64 // when it was asked and made no span, in Unix ns
}

// again is how long a provider that nobody has set is not asked. Instrumentation of the
// process from outside, by eBPF, attaches to Start at any time, and makes it return spans.
const again = time.Second

func (t *tracer) init(configured trace.TracerProvider, options ...trace.TracerOption) {
	provider := configured
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	t.Tracer, t.global = provider.Tracer(scope, options...), configured == nil
}

// start is Start. A span without a parent and without a provider is no span: ctx
// stays as it is.
func (t *tracer) start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	if !t.global || trace.SpanContextFromContext(ctx).IsValid() || !unset(otel.GetTracerProvider()) {
		return t.Start(ctx, name, options...)
	}
	now := time.Now().UnixNano()
	if since := time.Duration(now - t.vain.Load()); 0 <= since && since < again {
		return ctx, noop.Span{}
	}
	ctx, span := t.Start(ctx, name, options...)
	if !span.SpanContext().IsValid() {
		t.vain.Store(now)
	}
	return ctx, span
}

// unset reports whether a global provider is the one that OpenTelemetry begins with. A
// provider of the program may make a span for one message and none for another.
func unset(provider trace.TracerProvider) bool {
	typ := reflect.TypeOf(provider)
	return typ.Kind() == reflect.Pointer && typ.Elem().PkgPath() == "go.opentelemetry.io/otel/internal/global"
}
