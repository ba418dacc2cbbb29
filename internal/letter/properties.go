package letter

import (
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/producer"
)

// Properties are what a message has beside its id, address, headers and body.
func Properties(m producer.Message) amqp.Table {
	t := amqp.Table{}
	for name, s := range strs(&m) {
		if *s != "" {
			t[name] = *s
		}
	}
	if !m.Timestamp.IsZero() {
		t["timestamp"] = m.Timestamp
	}
	if m.Priority != 0 {
		t["priority"] = int64(m.Priority)
	}
	if m.Expiration != 0 {
		t["expiration_ms"] = m.Expiration.Milliseconds()
	}
	if m.Delay != 0 {
		t["delay_ns"] = m.Delay.Nanoseconds()
	}
	if m.Replays != 0 {
		t["replays"] = int64(m.Replays)
	}
	return t
}

func strs(m *producer.Message) map[string]*string {
	return map[string]*string{
		"content_type": &m.ContentType, "content_encoding": &m.ContentEncoding, "type": &m.Type,
		"correlation_id": &m.CorrelationID, "reply_to": &m.ReplyTo, "app_id": &m.AppID, "user_id": &m.UserID,
		"order_key": &m.OrderKey, "origin_exchange": &m.Origin.Exchange, "origin_routing_key": &m.Origin.RoutingKey,
	}
}

// SetProperties is the inverse of Properties.
func SetProperties(m *producer.Message, t amqp.Table) error {
	if len(t) == 0 {
		return nil
	}
	var errs []error
	known := strs(m)
	for name, v := range t {
		number, isNumber := v.(int64)
		at, isTime := v.(time.Time)
		text, isString := v.(string)
		target := known[name]
		switch {
		case isString && target != nil:
			*target = text
		case isTime && name == "timestamp":
			m.Timestamp = at
		case isNumber && name == "priority":
			m.Priority = uint8(number)
		case isNumber && name == "expiration_ms":
			m.Expiration = time.Duration(number) * time.Millisecond
		case isNumber && name == "delay_ns":
			m.Delay = time.Duration(number)
		case isNumber && name == "replays":
			m.Replays = int(number)
		default:
			errs = append(errs, fmt.Errorf("property %q is unknown", name))
		}
	}
	return errors.Join(errs...)
}
