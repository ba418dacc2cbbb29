package otel

import (
	"context"
	"maps"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// inUse returns the propagator for a message. The global one is the one of that moment: a
// program may set it after it has made its Telemetry.
func (t *Telemetry) inUse() propagation.TextMapPropagator {
	if t.propagator != nil {
		return t.propagator
	}
	if p := otel.GetTextMapPropagator(); len(p.Fields()) > 0 {
		return p
	}
	return propagation.TraceContext{} // that of a program which has set none has no fields
}

// carrier reads and writes the headers of a message. It changes a copy of them: the
// table belongs to whoever made the message.
type carrier struct {
	headers amqp.Table
	own     bool
}

// Get implements propagation.TextMapCarrier.
func (c *carrier) Get(key string) string {
	switch v := c.headers[key].(type) {
	case string:
		return v
	case []byte:
		return string(v)
	}
	return ""
}

// Set implements propagation.TextMapCarrier.
func (c *carrier) Set(key, value string) {
	c.copied()
	c.headers[key] = value
}

// Keys implements propagation.TextMapCarrier.
func (c *carrier) Keys() []string {
	keys := make([]string, 0, len(c.headers))
	for key := range c.headers {
		keys = append(keys, key)
	}
	return keys
}

func (c *carrier) copied() {
	if c.own {
		return
	}
	c.own = true
	if c.headers = maps.Clone(c.headers); c.headers == nil {
		c.headers = amqp.Table{}
	}
}

// extract returns ctx with the context that a message brought along. A message that
// brought none has no parent: ctx is that of a service and not of the message.
func (t *Telemetry) extract(ctx context.Context, headers amqp.Table) context.Context {
	if trace.SpanContextFromContext(ctx).IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	}
	if len(headers) == 0 {
		return ctx
	}
	p := t.inUse()
	if !slices.ContainsFunc(p.Fields(), func(field string) bool { return headers[field] != nil }) {
		return ctx // most messages, where nobody traces
	}
	return p.Extract(ctx, &carrier{headers: headers})
}

// inject returns the headers with the context of ctx instead of the one that was in
// them.
func (t *Telemetry) inject(ctx context.Context, headers amqp.Table) amqp.Table {
	c, p := &carrier{headers: headers}, t.inUse()
	if len(headers) > 0 {
		for _, field := range p.Fields() {
			if _, ok := headers[field]; ok {
				c.copied()
				delete(c.headers, field)
			}
		}
	}
	p.Inject(ctx, c)
	return c.headers
}
