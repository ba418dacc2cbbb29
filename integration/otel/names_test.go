package otel_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/otel"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/topology"
)

// The table of the docs says how Prometheus names each metric and label. Every metric is
// recorded here once through the real exporter.
func TestPrometheusNamesAreThoseOfTheTable(t *testing.T) {
	registry := prom.NewRegistry()
	exporter, err := prometheus.New(prometheus.WithRegisterer(registry))
	check(t, err)
	telemetry := otel.New(otel.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))})
	ctx := t.Context()

	p, m := telemetry.Producer(), producer.Message{Exchange: "shop"}
	m2 := m
	p.Publishing(ctx, &m2)
	p.Publishing(ctx, &m)
	p.Retrying(ctx, producer.Retrying{Message: m, Err: errPaper})
	p.Published(ctx, producer.Published{Message: m, Receipt: producer.Receipt{Place: producer.PlaceFallback, Cause: "blocked"}, Took: time.Second})
	c, d := telemetry.Consumer(), &consumer.Delivery{Queue: "orders", Attempt: 1, Timestamp: time.Now()}
	c.Fetching(consumer.Fetching{Queue: "orders", Prefetch: 1})
	ctx = c.Received(ctx, d)
	c.Handled(ctx, consumer.Handled{Delivery: d, Err: consumer.Hold(errPaper), Took: time.Second})
	c.Copied(ctx, consumer.Copied{Delivery: d, To: topology.Address{RoutingKey: "orders.wait.1"}})
	c.Confirmed(ctx, consumer.Copied{Delivery: d, To: topology.Address{RoutingKey: "orders.wait.1"}})
	c.Settled(ctx, consumer.Settled{Delivery: d, Settlement: consumer.Settlement{Disposition: consumer.DispositionDeadLetter, Cause: "exhausted"}})
	ctx = c.Received(t.Context(), d)
	c.Handled(ctx, consumer.Handled{Delivery: d, Took: time.Second})
	c.Settled(ctx, consumer.Settled{Delivery: d, Settlement: consumer.Settlement{Disposition: consumer.DispositionDone}})
	c.Carried(consumer.Carried{Queue: "orders.wait.1"})
	conn := telemetry.Connection("main")
	conn.DialAttempt(connection.DialAttempt{Role: connection.Publish, Err: errPaper})
	conn.SessionOpened(connection.SessionEvent{Role: connection.Publish})
	conn.State(connection.State{Role: connection.Publish, Status: connection.Up})
	telemetry.Forward().Failed(t.Context(), store.ForwardFailure{Err: errPaper, State: store.Ready})
	defer telemetry.Health("orders", func() error { return nil })()

	families, err := registry.Gather()
	check(t, err)
	got := map[string]map[string]bool{}
	for _, f := range families {
		labels := map[string]bool{}
		for _, series := range f.Metric {
			for _, l := range series.Label {
				labels[l.GetName()] = true
			}
		}
		got[f.GetName()] = labels
	}
	docs, err := os.ReadFile("../../docs/metrics.md")
	check(t, err)
	rows := regexp.MustCompile("(?m)^\\| `[a-z_.]+` \\(\\w+\\) \\| `(\\w+)` \\| ([^|]*) \\|").FindAllStringSubmatch(string(docs), -1)
	if len(rows) < 20 {
		t.Fatalf("the table has %d rows", len(rows))
	}
	for _, row := range rows {
		name := row[1]
		if strings.HasPrefix(name, "rehop_queue_") || name == "rehop_store_letters" || name == "rehop_store_oldest_seconds" {
			continue // of a broker and a database, see TestWatch
		}
		if got[name] == nil {
			t.Errorf("%s is in the table and not in Prometheus", name)
			continue
		}
		for _, label := range strings.Split(strings.Trim(row[2], "` "), "`, `") {
			if label = strings.ReplaceAll(label, ".", "_"); label != "" && !got[name][label] {
				t.Errorf("%s has no label %s: %v", name, label, got[name])
			}
		}
	}
}
