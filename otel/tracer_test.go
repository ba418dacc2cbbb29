package otel_test

import (
	"context"
	"testing"

	globals "go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/rehop/rehop/otel"
	"github.com/rehop/rehop/producer"
)

// selective makes spans for some messages only.
type selective struct{ trace.TracerProvider }

func (s *selective) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	return &selectiveTracer{s.TracerProvider.Tracer(name, options...)}
}

type selectiveTracer struct{ trace.Tracer }

// silent is a key of contexts that get no span.
type silent struct{}

func (s *selectiveTracer) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	if ctx.Value(silent{}) != nil {
		return ctx, noop.Span{}
	}
	return s.Tracer.Start(ctx, name, options...)
}

// The global provider can be set once, so all its rules are one test.
func TestTheGlobalProviderMayBeSetLater(t *testing.T) {
	hooks := otel.New(otel.Config{}).Producer()
	publish := func(ctx context.Context) (context.Context, producer.Message) {
		m := producer.Message{Exchange: "shop", RoutingKey: "order.paid", ID: "order-7"}
		ctx = hooks.Publishing(ctx, &m)
		hooks.Published(ctx, producer.Published{Message: m, Receipt: producer.Receipt{Place: producer.PlaceQueue}, Took: 0})
		return ctx, m
	}

	for range 3 {
		if ctx, m := publish(t.Context()); trace.SpanContextFromContext(ctx).IsValid() || m.Headers["traceparent"] != nil {
			t.Fatalf("without a provider: span %v, headers %v; want none", trace.SpanContextFromContext(ctx), m.Headers)
		}
	}

	// A caller with a provider of its own is part of a trace all the same.
	request, span := sdktrace.NewTracerProvider().Tracer("caller").Start(t.Context(), "request")
	if _, m := publish(request); m.Headers["traceparent"] == nil {
		t.Error("a message of a request that is traced has no traceparent")
	}
	if !span.IsRecording() {
		t.Error("the hooks ended a span of their caller")
	}

	ended := tracetest.NewSpanRecorder()
	globals.SetTracerProvider(&selective{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(ended))})
	if ctx, _ := publish(context.WithValue(t.Context(), silent{}, true)); trace.SpanContextFromContext(ctx).IsValid() {
		t.Error("the provider made a span for a message that it leaves out")
	}
	if _, m := publish(t.Context()); m.Headers["traceparent"] == nil {
		t.Error("with a provider that was set later a message has no traceparent")
	}
	if n := len(ended.Ended()); n != 1 {
		t.Errorf("a provider that was set later got %d spans, want 1", n)
	}
}
