package xdeath_test

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/xdeath"
)

// A message that a queue rejected twice, as a broker of 4.x describes it.
var headers = amqp.Table{
	"x-death": []any{
		amqp.Table{"queue": "orders.wait.2", "reason": "expired", "count": int64(1), "exchange": "orders.rehop.delay", "routing-keys": []any{"orders@1"}},
		amqp.Table{"queue": "orders", "reason": "rejected", "count": int64(2), "exchange": "shop", "routing-keys": []any{"order.paid"}},
	},
}

func ExampleParse() {
	h, err := xdeath.Parse(headers)
	if err != nil {
		fmt.Println(err) // h still holds what was well formed
	}
	fmt.Println("rejected by orders:", h.Count("orders", xdeath.ReasonRejected))
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
		"x-death":          "junk",
		"x-rehop-queue":    "orders",
		"x-rehop-attempts": int64(4),
	})
	fmt.Println(err)
	fmt.Println("attempt:", h.Attempt("orders", true))
	// Output:
	// xdeath: x-death is a string, want an array
	// attempt: 5
}
