package copies

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/xdeath"
)

var (
	day1 = time.Unix(1_700_000_000, 0)
	day2 = time.Unix(1_700_086_400, 0)
	day3 = time.Unix(1_700_172_800, 0)
)

// entry is one table of x-death as the broker writes it.
func entry(queue string, reason xdeath.Reason, count int64, exchange string, at time.Time, keys ...any) amqp.Table {
	return amqp.Table{
		"queue": queue, "reason": string(reason), "count": count,
		"exchange": exchange, "time": at, "routing-keys": keys,
	}
}

// broker4 is a message that was rejected three times, on 4.3.
var broker4 = amqp.Table{
	header.Death: []any{
		entry("orders.wait.2", xdeath.ReasonExpired, 1, "orders.rehop.delay", day3, "orders@2"),
		entry("orders", xdeath.ReasonRejected, 3, "shop", day1, "order.paid", "copy.to"),
		entry("orders.wait.1", xdeath.ReasonExpired, 2, "orders.rehop.delay.first", day2, "order.paid"),
	},
	header.FirstDeathQueue:    "orders",
	header.FirstDeathReason:   "rejected",
	header.FirstDeathExchange: "shop",
	header.LastDeathQueue:     "orders.wait.2",
	header.LastDeathReason:    "expired",
	header.LastDeathExchange:  "orders.rehop.delay",
	header.DeliveryCount:      int64(1),
	header.AcquiredCount:      int32(4),
}

// with returns the table with more headers; nil removes one.
func with(t amqp.Table, pairs ...any) amqp.Table {
	c := widened(t)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == nil {
			delete(c, pairs[i].(string))
			continue
		}
		c[pairs[i].(string)] = pairs[i+1]
	}
	return c
}

func widened(t amqp.Table) amqp.Table {
	if t == nil {
		return amqp.Table{}
	}
	return header.Clone(t).(amqp.Table)
}

// parsed fails the test on a malformed header.
func parsed(t *testing.T, headers amqp.Table) xdeath.History {
	t.Helper()
	h, err := xdeath.Parse(headers)
	if err != nil {
		t.Fatal(err)
	}
	return h
}
