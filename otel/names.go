package otel

import (
	"maps"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// names bounds the values of a label. The value of a name is made once, so that a
// message with a known name costs one look into a map that never changes.
type names[T any] struct {
	make func(label string) T

	mu   sync.Mutex // of those who make a new one
	seen atomic.Pointer[map[string]T]
}

// maxNames is how many exchanges, queues and types of errors have a series of their
// own.
const maxNames = 100

// maxLabel is the length of the longest names of exchanges and queues, in bytes.
const maxLabel = 255

// other is the word of the semantic conventions for all other values.
const other = "_OTHER"

// of returns what is known of a name, or of other if there are too many. A name that is
// too long, or is not UTF-8, is other too: one such label makes the exporter of
// Prometheus answer with an error instead of all metrics.
func (n *names[T]) of(label string) T {
	if known, ok := n.known(label); ok {
		return known
	}
	if len(label) > maxLabel || !utf8.ValidString(label) {
		label = other
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if known, ok := n.known(label); ok {
		return known
	}
	more := map[string]T{}
	if seen := n.seen.Load(); seen != nil {
		more = maps.Clone(*seen)
	} else {
		more[other] = n.make(other)
	}
	if label != other {
		more[label] = n.make(label)
	}
	n.seen.Store(&more)
	return more[label]
}

func (n *names[T]) known(label string) (known T, ok bool) {
	seen := n.seen.Load()
	if seen == nil {
		return known, false
	}
	if known, ok = (*seen)[label]; !ok && len(*seen) > maxNames { // other is one of them
		known, ok = (*seen)[other]
	}
	return known, ok
}

// errorTypes bounds the types of errors.
type errorTypes struct{ names[string] }

func (e *errorTypes) init() { e.make = func(label string) string { return label } }

func (e *errorTypes) bounded(label string) string {
	if label == "" {
		return ""
	}
	return e.of(label)
}

// spanOf is what the spans with an operation on a destination have in common.
type spanOf struct {
	label string
	span  string // with the operation before it
	start []trace.SpanStartOption
}

func newSpanOf(operation, label string, kind trace.SpanKind, typ attribute.KeyValue) spanOf {
	return spanOf{label, operation + " " + label, []trace.SpanStartOption{trace.WithSpanKind(kind), trace.WithAttributes(
		system, semconv.MessagingOperationName(operation), typ, semconv.MessagingDestinationTemplate(label))}}
}
