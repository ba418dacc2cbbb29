package examples

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelapi "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/otel"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

func TestTelemetry(t *testing.T) {
	registry := client.NewRegistry() // the default one has one exporter for the life of the process
	client.DefaultRegisterer, client.DefaultGatherer = registry, registry
	mux := http.NewServeMux()
	// begin metrics
	exporter, err := prometheus.New() // go.opentelemetry.io/otel/exporters/prometheus
	check(err)
	otelapi.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(exporter))) // go.opentelemetry.io/otel/sdk/metric
	mux.Handle("/metrics", promhttp.Handler())                                     // github.com/prometheus/client_golang/prometheus/promhttp
	// end metrics
	inShop(t, "", func(s *shop) {
		ctx := s.ctx
		s.declare(orders)
		handle := func(context.Context, *consumer.Delivery) error { return nil }
		// begin telemetry
		telemetry := otel.New(otel.Config{}) // github.com/rehop/rehop/otel

		conn, err := connection.Open(ctx, connection.Config{
			Dial:      s.broker.Dial, // hidden
			URLs:      []string{os.Getenv("AMQP_URL")},
			Name:      "shop",
			Telemetry: telemetry, // for the Conn and everything that uses it
		})
		check(err)
		publisher, err := producer.New(conn, producer.Config{})
		check(err)
		worker, err := consumer.New(conn, orders, handle, consumer.Config{})
		// end telemetry
		check(err)
		defer conn.Close()
		defer publisher.Close()
		db := s.database()
		plain := s.producer()
		// begin watch
		telemetry.Health("orders", worker.Health)
		go telemetry.WatchQueues(ctx, conn, 0, orders) // depth of work queues, waits and dead-letter queues

		outbox, err := store.Open(ctx, db, store.SQLite, store.Config{Conn: conn})
		check(err)
		go telemetry.WatchStore(ctx, outbox, 0) // messages by state, age of the oldest
		forwarder, err := outbox.NewForwarder(plain, store.ForwardConfig{})
		check(err)
		go forwarder.Run(ctx)
		// end watch
		_, err = publisher.Publish(ctx, producer.Message{Exchange: "shop", RoutingKey: "order.paid"})
		check(err)
		stop := s.run(worker)
		defer stop()
		after(time.Minute)
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		for _, name := range []string{"messaging_client_sent_messages_total", "rehop_queue_messages", "rehop_store_letters", "rehop_health"} {
			if !strings.Contains(answer.Body.String(), name+"{") {
				s.Errorf("there is no %s", name)
			}
		}
	})
}

func TestSpans(t *testing.T) {
	// begin spans
	exporter, err := stdouttrace.New() // go.opentelemetry.io/otel/exporters/stdout/stdouttrace; otlptracehttp.New(ctx) sends them to a collector
	check(err)
	spans := trace.NewTracerProvider(trace.WithBatcher(exporter)) // go.opentelemetry.io/otel/sdk/trace
	defer spans.Shutdown(context.Background())
	otelapi.SetTracerProvider(spans) // otelapi "go.opentelemetry.io/otel": rehop's package has the same name
	// end spans
	_, span := otelapi.Tracer("shop").Start(t.Context(), "order")
	span.End()
	check(spans.ForceFlush(t.Context()))
}
