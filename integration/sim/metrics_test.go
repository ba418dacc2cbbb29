package sim

import (
	"context"
	"sync/atomic"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/otel"
	"github.com/rehop/rehop/producer"
)

// metrics are on in every other scenario. They must add up at every moment, and agree in the
// end with what has happened.
type metrics struct {
	*otel.Telemetry
	reader *sdkmetric.ManualReader

	receipts, runs atomic.Int64
	looks          int
}

// newMetrics returns nil where nothing is measured: no hook is set then.
func newMetrics(measured bool) *metrics {
	if !measured {
		return nil
	}
	m := &metrics{reader: sdkmetric.NewManualReader()}
	m.Telemetry = otel.New(otel.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(m.reader))})
	return m
}

// producers returns the hooks of a producer, and some that count what they count.
func (m *metrics) producers() []producer.Trace {
	if m == nil {
		return nil
	}
	return []producer.Trace{m.Producer(), {Published: func(context.Context, producer.Published) { m.receipts.Add(1) }}}
}

// consumers returns the hooks of a consumer likewise.
func (m *metrics) consumers() []consumer.Trace {
	if m == nil {
		return nil
	}
	return []consumer.Trace{m.Consumer(), {Handled: func(context.Context, consumer.Handled) { m.runs.Add(1) }}}
}

// connections returns the hooks of a Conn.
func (m *metrics) connections(name string) []connection.Trace {
	if m == nil {
		return nil
	}
	return []connection.Trace{m.Connection(name)}
}

// watch looks every minute, until ctx ends.
func (w *trial) watch(ctx context.Context) {
	for w.measured && sleep(ctx, time.Minute) {
		w.look()
	}
}

// look notes where the numbers of a moment do not add up.
func (w *trial) look() map[string]int64 {
	w.metrics.looks++
	n := w.metrics.collect()
	received, settled, hand := n["messaging.client.consumed.messages"], n["rehop.consumer.settled"], n["rehop.consumer.in_hand"]
	if received != settled+hand {
		w.violate("the metrics have %d received, %d settled and %d in hand", received, settled, hand)
	}
	for _, gauge := range []string{"rehop.consumer.in_hand", "rehop.consumer.held", "rehop.consumer.copies.unconfirmed", "rehop.producer.unconfirmed", "rehop.connection.sessions", "rehop.consumer.prefetch"} {
		if n[gauge] < 0 {
			w.violate("the metric %s is %d", gauge, n[gauge])
		}
	}
	return n
}

// judgeMetrics looks when all producers, consumers and Conns have ended.
func (w *trial) judgeMetrics() {
	if !w.measured {
		return
	}
	n := w.look()
	for _, row := range []struct {
		metric string
		want   int64
	}{
		{"messaging.client.sent.messages", w.metrics.receipts.Load()},
		{"messaging.client.operation.duration", w.metrics.receipts.Load()},
		{"messaging.process.duration", w.metrics.runs.Load()},
		{"rehop.producer.unconfirmed", 0},
		{"rehop.consumer.in_hand", 0},
		{"rehop.consumer.held", 0},
		{"rehop.consumer.copies.unconfirmed", 0},
		{"rehop.consumer.prefetch", 0},
		{"rehop.connection.sessions", 0},
	} {
		if n[row.metric] != row.want {
			w.violate("the metric %s is %d in the end, want %d", row.metric, n[row.metric], row.want)
		}
	}
}

// collect returns the sum of all series of each metric; of a histogram, the count.
func (m *metrics) collect() map[string]int64 {
	var all metricdata.ResourceMetrics
	if err := m.reader.Collect(context.Background(), &all); err != nil {
		panic(err) // it is not shut down
	}
	sums := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, metric := range scope.Metrics {
			switch data := metric.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					sums[metric.Name] += p.Value
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					sums[metric.Name] += p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					sums[metric.Name] += int64(p.Count)
				}
			}
		}
	}
	return sums
}
