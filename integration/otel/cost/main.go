// Cost measures what telemetry costs: messages per second, CPU time and allocations of
// the client, published and consumed on a real broker, without telemetry, with metrics,
// and with metrics and traces of which one in a hundred, or each, is sampled. The kinds
// take turns within one run. A ratio is the median of those within each turn. The CPU
// time is the least of all turns: other work on the machine can only add to it.
//
//	go run ./integration/withbroker -- go run ./integration/otel/cost
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/otel"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

var (
	messages = flag.Int("messages", 20_000, "in each round")
	rounds   = flag.Int("rounds", 9, "of each kind")
)

const callers = 64

func main() {
	flag.Parse()
	if err := run(context.Background()); err != nil {
		log.Fatal("cost: ", err)
	}
}

// kind is one way to run.
type kind struct {
	name      string
	producers []producer.Trace
	consumers []consumer.Trace
	telemetry *otel.Telemetry
}

func kinds() []kind {
	reader := func() *sdkmetric.MeterProvider {
		return sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(nowhere{}, sdkmetric.WithInterval(time.Second))))
	}
	metrics := otel.New(otel.Config{MeterProvider: reader()})
	traces := func(ratio float64) *otel.Telemetry {
		return otel.New(otel.Config{MeterProvider: reader(), TracerProvider: sdktrace.NewTracerProvider(
			sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(ratio))), sdktrace.WithBatcher(tracetest.NewNoopExporter()))})
	}
	sampled, all := traces(0.01), traces(1)
	with := func(name string, t *otel.Telemetry) kind {
		return kind{name, []producer.Trace{t.Producer()}, []consumer.Trace{t.Consumer()}, t}
	}
	return []kind{{name: "none"}, with("metrics", metrics), with("metrics, traces 1 in 100", sampled), with("metrics, traces all", all)}
}

// result is of one round.
type result struct {
	rate   float64
	cpu    float64 // µs per message, of this process
	allocs float64
}

func run(ctx context.Context) error {
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{os.Getenv("AMQP_URL")}})
	if err != nil {
		return err
	}
	defer conn.Close()
	queue := topology.WorkQueue{Name: "cost"}
	if err := topology.Declare(ctx, conn, queue); err != nil {
		return err
	}
	all := kinds()
	published, consumed := make([][]result, len(all)), make([][]result, len(all))
	for round := range *rounds + 1 {
		for i := range all {
			k := (i + round) % len(all)
			p, err := measure(func() error { return publish(ctx, conn, all[k]) })
			if err != nil {
				return err
			}
			c, err := measure(func() error { return consume(ctx, conn, queue, all[k]) })
			if err != nil {
				return err
			}
			if round > 0 { // the first one warms up
				published[k], consumed[k] = append(published[k], p), append(consumed[k], c)
			}
		}
	}
	load, _ := os.ReadFile("/proc/loadavg") // of Linux; elsewhere the line says nothing
	fmt.Printf("%d rounds of %d messages, %d callers and workers; load %s\n", *rounds, *messages, callers, load)
	for _, side := range []struct {
		what    string
		results [][]result
	}{{"published", published}, {"consumed", consumed}} {
		fmt.Printf("%-26s %8s %7s %12s %12s\n", side.what, "msg/s", "ratio", "CPU µs/msg", "allocs/msg")
		for k, results := range side.results {
			fmt.Printf("%-26s %8.0f %7.3f %12.2f %12.1f\n", all[k].name, median(results, rate), ratio(results, side.results[0]), least(results), median(results, allocs))
		}
	}
	if err := looks(ctx); err != nil {
		return err
	}
	return topology.DeleteAll(ctx, conn, queue)
}

func measure(work func() error) (result, error) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	used, began := cpu(), time.Now()
	err := work()
	took := time.Since(began)
	used = cpu() - used
	runtime.ReadMemStats(&after)
	n := float64(*messages)
	return result{n / took.Seconds(), float64(used.Microseconds()) / n, float64(after.Mallocs-before.Mallocs) / n}, err
}

// looks measures what WatchQueues costs: it looks at ten work queues with four waits each,
// one look after the other, on a connection of its own, which counts them.
func looks(ctx context.Context) error {
	var n atomic.Int64
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{os.Getenv("AMQP_URL")},
		Traces: []connection.Trace{{SessionEnded: func(connection.SessionEvent) { n.Add(1) }}}})
	if err != nil {
		return err
	}
	defer conn.Close()
	var specs []topology.Spec
	for i := range 10 {
		specs = append(specs, topology.WorkQueue{Name: fmt.Sprint("cost.", i), Waits: delay.Default()})
	}
	if err := topology.Declare(ctx, conn, specs...); err != nil {
		return err
	}
	watching, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	n.Store(0)
	used := cpu()
	if err := kinds()[1].telemetry.WatchQueues(watching, conn, time.Microsecond, specs...); err != nil {
		return err
	}
	used = cpu() - used
	count := max(1, n.Load())
	fmt.Printf("WatchQueues: one look at 60 queues takes %.1f ms, and %.2f ms of CPU time of the client\n",
		5000/float64(count), used.Seconds()*1000/float64(count))
	return topology.DeleteAll(ctx, conn, specs...)
}

// cpu is the time that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func rate(r result) float64   { return r.rate }
func allocs(r result) float64 { return r.allocs }

func median(results []result, of func(result) float64) float64 {
	var all []float64
	for _, r := range results {
		all = append(all, of(r))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// ratio compares the rates of turns that followed one another.
func ratio(results, none []result) float64 {
	var all []result
	for i, r := range results {
		all = append(all, result{rate: r.rate / none[i].rate})
	}
	return median(all, rate)
}

func least(results []result) float64 {
	return slices.MinFunc(results, func(a, b result) int { return cmp.Compare(a.cpu, b.cpu) }).cpu
}

func publish(ctx context.Context, conn *connection.Conn, k kind) error {
	p, err := producer.New(conn, producer.Config{Traces: k.producers})
	if err != nil {
		return err
	}
	defer p.Close()
	body := make([]byte, 1000)
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	for range callers {
		all.Go(func() {
			for range *messages / callers {
				if _, err := p.Publish(ctx, producer.Message{RoutingKey: "cost", Body: body}); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

func consume(ctx context.Context, conn *connection.Conn, queue topology.WorkQueue, k kind) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var n atomic.Int64
	worker, err := consumer.New(conn, queue, func(context.Context, *consumer.Delivery) error {
		if n.Add(1) == int64(*messages/callers*callers) {
			stop()
		}
		return nil
	}, consumer.Config{Concurrency: callers, Prefetch: 500, Traces: k.consumers})
	if err != nil {
		return err
	}
	return worker.Run(ctx)
}
