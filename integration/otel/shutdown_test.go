package otel_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/otel"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
	"github.com/rehop/rehop/topology"
)

// part is one thing that a program closes.
type part struct {
	name string
	end  func() error
}

// A program that publishes, consumes, forwards and is watched closes its parts in each
// order there is. Nothing panics, each part ends within a minute, and no goroutine stays.
func TestAProgramMayCloseItsPartsInAnyOrder(t *testing.T) {
	orders(5, func(order []int) {
		synctest.Test(t, func(t *testing.T) {
			parts, end := program(t)
			var names []string
			for _, i := range order {
				names = append(names, parts[i].name)
			}
			for _, i := range order {
				began := time.Now()
				_ = parts[i].end() // it may miss a part that has ended
				if took := time.Since(began); took > time.Minute {
					t.Errorf("%s: %s took %v", strings.Join(names, ", "), parts[i].name, took)
				}
				time.Sleep(3 * time.Second) // what is left goes on, and is looked at
			}
			end()
		})
	})
}

// orders calls f with each order of n numbers.
func orders(n int, f func([]int)) {
	var next func(order, left []int)
	next = func(order, left []int) {
		if len(left) == 0 {
			f(order)
			return
		}
		for i, v := range left {
			rest := append(append([]int(nil), left[:i]...), left[i+1:]...)
			next(append(order[:len(order):len(order)], v), rest)
		}
	}
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	next(nil, all)
}

// hookPanics fails a test for each hook that panicked: the SDK logs such a panic.
type hookPanics struct {
	slog.Handler
	t *testing.T
}

func (h hookPanics) Enabled(context.Context, slog.Level) bool { return true }
func (h hookPanics) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h hookPanics) WithGroup(string) slog.Handler            { return h }
func (h hookPanics) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "panicked") {
		h.t.Error(r.Message)
	}
	return nil
}

// program starts everything that has telemetry.
func program(t *testing.T) (parts []part, end func()) {
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(nowhere{}, sdkmetric.WithInterval(time.Second))))
	tracers := sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter()))
	telemetry := otel.New(otel.Config{MeterProvider: meters, TracerProvider: tracers})
	log := slog.New(hookPanics{t: t})
	broker, err := rehoptest.NewBroker(rehoptest.Config{Version: "4.3"})
	check(t, err)
	conn, err := connection.Open(t.Context(), connection.Config{
		URLs: []string{"amqp://guest:guest@broker"}, Dial: broker.Dial, Logger: log, Traces: []connection.Trace{telemetry.Connection("main")}})
	check(t, err)
	work := topology.WorkQueue{Name: "orders", Waits: []time.Duration{time.Second}}
	check(t, topology.Declare(t.Context(), conn, work))
	db, err := sqlite.Open(filepath.Join(t.TempDir(), "outbox.db"))
	check(t, err)
	outbox, err := store.Open(t.Context(), db, store.SQLite, store.Config{Logger: log, Traces: []store.Trace{telemetry.Store()}})
	check(t, err)
	traces := []producer.Trace{telemetry.Producer()}
	publisher, err := producer.New(conn, producer.Config{Fallback: []producer.Sink{outbox}, Logger: log, Traces: traces})
	check(t, err)
	worker, err := consumer.New(conn, work, func(_ context.Context, d *consumer.Delivery) error {
		if d.Attempt == 1 {
			return errPaper
		}
		return consumer.DeadLetter(errPaper)
	}, consumer.Config{Concurrency: 4, Logger: log, Traces: []consumer.Trace{telemetry.Consumer()}})
	check(t, err)
	telemetry.Health("orders", worker.Health)
	telemetry.Health("main", conn.Health)

	all, endAll := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for all.Err() == nil { // an error is the end of its part, and no reason to stop
			_, _ = publisher.Publish(all, producer.Message{RoutingKey: "orders"})
			_, _ = outbox.PutAt(all, time.Now(), producer.Message{RoutingKey: "orders"})
			pause.For(all, 200*time.Millisecond)
		}
	})
	running.Go(func() { _ = telemetry.WatchQueues(all, conn, time.Second, work) })
	running.Go(func() { telemetry.WatchStore(all, outbox, time.Second) })
	service := func(run func(ctx context.Context) error) (stop func() error) {
		ctx, cancel := context.WithCancel(all)
		ended := make(chan error, 1)
		go func() { ended <- run(ctx) }()
		return func() error {
			cancel()
			return <-ended
		}
	}
	stopWorker := service(worker.Run)
	stopForward := service(func(ctx context.Context) error {
		forwarder, err := outbox.NewForwarder(publisher, store.ForwardConfig{Traces: []store.ForwardTrace{telemetry.Forward()}})
		if err != nil {
			return err
		}
		return forwarder.Run(ctx)
	})
	time.Sleep(3 * time.Second)
	return []part{
			{"providers", func() error {
				return errors.Join(meters.Shutdown(context.Background()), tracers.Shutdown(context.Background()))
			}},
			{"consumer", stopWorker},
			{"producer", publisher.Close},
			{"store", func() error { return errors.Join(db.Close(), stopForward()) }},
			{"conn", conn.Close},
		}, func() {
			endAll()
			running.Wait()
			check(t, broker.Close())
		}
}
