package letter

import (
	"reflect"
	"strconv"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// Whatever a queue has delivered can be published once more, with what FromDelivery says
// of it, and a store gives it back as it was.
func FuzzWhatCameFromAQueueCanGoBack(f *testing.F) {
	f.Add(int64(1_700_000_000_000), byte(200), "somebody", "60000", "key\xff", "exchange\xfe", int64(3))
	f.Add(int64(-1<<63), byte(10), "\xff", "-1", "", "", int64(-1))
	f.Add(int64(0), byte(0), "", "99999999999999999999", "\x00", "shop", int64(1<<40))
	f.Fuzz(func(t *testing.T, seconds int64, priority byte, text, expiration, key, exchange string, number int64) {
		for _, s := range []*string{&text, &expiration, &key, &exchange} { // as a frame has them
			*s = (*s)[:min(len(*s), header.MaxName)]
		}
		for _, value := range []func(string) any{func(s string) any { return s }, func(s string) any { return []byte(s) }} {
			d := amqp.Delivery{
				Exchange: "orders.dlx", RoutingKey: "orders", MessageId: text, Type: text, AppId: text, UserId: text, CorrelationId: text, ReplyTo: text,
				ContentType: text, ContentEncoding: text, Timestamp: time.Unix(seconds, 0), Priority: priority, Expiration: expiration,
				Headers: amqp.Table{
					"own": value(text), header.OrderKey: value(key), header.Exchange: value(exchange), header.RoutingKey: value(key), header.Queue: value("orders"),
					header.Cause: value("exhausted"), header.UserID: value(text), header.Expiration: value(expiration), header.Replays: number,
					header.Redrives: number, header.FailedAt: time.Unix(seconds, 0), header.Priority: number,
				},
			}
			m := producer.FromDelivery(d)
			m.Origin = topology.Address{Exchange: m.Exchange, RoutingKey: m.RoutingKey} // sent back to its queue
			m.Exchange, m.RoutingKey = "", "orders"
			if err := m.Validate(); err != nil {
				t.Fatalf("%+v: %v", m, err)
			}
			var back producer.Message
			properties, err := EncodeTable(Properties(m))
			if err != nil {
				t.Fatal(err)
			}
			table, err := DecodeTable(properties)
			if err != nil {
				t.Fatal(err)
			}
			if err := SetProperties(&back, table); err != nil {
				t.Fatal(err)
			}
			back.ID, back.RoutingKey = m.ID, m.RoutingKey
			if back.Headers, err = roundTrip(m.Headers); err != nil {
				t.Fatal(err)
			}
			m.Timestamp, back.Timestamp = m.Timestamp.UTC(), back.Timestamp.UTC()
			if !reflect.DeepEqual(back, m) {
				t.Fatalf("%s: a store gives back\n%+v\nof\n%+v", strconv.Quote(properties), back, m)
			}
		}
	})
}

func roundTrip(t amqp.Table) (amqp.Table, error) {
	text, err := EncodeTable(t)
	if err != nil {
		return nil, err
	}
	return DecodeTable(text)
}
