package consumer

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer/internal/flight"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// Other clients send text as bytes.
func TestTheOrderKeyIsOneForAllReaders(t *testing.T) {
	from := routeOf(topology.WorkQueue{Name: "orders"})
	for rule, c := range map[string]struct {
		value any
		want  string
	}{
		"text":         {"4711", "4711"},
		"bytes":        {[]byte("4711"), "4711"},
		"as long":      {strings.Repeat("k", 255), strings.Repeat("k", 255)},
		"too long":     {strings.Repeat("k", 256), ""},
		"too long, []": {[]byte(strings.Repeat("k", 256)), ""},
		"a number":     {int64(4711), ""},
		"a time":       {time.Unix(4711, 0), ""},
		"a table":      {amqp.Table{"a": "b"}, ""},
		"nothing":      {nil, ""},
	} {
		raw := amqp.Delivery{RoutingKey: "orders", Headers: amqp.Table{header.OrderKey: c.value}}
		var d Delivery
		_ = d.read(&from, raw) // says what is malformed
		for reader, got := range map[string]string{
			"Delivery":              d.OrderKey,
			"KeyLimit":              (&run{}).keyOf(&flight.Message{Raw: raw}),
			"producer.FromDelivery": producer.FromDelivery(raw).OrderKey,
		} {
			if got != c.want {
				t.Errorf("%s: %s reads %q, want %q", rule, reader, got, c.want)
			}
		}
	}
}
