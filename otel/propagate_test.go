package otel

import (
	"context"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

func TestThePropagatorIsTheGlobalOneAsItIs(t *testing.T) {
	before := otel.GetTextMapPropagator()
	defer otel.SetTextMapPropagator(before)
	telemetry := New(Config{})
	item, err := baggage.NewMember("tenant", "acme")
	if err != nil {
		t.Fatal(err)
	}
	bag, err := baggage.New(item)
	if err != nil {
		t.Fatal(err)
	}
	ctx := baggage.ContextWithBaggage(context.Background(), bag)
	ctx = trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}}))
	for _, c := range []struct {
		rule    string
		set     propagation.TextMapPropagator
		traced  bool
		baggage string
	}{
		{"none is set: W3C Trace Context", nil, true, ""},
		{"set after New, with baggage", propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}), true, "acme"},
		{"baggage alone", propagation.Baggage{}, false, "acme"},
	} {
		if c.set != nil {
			otel.SetTextMapPropagator(c.set)
		}
		headers := telemetry.inject(ctx, amqp.Table{"own": "header", "traceparent": "stale", "baggage": "tenant=stale"})
		got := telemetry.extract(context.Background(), headers)
		if traced := trace.SpanContextFromContext(got).TraceID() == (trace.TraceID{1}); traced != c.traced {
			t.Errorf("%s: the trace arrives: %t, want %t; %v", c.rule, traced, c.traced, headers)
		}
		if tenant := baggage.FromContext(got).Member("tenant").Value(); tenant != c.baggage {
			t.Errorf("%s: the baggage is %q, want %q; %v", c.rule, tenant, c.baggage, headers)
		}
	}
}
