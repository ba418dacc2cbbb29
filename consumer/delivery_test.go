package consumer

import (
	"reflect"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/topology"
)

func TestDeliveryShowsTheProducersExchangeAndKeyOnEveryAttempt(t *testing.T) {
	from := routeOf(topology.WorkQueue{Name: "orders", Waits: delay.Fixed(time.Second, 3)})
	for _, tt := range []struct {
		rule    string
		raw     amqp.Delivery
		attempt int
		last    bool
	}{
		{"first", fresh(), 1, false},
		{"after a republish", republished(1, amqp.Table{header.Exchange: "shop", header.RoutingKey: "order.paid"}), 2, false},
		{"after two nacks", amqp.Delivery{Exchange: "orders.rehop.return", RoutingKey: "orders@2", Headers: amqp.Table{"x-death": []any{
			amqp.Table{"queue": "orders", "reason": "rejected", "count": int64(2), "exchange": "shop", "routing-keys": []any{"order.paid"}},
		}}}, 3, false},
		{"after a republish and a nack", republished(2, amqp.Table{
			header.Exchange: "shop", header.RoutingKey: "order.paid",
			"x-death": []any{amqp.Table{"queue": "orders", "reason": "rejected", "count": int64(1), "exchange": "orders.rehop.return", "routing-keys": []any{"orders@2"}}},
		}), 4, true},
		{"somebody else's history on a fresh message", amqp.Delivery{Exchange: "shop", RoutingKey: "order.paid",
			Headers: republished(7, amqp.Table{header.Exchange: "x", header.RoutingKey: "y"}).Headers}, 1, false},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			var d Delivery
			if err := d.read(&from, tt.raw); err != nil {
				t.Fatal(err)
			}
			if d.Exchange != "shop" || d.RoutingKey != "order.paid" || d.Attempt != tt.attempt || d.LastAttempt != tt.last {
				t.Errorf("exchange %q, key %q, attempt %d, last %t; want shop, order.paid, %d, %t", d.Exchange, d.RoutingKey, d.Attempt, d.LastAttempt, tt.attempt, tt.last)
			}
		})
	}
}

func TestADeliveryGivesBackWhatItWasMadeOf(t *testing.T) {
	raw := amqp.Delivery{
		Exchange: "shop", RoutingKey: "order.paid", Redelivered: true, Headers: amqp.Table{"tenant": "x"},
		MessageId: "m", Type: "order", ContentType: "application/json", ContentEncoding: "gzip",
		DeliveryMode: amqp.Persistent, CorrelationId: "c", ReplyTo: "r", AppId: "a", UserId: "guest",
		Timestamp: time.Unix(1, 0), Priority: 7, Expiration: "60000", Body: []byte("body"),
	}
	v := reflect.ValueOf(raw)
	for i := range v.NumField() { // a property that the library gains is to be thought of
		switch name := v.Type().Field(i).Name; name {
		case "Acknowledger", "ConsumerTag", "MessageCount", "DeliveryTag":
		default:
			if v.Field(i).IsZero() {
				t.Errorf("the test leaves out %s", name)
			}
		}
	}
	var d Delivery
	if err := d.read(&termsOf(routeOf(topology.WorkQueue{Name: "orders"})).route, raw); err != nil {
		t.Fatal(err)
	}
	if got := d.AMQP(); !reflect.DeepEqual(got, raw) {
		t.Errorf("AMQP() = %+v\nwant %+v", got, raw)
	}
}

func TestWhyAMessageIsInADeadLetterQueue(t *testing.T) {
	permanent := amqp.Table{header.Cause: string(rehop.CausePermanent)}
	for _, tt := range []struct {
		rule, queue string
		raw         amqp.Delivery
		cause       rehop.Cause
		attempts    int
	}{
		{"carried back when its work queue was gone", "orders.dlq", republished(2, nil), rehop.CauseExpired, 2},
		{"a letter that was retried for its work queue and carried back", "orders.dlq", republished(2, permanent), rehop.CausePermanent, 0},
		{"a copy for another attempt at the dead-letter queue itself", "orders", republished(2, nil), "", 0},
		{"published there by hand", "orders.dlq", fresh(), "", 0},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			var d Delivery
			if err := d.read(&termsOf(routeOf(topology.DeadLetterQueue{Name: tt.queue})).route, tt.raw); err != nil {
				t.Fatal(err)
			}
			if h := d.History; h.Failure.Cause != tt.cause || h.FinalAttempts != tt.attempts {
				t.Errorf("cause %q after %d attempts, want %q after %d", h.Failure.Cause, h.FinalAttempts, tt.cause, tt.attempts)
			}
		})
	}
}
