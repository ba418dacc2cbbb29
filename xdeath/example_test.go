package xdeath_test

import (
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/xdeath"
)

// A message that a queue rejected twice, as a broker of 4.x describes it.
var headers = amqp.Table{
	"x-death": []any{
		amqp.Table{"queue": "orders.wait.2", "reason": "expired", "count": int64(1), "exchange": "orders.rehop.delay", "routing-keys": []any{"orders@1"}},
		amqp.Table{"queue": "orders", "reason": "rejected", "count": int64(2), "exchange": "shop", "routing-keys": []any{"order.paid"}},
	},
}

// The headers of a message become its history.
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

// A header that cannot be read counts as absent.
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

// A retry copy has the number of the attempts before it in its headers.
func ExampleHistory_Attempt() {
	h, err := xdeath.Parse(amqp.Table{
		"x-rehop-queue":           "orders",
		"x-rehop-attempts":        int64(2),
		"x-rehop-first-failed-at": time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC),
	})
	fmt.Println(err)
	fmt.Println("attempts before this copy:", h.Carried("orders"))
	fmt.Println("came back to orders:", h.Attempt("orders", true))
	fmt.Println("was published again:", h.Attempt("orders", false))
	at, ok := h.FirstFailedAt("orders")
	fmt.Println("first failed:", at.UTC(), ok)
	// Output:
	// <nil>
	// attempts before this copy: 2
	// came back to orders: 3
	// was published again: 1
	// first failed: 2026-07-01 12:00:00 +0000 UTC true
}

// A dead letter says why it was given up, also if the broker has moved it.
func ExampleHistory_Letter() {
	h, err := xdeath.Parse(amqp.Table{
		"x-death": []any{
			amqp.Table{"queue": "orders", "reason": "expired", "count": int64(1), "exchange": "shop", "routing-keys": []any{"order.paid"}},
		},
	})
	fmt.Println(err)
	letter := h.Letter()
	fmt.Println(letter.Queue, letter.Failure.Cause, letter.Exchange, letter.RoutingKey)
	// Output:
	// <nil>
	// orders expired shop order.paid
}

// Some causes pass by themselves, and the message can be published again.
func ExampleCause_Passes() {
	fmt.Println(rehop.CauseUnreachable.Passes(), rehop.CauseUnroutable.Passes())
	// Output: true false
}
