package header

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/header/wiretest"
)

func TestSizeIsWhatAmqp091Writes(t *testing.T) {
	every := amqp.Table{
		"nil": nil, "bool": true, "byte": byte(1), "int8": int8(1), "int16": int16(1), "int32": int32(1),
		"int64": int64(1), "int": 1, "uint16": uint16(1), "uint32": uint32(1), "float32": float32(1),
		"float64": 1.0, "string": "äöü", "empty": "", "bytes": []byte{1, 2, 3}, "decimal": amqp.Decimal{Scale: 2, Value: 314},
		"time": time.Unix(1e9, 0), "table": amqp.Table{"a": amqp.Table{"b": "c"}}, "array": []any{1, "x", []any{}, amqp.Table{}},
		"no table": amqp.Table(nil), "no array": []any(nil), "no bytes": []byte(nil),
	}
	tests := []struct {
		rule string
		p    amqp.Publishing
	}{
		{"nothing set", amqp.Publishing{}},
		{"the body does not count", amqp.Publishing{Body: []byte("body")}},
		{"an empty header table is not sent", amqp.Publishing{Headers: amqp.Table{}}},
		{"every type of value", amqp.Publishing{Headers: every}},
		{"every property", amqp.Publishing{
			Headers: amqp.Table{"k": "v"}, ContentType: "text/plain", ContentEncoding: "gzip", DeliveryMode: 2, Priority: 4,
			CorrelationId: "c", ReplyTo: "r", Expiration: "1000", MessageId: "m", Timestamp: time.Unix(1e9, 0),
			Type: "t", UserId: "u", AppId: "a",
		}},
		{"a property of 255 bytes", amqp.Publishing{MessageId: strings.Repeat("m", 255)}},
		{"a large header", amqp.Publishing{Headers: amqp.Table{"k": strings.Repeat("v", 200_000)}}},
		{"priority 0 is not sent", amqp.Publishing{Priority: 0, DeliveryMode: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			_, want := wiretest.RoundTrip(t, tt.p)
			if got := Size(tt.p); got != want {
				t.Errorf("Size = %d, amqp091-go wrote %d", got, want)
			}
		})
	}
}
