package otel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/otel"
	"github.com/rehop/rehop/otel/internal/catalog"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// orders has five attempts.
var orders = topology.WorkQueue{
	Name:     "orders",
	Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}},
	Waits:    delay.Default(),
}

var errPaper = errors.New("out of paper")

// service is a program with telemetry, and its broker.
type service struct {
	t         *testing.T
	broker    *rehoptest.Broker
	conn      *connection.Conn
	telemetry *otel.Telemetry
	reader    *sdkmetric.ManualReader
	meters    *sdkmetric.MeterProvider
	made      atomic.Int64 // instruments
	spans     *tracetest.SpanRecorder
	tracers   *sdktrace.TracerProvider
}

// newService starts a service on a broker of a version and declares specs. It ends
// with the test.
func newService(t *testing.T, version string, specs ...topology.Spec) *service {
	t.Helper()
	s := &service{t: t, reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	s.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader), sdkmetric.WithView(s.catalogued))
	s.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s.spans))
	s.telemetry = otel.New(otel.Config{MeterProvider: s.meters, TracerProvider: s.tracers})
	broker, err := rehoptest.NewBroker(rehoptest.Config{Version: version})
	check(t, err)
	t.Cleanup(func() { _ = broker.Close() })
	s.broker = broker
	s.conn = s.connect(broker, "main")
	if specs == nil {
		specs = []topology.Spec{topology.Exchange{Name: "shop"}, orders}
	}
	check(t, topology.Declare(t.Context(), s.conn, specs...))
	return s
}

var kinds = map[catalog.Kind]sdkmetric.InstrumentKind{
	catalog.Counter:   sdkmetric.InstrumentKindObservableCounter,
	catalog.Gauge:     sdkmetric.InstrumentKindObservableGauge,
	catalog.Histogram: sdkmetric.InstrumentKindHistogram,
}

// catalogued fails the test if an instrument that is made is not in the catalog. As a view that
// changes nothing it sees each instrument, also one that no test uses.
func (s *service) catalogued(i sdkmetric.Instrument) (unchanged sdkmetric.Stream, changed bool) {
	if !slices.ContainsFunc(catalog.All(), func(m catalog.Metric) bool {
		return m.Name == i.Name && m.Unit == i.Unit && m.Help == i.Description && kinds[m.Kind] == i.Kind
	}) {
		s.t.Errorf("catalog.All does not have %+v", i)
	}
	s.made.Add(1)
	return sdkmetric.Stream{}, false
}

func (s *service) connect(broker *rehoptest.Broker, name string) *connection.Conn {
	s.t.Helper()
	conn, err := connection.Open(s.t.Context(), connection.Config{
		URLs: []string{"amqp://guest:guest@broker"}, Dial: broker.Dial,
		Traces: []connection.Trace{s.telemetry.Connection(name)},
	})
	check(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (s *service) producer(cfg producer.Config) *producer.Producer {
	s.t.Helper()
	cfg.Traces = append(cfg.Traces, s.telemetry.Producer())
	p, err := producer.New(s.conn, cfg)
	check(s.t, err)
	s.t.Cleanup(func() { _ = p.Close() })
	return p
}

// publish publishes one message in a request, and returns the request's trace.
func (s *service) publish(m producer.Message) (trace string) {
	s.t.Helper()
	p := s.producer(producer.Config{})
	ctx, request := s.tracers.Tracer("test").Start(s.t.Context(), "request")
	_, err := p.Publish(ctx, m)
	check(s.t, err)
	request.End()
	return request.SpanContext().TraceID().String()
}

func order() producer.Message {
	return producer.Message{Exchange: "shop", RoutingKey: "order.paid", ID: "order-7", Body: []byte("Anna")}
}

// consume runs a consumer until stop is called, or the test ends.
func (s *service) consume(from topology.Source, cfg consumer.Config, handler consumer.Handler) (stop func()) {
	s.t.Helper()
	cfg.Traces = append(cfg.Traces, s.telemetry.Consumer())
	worker, err := consumer.New(s.conn, from, handler, cfg)
	check(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(stop)
	return stop
}

func always(err error) consumer.Handler {
	return func(context.Context, *consumer.Delivery) error { return err }
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// story returns the spans of one trace, in the order in which they began.
func (s *service) story(trace string) (spans []sdktrace.ReadOnlySpan) {
	for _, span := range s.spans.Started() {
		if span.SpanContext().TraceID().String() == trace {
			spans = append(spans, span)
		}
	}
	return spans
}

func namesOf(spans []sdktrace.ReadOnlySpan) (names []string) {
	for _, s := range spans {
		names = append(names, s.Name())
	}
	return names
}

func value(span sdktrace.ReadOnlySpan, key string) string {
	for _, a := range span.Attributes() {
		if string(a.Key) == key {
			return fmt.Sprint(a.Value.AsInterface())
		}
	}
	return ""
}

// metrics is one collection.
type metrics map[string]metricdata.Metrics

func (s *service) collect() metrics {
	s.t.Helper()
	var all metricdata.ResourceMetrics
	check(s.t, s.reader.Collect(context.Background(), &all))
	m := metrics{}
	for _, scope := range all.ScopeMetrics {
		for _, metric := range scope.Metrics {
			m[metric.Name] = metric
		}
	}
	return m
}

// points are the values of a metric by its labels; of a histogram, the counts.
func (m metrics) points(name string) map[attribute.Distinct]point {
	points := map[attribute.Distinct]point{}
	add := func(set attribute.Set, n float64) { points[set.Equivalent()] = point{set, n} }
	switch data := m[name].Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			add(p.Attributes, float64(p.Value))
		}
	case metricdata.Gauge[int64]:
		for _, p := range data.DataPoints {
			add(p.Attributes, float64(p.Value))
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			add(p.Attributes, float64(p.Count))
		}
	}
	return points
}

type point struct {
	labels attribute.Set
	n      float64
}

// sum adds up the series of a metric that have these labels: key, value, key, value.
func (m metrics) sum(name string, labels ...string) (sum float64) {
	for _, p := range m.points(name) {
		has := true
		for i := 0; i < len(labels); i += 2 {
			v, ok := p.labels.Value(attribute.Key(labels[i]))
			has = has && ok && v.AsString() == labels[i+1]
		}
		if has {
			sum += p.n
		}
	}
	return sum
}
