package main

import (
	"context"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// nowhere is an exporter that only collects.
type nowhere struct{}

func (nowhere) Temporality(k metric.InstrumentKind) metricdata.Temporality {
	return metric.DefaultTemporalitySelector(k)
}

func (nowhere) Aggregation(k metric.InstrumentKind) metric.Aggregation {
	return metric.DefaultAggregationSelector(k)
}

func (nowhere) Export(context.Context, *metricdata.ResourceMetrics) error { return nil }
func (nowhere) ForceFlush(context.Context) error                          { return nil }
func (nowhere) Shutdown(context.Context) error                            { return nil }
