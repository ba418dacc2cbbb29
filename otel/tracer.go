package otel

import (
	"context"
	"reflect"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// tracer starts spans. Most programs with metrics alone leave the global provider
// as it is, and its spans, which record nothing, would cost each message two
// allocations. So a tracer of the global provider remembers a provider that made
// no span, and asks it for none until the program sets another.
type tracer struct {
	trace.Tracer
	global bool
	unset  atomic.Pointer[trace.TracerProvider]
}

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
	if !t.global {
		return t.Start(ctx, name, options...)
	}
	provider := otel.GetTracerProvider()
	if unset := t.unset.Load(); unset != nil && *unset == provider && !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx, noop.Span{}
	}
	ctx, span := t.Start(ctx, name, options...)
	// Only pointers can be compared whatever their type.
	if !span.SpanContext().IsValid() && reflect.TypeOf(provider).Kind() == reflect.Pointer {
		t.unset.Store(&provider)
	}
	return ctx, span
}
