package otel

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/rehop/rehop/otel/internal/catalog"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// stores are the metrics of the Forwarder.
type stores struct {
	mu        sync.Mutex
	forwarded family
}

func (s *stores) init(i *instruments) {
	s.forwarded = familyOf(catalog.Forwarded)
	i.observe(func(o metric.Observer) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forwarded.read(o)
	}, &s.forwarded)
}

// Store returns the hooks of a store, for store.Config.Traces. They write the context
// of the request that stores a message by PutTx or PutAt into the headers of the
// message, through a span named after its exchange. So the Forwarder, in whichever process
// it runs, publishes it in the trace of that request.
func (t *Telemetry) Store() store.Trace {
	return store.Trace{Storing: func(ctx context.Context, m *producer.Message) {
		exchange := t.producers.exchange(m.Exchange)
		ctx, span := t.tracer.start(ctx, create+" "+exchange.label, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
			system,
			semconv.MessagingOperationName(create),
			semconv.MessagingOperationTypeCreate,
			semconv.MessagingDestinationTemplate(exchange.label),
			semconv.MessagingDestinationName(destination(m.Exchange, m.RoutingKey, "")),
			semconv.MessagingMessageID(valid(m.ID)),
		))
		if span.SpanContext().IsValid() {
			m.Headers = t.inject(ctx, m.Headers)
		}
		span.End()
	}}
}

const create = "create"

// Forward returns the hooks of a store.Forwarder, for store.ForwardConfig.Traces. The
// spans are those of the producer that the Forwarder publishes with: give that producer
// the hooks of [Telemetry.Producer]. They continue the trace that the message
// brought into the store, also if the ctx of the Forwarder carries a span.
func (t *Telemetry) Forward() store.ForwardTrace {
	s := &t.stores
	count := func(l store.Entry, failed string) {
		exchange := t.producers.exchange(l.Message.Exchange).label
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forwarded.at(exchange, failed).n++
	}
	return store.ForwardTrace{
		Forwarded: func(_ context.Context, f store.Forwarded) { count(f.Entry, "") },
		Failed:    func(_ context.Context, f store.ForwardFailure) { count(f.Entry, causeOf("", f.Err)) },
	}
}
