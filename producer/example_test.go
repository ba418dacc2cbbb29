package producer_test

import (
	"fmt"

	"github.com/rehop/rehop/producer"
)

// A value becomes the body of a message.
func ExampleMessage_JSON() {
	type Order struct {
		Number int `json:"number"`
	}
	m, err := producer.Message{Exchange: "shop", RoutingKey: "order.paid", Type: "order.paid"}.JSON(Order{7})
	fmt.Printf("%s %s %v\n", m.ContentType, m.Body, err)
	// Output: application/json {"number":7} <nil>
}
