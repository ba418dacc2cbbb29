package xdeath_test

import (
	"fmt"
	"time"

	"github.com/rehop/rehop/xdeath"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A message that a queue rejected twice, as a broker of 4.x describes it.
var headers = amqp.Table{
	"x-death": []any{
		amqp.Table{"queue": "orders.wait.2", "reason": "expired", "count": int64(1), "exchange": "orders.ladder", "routing-keys": []any{"orders@1"}},
		amqp.Table{"queue": "orders", "reason": "rejected", "count": int64(2), "exchange": "shop", "routing-keys": []any{"order.paid"}},
	},
}

func ExampleParse() {
	h, err := xdeath.Parse(headers)
	if err != nil {
		fmt.Println(err) // h still holds what was well formed
	}
	fmt.Println("rejected by orders:", h.Count("orders", xdeath.Rejected))
	fmt.Println("attempt:", h.Attempt("orders", true))
	exchange, key, _ := h.Origin("orders")
	fmt.Println("published to:", exchange, key)
	// Output:
	// rejected by orders: 2
	// attempt: 3
	// published to: shop order.paid
}

func ExampleParse_malformed() {
	h, err := xdeath.Parse(amqp.Table{
		"x-death":             "junk",
		xdeath.HeaderQueue:    "orders",
		xdeath.HeaderAttempts: int64(4),
	})
	fmt.Println(err)
	fmt.Println("attempt:", h.Attempt("orders", true))
	// Output:
	// xdeath: x-death is a string, want an array
	// attempt: 5
}

// A letter is published once more.
func ExampleAgain() {
	d := amqp.Delivery{Headers: headers, MessageId: "42", Body: []byte("{}")}
	p := xdeath.Again(d)

	fmt.Println(p.MessageId, len(p.Headers), "headers")
	// Output:
	// 42 0 headers
}

func ExampleValidate() {
	err := xdeath.Validate(amqp.Publishing{
		Expiration: "60s",
		Headers:    amqp.Table{"timeout": time.Minute},
	})
	fmt.Println(err)
	// Output:
	// xdeath: Expiration is "60s", want milliseconds, 0 to 315360000000 in decimal digits
	// xdeath: Headers["timeout"] is a time.Duration, want a type that amqp.Table lists
}
