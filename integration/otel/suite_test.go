// Package otel puts the telemetry to the proof on real brokers: a message is one trace
// on every way that it can take, the numbers agree with an account of every message,
// and Prometheus shows what the dashboard and the alerts ask for.
package otel_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/otel"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
	"github.com/rehop/rehop/topology"
)

// brokers are started when first asked for.
var (
	versions []string
	brokers  = map[string]func() (*broker.Broker, error){}
	started  []*broker.Broker
	mu       sync.Mutex
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil { // the columns of a test
		panic(err)
	}
	var err error
	if versions, err = broker.Available(context.Background()); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if len(versions) == 0 {
		versions = []string{""}
	}
	for _, v := range versions {
		brokers[v] = sync.OnceValues(func() (*broker.Broker, error) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			b, err := broker.Start(ctx, broker.Options{Version: v})
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				started = append(started, b)
			}
			return b, err
		})
	}
	code := m.Run()
	for _, b := range started {
		if err := b.Close(context.Background()); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	os.Exit(code)
}

// onEachInTurn runs a test for each version and type of queue, one after the other, as one
// that keeps the processor busy needs.
func onEachInTurn(t *testing.T, test func(t *testing.T, s *service)) {
	for _, version := range versions {
		for _, kind := range []topology.QueueType{topology.Quorum, topology.Classic} {
			t.Run(version+" "+string(kind), func(t *testing.T) { test(t, newService(t, version, kind)) })
		}
	}
}

// onEach is onEachInTurn side by side, for tests that wait most of their time.
func onEach(t *testing.T, test func(t *testing.T, s *service)) {
	for _, version := range versions {
		for _, kind := range []topology.QueueType{topology.Quorum, topology.Classic} {
			t.Run(version+" "+string(kind), func(t *testing.T) {
				t.Parallel()
				test(t, newService(t, version, kind))
			})
		}
	}
}

// service is a program with telemetry. Its queues and exchanges have a name of its own
// in front.
type service struct {
	t         *testing.T
	broker    *broker.Broker
	name      string
	orders    topology.WorkQueue
	conn      *connection.Conn
	telemetry *otel.Telemetry
	reader    *sdkmetric.ManualReader
	spans     *tracetest.SpanRecorder
	tracers   *sdktrace.TracerProvider
}

func newService(t *testing.T, version string, kind topology.QueueType) *service {
	t.Helper()
	b, err := brokers[version]()
	check(t, err)
	s := &service{t: t, broker: b, reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	s.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s.spans))
	s.telemetry = otel.New(otel.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader)), TracerProvider: s.tracers})
	s.name = strings.NewReplacer("/", ".", " ", ".").Replace(strings.TrimPrefix(t.Name(), "Test"))
	s.orders = topology.WorkQueue{
		Name: s.name, Type: kind,
		Bindings: []topology.Binding{{Exchange: s.name, RoutingKey: "order.#"}},
		Waits:    []time.Duration{time.Second, time.Second, time.Second, time.Second},
	}
	s.conn = s.connect(b.AMQPURL())
	return s
}

