package otel_test

import (
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/otel"
	"github.com/rehop/rehop/producer"
)

// The hooks of one message that is published, handled and done.
func BenchmarkHooks(b *testing.B) {
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	for name, telemetry := range map[string]*otel.Telemetry{
		"metrics":             otel.New(otel.Config{MeterProvider: meters}),
		"traces, not sampled": otel.New(otel.Config{MeterProvider: meters, TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))}),
		"traces, sampled":     otel.New(otel.Config{MeterProvider: meters, TracerProvider: sdktrace.NewTracerProvider()}),
	} {
		p, c := telemetry.Producer(), telemetry.Consumer()
		b.Run(name+"/publish", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m := producer.Message{Exchange: "shop", RoutingKey: "order.paid", ID: "order-7"}
				ctx := p.Publishing(b.Context(), &m)
				p.Published(ctx, producer.Published{Message: m, Receipt: producer.Receipt{Place: producer.PlaceQueue}, Took: time.Millisecond})
			}
		})
		b.Run(name+"/consume", func(b *testing.B) {
			b.ReportAllocs()
			m := producer.Message{Exchange: "shop", RoutingKey: "order.paid", ID: "order-7"}
			p.Publishing(b.Context(), &m)
			d := &consumer.Delivery{Queue: "orders", Exchange: "shop", RoutingKey: "order.paid", ID: "order-7", Attempt: 1, Timestamp: time.Now(), Headers: m.Headers}
			for b.Loop() {
				ctx := c.Received(b.Context(), d)
				c.Handled(ctx, consumer.Handled{Delivery: d, Took: time.Millisecond})
				c.Settled(ctx, consumer.Settled{Delivery: d, Settlement: consumer.Settlement{Disposition: consumer.DispositionDone}})
			}
		})
	}
}
