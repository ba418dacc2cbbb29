package otel

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
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
		semconv.MessagingRabbitMQDestinationRoutingKey(valid(a.key)),
		semconv.MessagingMessageID(valid(a.id)),
		semconv.MessagingMessageBodySize(a.size),
	)
	if a.correlationID != "" {
		all = append(all, semconv.MessagingMessageConversationID(valid(a.correlationID)))
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
	return cmp.Or(valid(name), defaultExchange)
}

// text is the text of an error, cut to 1 KiB.
func text(err error) string {
	if err == nil {
		return ""
	}
	return valid(err.Error())
}

// valid returns s as UTF-8, cut to 1 KiB. One value that is not UTF-8 makes the
// exporter of OTLP drop all the spans of its batch.
func valid(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), 1<<10)], "?")
}

// recordError adds the event of span.RecordError, with a text that every exporter takes.
func recordError(span trace.Span, err error) {
	span.AddEvent(semconv.ExceptionEventName, trace.WithAttributes(semconv.ExceptionType(valid(fmt.Sprintf("%T", err))), semconv.ExceptionMessage(text(err))))
}
