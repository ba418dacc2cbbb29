package otel

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/resend"
	"github.com/rehop/rehop/otel/internal/catalog"
	"github.com/rehop/rehop/producer"
)

const (
	publish = "publish"
	// defaultExchange is the name of the semantic conventions for the exchange without
	// a name.
	defaultExchange = "amq.default"
)

// producers are the metrics of all producers of a program.
type producers struct {
	exchanges names[*exchange]
	duration  distribution

	mu                         sync.RWMutex // held for reading by who adds to a series that is there
	sent, unconfirmed, retried family
	open                       *series // of unconfirmed
}

// exchange is known by name. A message that comes to its queue looks nothing else up.
type exchange struct {
	spanOf
	inQueue     *series // of sent
	inQueueTook labels
}

func (p *producers) init(i *instruments) {
	p.duration.init(i, catalog.PublishDuration)
	p.sent, p.unconfirmed, p.retried = familyOf(catalog.Sent), familyOf(catalog.Unconfirmed), familyOf(catalog.Retried)
	p.open = p.unconfirmed.at()
	p.exchanges.make = func(label string) *exchange {
		place := placeLabel(producer.PlaceQueue)
		p.mu.Lock()
		defer p.mu.Unlock()
		return &exchange{
			spanOf:      newSpanOf(publish, label, trace.SpanKindProducer, semconv.MessagingOperationTypeSend),
			inQueue:     p.sent.at(publish, label, place),
			inQueueTook: p.duration.of(publish, label, place),
		}
	}
	i.observe(func(o metric.Observer) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.sent.read(o)
		p.unconfirmed.read(o)
		p.retried.read(o)
	}, &p.sent, &p.unconfirmed, &p.retried)
}

// exchange returns what is known of an exchange, by the name it has in labels.
func (p *producers) exchange(name string) *exchange {
	return p.exchanges.of(cmp.Or(name, defaultExchange))
}

// Producer returns the hooks of a producer, for producer.Config.Traces. The same hooks
// may serve several producers.
//
// A message gets a span from Publish to its receipt, and its context in its headers.
// The span is a child of the one in the ctx of Publish. A message that brings a context
// in its headers, from a store or from another broker, continues that trace if ctx has
// none. If both have one, the span is linked to the one in the headers.
func (t *Telemetry) Producer() producer.Trace {
	return producer.Trace{Publishing: t.publishing, Retrying: t.retrying, Published: t.published}
}

func (t *Telemetry) publishing(ctx context.Context, m *producer.Message) context.Context {
	p := &t.producers
	p.mu.RLock()
	p.open.add(1)
	p.mu.RUnlock()

	exchange := p.exchange(m.Exchange)
	options := exchange.start
	brought := trace.SpanContextFromContext(t.extract(context.Background(), m.Headers))
	switch active := trace.SpanContextFromContext(ctx); {
	case resend.IsOfService(ctx):
		ctx = trace.ContextWithRemoteSpanContext(ctx, brought)
	case !brought.IsValid():
	case !active.IsValid():
		ctx = trace.ContextWithRemoteSpanContext(ctx, brought)
	case active.TraceID() != brought.TraceID():
		options = append(slices.Clip(options), trace.WithLinks(trace.Link{SpanContext: brought}))
	}
	ctx, span := t.tracer.start(ctx, exchange.span, options...)
	if span.SpanContext().IsValid() {
		m.Headers = t.inject(ctx, m.Headers)
	}
	if !span.IsRecording() {
		return ctx
	}
	span.SetAttributes(about{m.Exchange, m.RoutingKey, "", m.ID, m.CorrelationID, len(m.Body), m.Replays}.attributes()...)
	return &kept[publication]{ctx, t, publication{span}}
}

// publication is a message that is being published, with its span.
type publication struct{ trace.Span }

func (t *Telemetry) retrying(ctx context.Context, r producer.Retrying) {
	p := &t.producers
	exchange, cause := p.exchange(r.Message.Exchange).label, causeOf("", r.Err)
	p.mu.Lock()
	p.retried.at(exchange, cause).n++
	p.mu.Unlock()
	if span := keptIn[publication](ctx, t); span != nil {
		span.AddEvent("retried", trace.WithAttributes(semconv.ErrorTypeKey.String(cause), attribute.String("rehop.error", text(r.Err))))
	}
}

func (t *Telemetry) published(ctx context.Context, done producer.Published) {
	m, r, took := done.Message, done.Receipt, done.Took
	p := &t.producers
	exchange, place, cause := p.exchange(m.Exchange), placeLabel(r.Place), ""
	if r.Place == producer.PlaceQueue {
		p.mu.RLock()
		exchange.inQueue.add(1)
		p.open.add(-1)
		p.mu.RUnlock()
		p.duration.histogram.Record(ctx, took.Seconds(), exchange.inQueueTook...)
	} else {
		cause = causeOf(r.Cause, r.Err)
		p.mu.Lock()
		p.sent.at(publish, exchange.label, place, cause).n++
		p.open.n--
		p.mu.Unlock()
		p.duration.record(ctx, took.Seconds(), publish, exchange.label, place, cause)
	}

	span := keptIn[publication](ctx, t)
	if span == nil {
		return
	}
	span.SetAttributes(attribute.String(catalog.Place, place))
	if cause != "" {
		span.SetAttributes(semconv.ErrorTypeKey.String(cause), attribute.String("rehop.error", text(r.Err)))
	}
	if r.Sink != "" {
		span.SetAttributes(attribute.String("rehop.sink", r.Sink))
	}
	if r.MaybeDuplicate {
		span.SetAttributes(attribute.Bool("rehop.maybe_duplicate", true))
	}
	if r.Place == "" {
		span.SetStatus(codes.Error, text(r.Err))
	}
	span.End()
}

// causeOf returns why a publish failed, for a label: the cause, or the class of an
// error that has none, of a message that is faulty or a Producer that is closed.
func causeOf(cause rehop.Cause, err error) string {
	cause = cmp.Or(cause, producer.CauseOf(err))
	if class := rehop.ClassOf(err); cause == rehop.CauseUnreachable && class == rehop.ClassBug {
		return class.String()
	}
	return string(cause)
}

// placeLabel is a place as a label, "unknown" for none.
func placeLabel(p producer.Place) string { return cmp.Or(string(p), "unknown") }
