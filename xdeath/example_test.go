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

func ExampleRetry() {
	d := amqp.Delivery{Headers: headers, Exchange: "orders.retry", RoutingKey: "orders@1", Body: []byte("{}")}
	p := xdeath.Retry(d, xdeath.RetryCopy{Queue: "orders", Returned: true, Attempts: 3, At: time.Now()})

	h, _ := xdeath.Parse(p.Headers)
	fmt.Println("deaths left for the broker to count:", len(h.Deaths))
	fmt.Println("next attempt:", h.Attempt("orders", true))
	// Output:
	// deaths left for the broker to count: 0
	// next attempt: 4
}

func ExampleDeadLetter() {
	d := amqp.Delivery{Headers: headers, Exchange: "orders.retry", RoutingKey: "orders@1"}
	p := xdeath.DeadLetter(d, xdeath.Letter{
		Queue: "orders", Returned: true, Attempts: 3,
		Failure: xdeath.Failure{Cause: xdeath.CauseExhausted, Error: "no paper"},
	})

	h, _ := xdeath.Parse(p.Headers)
	fmt.Println(h.Failure.Cause, "after", h.FinalAttempts, "attempts:", h.Failure.Error)
	fmt.Println("if somebody moves it back, attempt:", h.Attempt("orders", false))
	// Output:
	// exhausted after 3 attempts: no paper
	// if somebody moves it back, attempt: 1
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