func (s *service) connect(url string) *connection.Conn {
	s.t.Helper()
	conn, err := connection.Open(s.t.Context(), connection.Config{URLs: []string{url}, Lazy: true, Traces: []connection.Trace{s.telemetry.Connection("main")}})
	check(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (s *service) declare(specs ...topology.Spec) {
	s.t.Helper()
	check(s.t, topology.Declare(s.t.Context(), s.conn, append([]topology.Spec{topology.Exchange{Name: s.name}, s.orders}, specs...)...))
	s.t.Cleanup(func() {
		conn, err := connection.Open(context.Background(), connection.Config{URLs: []string{s.broker.AMQPURL()}})
		check(s.t, err)
		defer conn.Close()
		check(s.t, topology.DeleteAll(context.Background(), conn, append([]topology.Spec{s.orders, topology.Exchange{Name: s.name}}, specs...)...))
	})
}

func (s *service) producer(conn *connection.Conn, cfg producer.Config) *producer.Producer {
	s.t.Helper()
	cfg.Traces = append(cfg.Traces, s.telemetry.Producer())
	p, err := producer.New(conn, cfg)
	check(s.t, err)
	s.t.Cleanup(func() { _ = p.Close() })
	return p
}

// request publishes one message within a request and returns the trace.
func (s *service) request(p *producer.Producer, m producer.Message) (trace string) {
	s.t.Helper()
	ctx, request := s.tracers.Tracer("test").Start(s.t.Context(), "request")
	defer request.End()
	_, err := p.Publish(ctx, m)
	check(s.t, err)
	return request.SpanContext().TraceID().String()
}

func (s *service) order() producer.Message {
	return producer.Message{Exchange: s.name, RoutingKey: "order.paid", ID: "order-7", Body: []byte("Anna")}
}

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

func (s *service) store() (*store.Store, *sql.DB) {
	s.t.Helper()
	db, err := sqlite.Open(filepath.Join(s.t.TempDir(), "letters.db"))
	check(s.t, err)
	s.t.Cleanup(func() { _ = db.Close() })
	letters, err := store.Open(s.t.Context(), db, store.SQLite, store.Config{Traces: []store.Trace{s.telemetry.Store()}})
	check(s.t, err)
	return letters, db
}

func (s *service) forward(letters *store.Store, p *producer.Producer) (stop func()) {
	// The span of a program that goes on for days is no parent of a message.
	ctx, program := s.tracers.Tracer("test").Start(context.Background(), "program")
	ctx, cancel := context.WithCancel(ctx)
	forwarder, err := letters.NewForwarder(p, store.ForwardConfig{Traces: []store.ForwardTrace{s.telemetry.Forward()}})
	check(s.t, err)
	done := make(chan error, 1)
	go func() {
		defer program.End()
		done <- forwarder.Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(stop)
	return stop
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func always(err error) consumer.Handler {
	return func(context.Context, *consumer.Delivery) error { return err }
}

// story returns the spans of one trace in the order in which they began, without the
// name of the service.
func (s *service) story(trace string) (spans []sdktrace.ReadOnlySpan) {
	for _, span := range s.spans.Started() {
		if span.SpanContext().TraceID().String() == trace {
			spans = append(spans, span)
		}
	}
	// A settlement is known, and its span made, after the letter may have been read.
	slices.SortStableFunc(spans, func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	return spans
}

func (s *service) names(spans []sdktrace.ReadOnlySpan) (names []string) {
	for _, span := range spans {
		names = append(names, strings.TrimSuffix(strings.Replace(span.Name(), s.name, "orders", 1), " "))
	}
	return names
}

// wants waits until a trace has these spans.
func (s *service) wants(trace string, want ...string) []sdktrace.ReadOnlySpan {
	s.t.Helper()
	all := func() string { return strings.Join(s.names(s.story(trace)), ", ") }
	deadline := time.Now().Add(time.Minute)
	poll.Until(s.t, 2*time.Minute, "the spans of the trace", func() bool {
		return all() == strings.Join(want, ", ") || time.Now().After(deadline)
	})
	if got := all(); got != strings.Join(want, ", ") {
		s.t.Errorf("the spans are\n     %s\nwant %s", got, strings.Join(want, ", "))
	}
	return s.story(trace)
}

func value(span sdktrace.ReadOnlySpan, key string) string {
	for _, a := range span.Attributes() {
		if string(a.Key) == key {
			return fmt.Sprint(a.Value.AsInterface())
		}
	}
	return ""
}

// sum adds up the series of a metric that have these labels.
func (s *service) sum(all metricdata.ResourceMetrics, name string, labels ...string) (sum int64) {
	add := func(set attribute.Set, n int64) {
		for i := 0; i < len(labels); i += 2 {
			if v, ok := set.Value(attribute.Key(labels[i])); !ok || v.AsString() != labels[i+1] {
				return
			}
		}
		sum += n
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, int64(p.Count))
				}
			}
		}
	}
	return sum
}

func (s *service) collect() (all metricdata.ResourceMetrics) {
	s.t.Helper()
	check(s.t, s.reader.Collect(context.Background(), &all))
	return all
}
