package otel_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"

	"github.com/rehop/rehop/internal/example"
)

// sqlite stands for package store/sqlite, which this module does not depend on. A test of
// the docs sets Open, and runs the example.
var sqlite struct {
	Open func(path string) (*sql.DB, error)
}

func TestMain(m *testing.M) {
	flag.Parse()
	if sqlite.Open == nil {
		must(flag.Set("test.skip", "^ExampleTelemetry_WatchStore$"))
	}
	goleak.VerifyTestMain(m)
}

// The examples connect to a broker in the process.
var connect, must = example.Connect, example.Check

// read returns the points of a gauge, once it has any.
func read(reader *metric.ManualReader, name string) (points []string) {
	deadline := time.After(time.Minute)
	for poll := time.NewTicker(time.Millisecond); ; {
		var all metricdata.ResourceMetrics
		must(reader.Collect(context.Background(), &all))
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				if gauge, ok := m.Data.(metricdata.Gauge[int64]); ok && m.Name == name {
					for _, p := range gauge.DataPoints {
						text := fmt.Sprint(p.Value)
						for _, label := range p.Attributes.ToSlice() {
							if label.Key != "messaging.system" {
								text += " " + label.Value.String()
							}
						}
						points = append(points, text)
					}
				}
			}
		}
		if len(points) > 0 {
			poll.Stop()
			slices.Sort(points)
			return points
		}
		select {
		case <-poll.C:
		case <-deadline:
			panic("no " + name)
		}
	}
}
