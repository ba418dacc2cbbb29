// Package otel reports connections, producers, consumers and stores to OpenTelemetry, as
// metrics and as one trace for each message.
//
//	connection.Config{Telemetry: telemetry}
//	    |
//	connection.Conn     <-- Connection --+
//	producer.Producer   <-- Producer ----+                      +--> metrics (MeterProvider)
//	consumer.Consumer   <-- Consumer ----+-- otel.Telemetry ----+
//	store.Store         <-- Store -------+                      +--> spans (TracerProvider)
//	store.Forwarder     <-- Forward -----+
//
// A program gives its Telemetry to its Conn. The Conn hands it down to the producers and
// consumers that are made with it, and to the stores whose store.Config.Conn names it:
//
//	telemetry := otel.New(otel.Config{})
//	conn, err := connection.Open(ctx, connection.Config{URLs: urls, Telemetry: telemetry})
//	publisher, err := producer.New(conn, producer.Config{})
//	worker, err := consumer.New(conn, orders, handle, consumer.Config{})
//	outbox, err := store.Open(ctx, db, store.SQLite, store.Config{Conn: conn})
//
// The depth of queues and stores, and the health of parts, have no hooks. A program asks
// for them by [Telemetry.WatchQueues], [Telemetry.WatchStore] and [Telemetry.Health].
//
// A part with Traces in its own Config has these alone. A program that wants hooks of its
// own beside those of a Telemetry names both there:
//
//	consumer.Config{Traces: []consumer.Trace{telemetry.Consumer(), mine}}
//
// The metrics follow the semantic conventions for messaging. A Telemetry is a set of
// hooks: the rest of the SDK does not depend on it.
//
// Metrics and spans go to the global providers of go.opentelemetry.io/otel, or to the
// ones in [Config]. The folder dashboards/ has a dashboard for Grafana, and alerts/ has
// rules for Prometheus. The page [Observability] has the list of the metrics and more
// examples.
//
// # One message, one trace
//
// The producer writes the W3C headers traceparent and tracestate into each message.
// Every copy of the message keeps them: in waits, in dead-letter queues, in a store
// and in the fallback. So each attempt is a span under the publish, with the number
// of the attempt, its error and the place of the message afterwards. The handler's
// ctx carries that span.
//
// # Labels
//
// No label has a value from a message, except the name of its exchange. Of the names
// of exchanges, the names of queues and the types of errors, the first 100 of each are
// labels; later ones share the label "_OTHER". Message ids, routing keys and the texts
// of errors are attributes of spans only.
//
// [Observability]: https://github.com/rehop/rehop/blob/main/docs/observability.md
package otel

import (
	"errors"
	"log/slog"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

//go:generate go run ./internal/table

// Config of a Telemetry. Its zero value is usable.
type Config struct {
	// MeterProvider gets the metrics. Defaults to the global one.
	MeterProvider metric.MeterProvider

	// TracerProvider gets the spans. Defaults to the global one. It decides about
	// sampling: a consumer follows the decision that came with the message.
	TracerProvider trace.TracerProvider

	// Propagator writes and reads the context of a message in its headers. Defaults
	// to the global one of package go.opentelemetry.io/otel, as it is when a message is
	// published or handled, and to W3C Trace Context while the program has set none.
	// With propagation.Baggage in it the headers carry baggage too.
	Propagator propagation.TextMapPropagator

	// Logger gets a record when WatchQueues or WatchStore cannot ask a queue or store,
	// once, until they succeed again. If nil, nothing is logged.
	Logger *slog.Logger
}

// Telemetry makes the hooks. One is enough for a program; it lives as long as its
// providers. Its methods may be called concurrently.
type Telemetry struct {
	tracer     tracer
	propagator propagation.TextMapPropagator // nil: the global one
	log        *slog.Logger

	producers   producers
	consumers   consumers
	connections connections
	stores      stores
	watched     watched
}

const scope = "github.com/rehop/rehop/otel"

// New returns a Telemetry. It reports instruments that its MeterProvider cannot make
// to otel.Handle of OpenTelemetry, and does without them.
func New(cfg Config) *Telemetry {
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = otel.GetMeterProvider()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	t := &Telemetry{
		propagator: cfg.Propagator,
		log:        cfg.Logger,
	}
	t.tracer.init(cfg.TracerProvider, trace.WithSchemaURL(semconv.SchemaURL))
	m := &instruments{meter: cfg.MeterProvider.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))}
	t.producers.init(m)
	t.consumers.init(m)
	t.connections.init(m)
	t.stores.init(m)
	t.watched.init(m)
	if err := errors.Join(m.errs...); err != nil {
		otel.Handle(err)
	}
	return t
}

// system is on every metric and span.
var system = semconv.MessagingSystemRabbitMQ
