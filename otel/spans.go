package otel

import (
	"cmp"
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// kept is a ctx that keeps a value of a Telemetry for the later hooks of a message.
type kept[T any] struct {
	context.Context
	telemetry *Telemetry
	value     T
}

type keyOf[T any] struct{ *Telemetry }

// Value implements context.Context.
func (k *kept[T]) Value(key any) any {
	if key == (keyOf[T]{k.telemetry}) {
		return &k.value
	}
	return k.Context.Value(key)
}

// keptIn returns the value of the innermost kept, or nil if a later hook has lost it.
func keptIn[T any](ctx context.Context, t *Telemetry) *T {
	v, _ := ctx.Value(keyOf[T]{t}).(*T)
	return v
}

// about are the attributes of the span of one message.
type about struct {
	exchange, key, queue string
	id, correlationID    string
	size, replays        int
}

// attributes returns them with room for some more.
func (a about) attributes() []attribute.KeyValue {
	all := append(make([]attribute.KeyValue, 0, 10),
		semconv.MessagingDestinationName(destination(a.exchange, a.key, a.queue)),
		semconv.MessagingRabbitMQDestinationRoutingKey(a.key),
		semconv.MessagingMessageID(a.id),
		semconv.MessagingMessageBodySize(a.size),
	)
	if a.correlationID != "" {
		all = append(all, semconv.MessagingMessageConversationID(a.correlationID))
	}
	if a.replays > 0 {
		all = append(all, attribute.Int("rehop.replays", a.replays))
	}
	return all
}

// destination is the name that the semantic conventions give to what is published
// to, or consumed from.
func destination(exchange, key, queue string) string {
	name := exchange
	for _, part := range []string{key, queue} {
		switch {
		case part == "" || part == name || part == queue && part == key && name != exchange:
		case name == "":
			name = part
		default:
			name += ":" + part
		}
	}
	return cmp.Or(name, defaultExchange)
}

// text is the text of an error, cut to 1 KiB.
func text(err error) string {
	if err == nil {
		return ""
	}
	s := err.Error()
	if len(s) > 1<<10 {
		s = s[:1<<10]
	}
	return strings.ToValidUTF8(s, "?")
}
