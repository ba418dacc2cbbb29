package producer

import (
	"cmp"
	"encoding/json"
	"fmt"
)

// JSON returns the message with value as its body, encoded as JSON, and with the content
// type application/json unless it has one.
//
//	m, err := producer.Message{Exchange: "shop", RoutingKey: "order.paid", Type: "order.paid"}.JSON(order)
//
// The result is a message like any other: it can be published, put into an outbox, or
// kept. The error names the type of the value; the message is then unchanged.
func (m Message) JSON(value any) (Message, error) {
	return m.Encode(value, json.Marshal, "application/json")
}

// Encode is [Message.JSON] for any codec: marshal returns the body. The content type is
// set unless the message has one.
func (m Message) Encode(value any, marshal func(value any) ([]byte, error), contentType string) (Message, error) {
	body, err := marshal(value)
	if err != nil {
		return m, fmt.Errorf("producer: encoding a %T: %w", value, err)
	}
	m.Body = body
	m.ContentType = cmp.Or(m.ContentType, contentType)
	return m, nil
}
