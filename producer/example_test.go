package producer_test

import (
	"encoding/xml"
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

// Encode is for bodies that are not JSON.
func ExampleMessage_Encode() {
	type Order struct{ Number int }
	m, err := producer.Message{Exchange: "shop", RoutingKey: "order.paid"}.Encode(Order{7}, xml.Marshal, "application/xml")
	fmt.Printf("%s %s %v\n", m.ContentType, m.Body, err)
	// Output: application/xml <Order><Number>7</Number></Order> <nil>
}

// Validate finds the faults that need no broker.
func ExampleMessage_Validate() {
	fmt.Println(producer.Message{RoutingKey: "orders", Priority: 10}.Validate())
	// Output: producer: Message.Priority is 10, want 1 (low) to 9 (high), or 0 for none
}
