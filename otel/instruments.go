package otel

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/rehop/rehop/otel/internal/catalog"
)

// instruments makes the instruments of the catalog.
type instruments struct {
	meter metric.Meter
	errs  []error
}

func (i *instruments) note(err error) {
	if err != nil {
		i.errs = append(i.errs, err)
	}
}

func (i *instruments) histogram(m catalog.Metric) metric.Float64Histogram {
	h, err := i.meter.Float64Histogram(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Help), metric.WithExplicitBucketBoundaries(m.Buckets...))
	i.note(err)
	return h
}

// observe makes instruments that are read when metrics are collected. One call of
// read sees all of them under one lock, so what must add up does.
func (i *instruments) observe(read func(o metric.Observer), families ...*family) {
	var all []metric.Observable
	for _, f := range families {
		var err error
		if f.Kind == catalog.Counter {
			f.instrument, err = i.meter.Int64ObservableCounter(f.Name, metric.WithUnit(f.Unit), metric.WithDescription(f.Help))
		} else {
			f.instrument, err = i.meter.Int64ObservableGauge(f.Name, metric.WithUnit(f.Unit), metric.WithDescription(f.Help))
		}
		i.note(err)
		all = append(all, f.instrument)
	}
	_, err := i.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		read(o)
		return nil
	}, all...)
	i.note(err)
}

// values are those of a metric's labels, in the order of the catalog.
type values [4]string

func valuesOf(v []string) (key values) {
	copy(key[:], v)
	return key
}

// set returns the attributes of a series as an option.
func (v values) set(m catalog.Metric) metric.MeasurementOption {
	attributes := []attribute.KeyValue{system}
	for i, label := range m.Labels {
		if v[i] != "" {
			attributes = append(attributes, attribute.String(label, v[i]))
		}
	}
	return metric.WithAttributeSet(attribute.NewSet(attributes...))
}

// maxSeries is how many series a metric has before new ones have no error type of their
// own. OpenTelemetry keeps 2,000 by default and puts all others into one, which are
// different ones in each collection.
const maxSeries = 1000

// untyped returns values with other for the type of the error.
func (v values) untyped(m catalog.Metric) values {
	if i := slices.Index(m.Labels, catalog.ErrorType); i >= 0 && v[i] != "" {
		v[i] = other
	}
	return v
}

// series is a number with its labels.
type series struct {
	n       int64
	observe []metric.ObserveOption
}

// add changes the number beside others that do. The lock of the owner is held for reading,
// so that one look at several series sees what adds up.
func (s *series) add(n int64) { atomic.AddInt64(&s.n, n) }

// family is the series of one metric. Its owner has the lock.
type family struct {
	catalog.Metric
	instrument metric.Int64Observable
	series     map[values]*series
}

func familyOf(m catalog.Metric) family { return family{Metric: m, series: map[values]*series{}} }

// at returns a series, which it makes if it is new. It stays the same one.
func (f *family) at(v ...string) *series {
	key := valuesOf(v)
	s := f.series[key]
	if s == nil && len(f.series) >= maxSeries {
		key = key.untyped(f.Metric)
		s = f.series[key]
	}
	if s == nil {
		s = &series{observe: []metric.ObserveOption{key.set(f.Metric)}}
		f.series[key] = s
	}
	return s
}

func (f *family) read(o metric.Observer) {
	for _, s := range f.series {
		o.ObserveInt64(f.instrument, s.n, s.observe...)
	}
}

// distribution is a histogram. The cost of its labels is paid once for each set of
// them.
type distribution struct {
	catalog.Metric
	histogram metric.Float64Histogram
	known     sync.Map     // values -> labels
	asked     atomic.Int64 // for values that were not known
}

// labels are those of one series of a distribution.
type labels []metric.RecordOption

func (d *distribution) init(i *instruments, m catalog.Metric) {
	d.Metric, d.histogram = m, i.histogram(m)
}

// of returns labels, for a caller that keeps them.
func (d *distribution) of(v ...string) labels { return labels{valuesOf(v).set(d.Metric)} }

// record adds a value to a series.
func (d *distribution) record(ctx context.Context, value float64, v ...string) {
	key := valuesOf(v)
	l, ok := d.known.Load(key)
	if !ok && d.asked.Add(1) > maxSeries {
		key = key.untyped(d.Metric)
		l, ok = d.known.Load(key)
	}
	if !ok {
		l, _ = d.known.LoadOrStore(key, labels{key.set(d.Metric)})
	}
	d.histogram.Record(ctx, value, l.(labels)...)
}
