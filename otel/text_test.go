package otel_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/otel/internal/catalog"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// binary has a type that is not UTF-8.
type binary struct{ error }

func (binary) ErrorType() string { return "\xfftype" }

// A broker takes ids and keys that are not UTF-8 from other clients, and an error may
// quote a body. Exporters drop a batch of spans, or all metrics, for one such value.
func TestWhatIsExportedIsShortTextWhateverAMessageSays(t *testing.T) {
	s := newService(t, "4.3")
	const name = "\xffname"
	long := strings.Repeat("x", 1<<20)
	p, c, stored := s.telemetry.Producer(), s.telemetry.Consumer(), s.telemetry.Store()
	for _, exchange := range []string{name, long} {
		for _, err := range []error{errors.New(name + long), binary{errors.New(name)}} {
			m := producer.Message{Exchange: exchange, RoutingKey: name, ID: name, CorrelationID: name}
			stored.Storing(t.Context(), &m)
			ctx := p.Publishing(t.Context(), &m)
			p.Retrying(ctx, producer.Retrying{Message: m, Err: err})
			p.Published(ctx, producer.Published{Message: m, Receipt: producer.Receipt{ID: name, Err: err}, Took: time.Second})

			d := &consumer.Delivery{Queue: "orders", Exchange: exchange, RoutingKey: name, ID: name, CorrelationID: name, Attempt: 1}
			ctx = c.Received(t.Context(), d)
			c.BatchHandled(c.Batched(t.Context(), consumer.Batched{Deliveries: []*consumer.Delivery{d}}), consumer.BatchHandled{Deliveries: []*consumer.Delivery{d}, Err: err, Took: time.Second})
			c.Handled(ctx, consumer.Handled{Delivery: d, Err: consumer.Hold(err), Took: time.Second})
			c.Handled(ctx, consumer.Handled{Delivery: d, Err: err, Took: time.Second})
			c.Copied(ctx, consumer.Copied{Delivery: d, To: topology.Address{Exchange: exchange, RoutingKey: name}})
			c.Settled(ctx, consumer.Settled{Delivery: d, Settlement: consumer.Settlement{Disposition: consumer.DispositionDeadLetter}})
		}
	}

	look := func(where, text string) {
		t.Helper()
		if !utf8.ValidString(text) || len(text) > 1<<10 {
			t.Errorf("%.60s is %.40q, with %d bytes; want UTF-8 of at most 1 KiB", where, text, len(text))
		}
	}
	attributes := func(where string, all []attribute.KeyValue) {
		t.Helper()
		for _, a := range all {
			look(fmt.Sprint(where, ": ", a.Key), fmt.Sprint(a.Value.AsInterface()))
		}
	}
	m := s.collect()
	for _, metric := range catalog.All() {
		for _, p := range m.points(metric.Name) {
			attributes(metric.Name, p.labels.ToSlice())
		}
	}
	if n := len(s.spans.Ended()); n != 4*5 {
		t.Errorf("%d spans, want 20", n)
	}
	for _, span := range s.spans.Ended() {
		look("name", span.Name())
		look("status", span.Status().Description)
		attributes(span.Name(), span.Attributes())
		for _, e := range span.Events() {
			attributes(span.Name()+", event "+e.Name, e.Attributes)
		}
	}
	if n := m.sum("messaging.client.sent.messages", queueLabel, "_OTHER"); n != 4 {
		t.Errorf("%v messages with names that are no labels are counted, want 4", n)
	}
}
