package letter

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestDoubt(t *testing.T) {
	died := func(queues ...string) []any {
		var deaths []any
		for _, queue := range queues {
			deaths = append(deaths, amqp.Table{"queue": queue, "reason": "expired", "count": int64(1), "exchange": "shop", "routing-keys": []any{"new"}})
		}
		return deaths
	}
	ours := func(queue string, deaths any) amqp.Table {
		h := amqp.Table{"x-rehop-cause": "permanent", "x-rehop-final-attempts": int64(1)}
		if queue != "" {
			h["x-rehop-queue"] = queue
		}
		if deaths != nil {
			h["x-death"] = deaths
		}
		return h
	}
	for _, c := range []struct {
		rule    string
		headers amqp.Table
		queue   string
		doubt   string // part of it
	}{
		{"a consumer writes no x-death", ours("orders", nil), "orders", ""},
		{"nor does a producer", ours("", nil), "", ""},
		{"the broker moved it", amqp.Table{"x-death": died("orders")}, "orders", ""},
		{"the broker moved it, through others before", amqp.Table{"x-death": died("orders", "orders.wait.1", "import")}, "orders", ""},
		{"the broker moved the copy of a carrier", amqp.Table{"x-rehop-attempts": int64(2), "x-rehop-queue": "orders", "x-death": died("orders")}, "orders", ""},
		{"a delay without a target", amqp.Table{"x-rehop-exchange": "shop", "x-rehop-routing-key": "new", "x-death": died("rehop.delays.1s.00")}, "", ""},
		{"a copy in a delay without a target", amqp.Table{"x-rehop-queue": "orders", "x-rehop-attempts": int64(1), "x-death": died("rehop.delays.1s.00")}, "orders", ""},
		{"it expired in its dead-letter queue", ours("orders", died("orders.dlq")), "orders", ""},
		{"it expired in that of its lanes", ours("sms.vip", died("sms.dlq")), "sms.vip", ""},
		{"its consumer has put it off by exact delays", ours("orders", died("rehop.delays.1s.03")), "orders", ""},
		{"it was moved back with its headers and expired", ours("orders", died("orders")), "orders", ""},
		{"another framework writes none", amqp.Table{"NServiceBus.FailedQ": "orders"}, "orders", ""},
		{"Spring leaves that of the broker, and names no queue", amqp.Table{"x-exception-message": "no", "x-death": died("orders")}, "orders", ""},

		{"forged headers of a consumer", ours("payments", died("shopq")), "payments", `headers name queue "payments", and x-death, which the broker writes, names "shopq"`},
		{"forged headers of a producer", ours("", died("shopq")), "", `name no queue, and x-death, which the broker writes, names "shopq"`},
		{"forged headers of NServiceBus", amqp.Table{"NServiceBus.FailedQ": "payments", "x-death": died("shopq")}, "payments", `"shopq"`},
		{"forged headers of MassTransit", amqp.Table{"MT-Reason": "fault", "MT-Fault-InputAddress": "rabbitmq://h/payments", "x-death": died("shopq")}, "payments", `"shopq"`},
		{"and a forged death, which 3.10 keeps", ours("payments", died("shopq", "payments")), "payments", `"shopq"`},
		{"and a forged death, in any order", ours("payments", died("payments", "shopq")), "payments", `"shopq"`},
		{"and a forged death that nobody can read", ours("payments", append(died("shopq"), amqp.Table{"queue": int32(1)})), "payments", "cannot be read"},
		{"x-death is no list", ours("payments", "none"), "payments", "cannot be read"},
		{"x-death of a message that nothing else is known of", amqp.Table{"x-death": "none"}, "", ""},
		{"a queue that begins with the name", ours("payments", died("payments.shop")), "payments", `"payments.shop"`},
		{"a dead-letter queue that begins with the name", ours("payments", died("payments.shop.dlq")), "payments", `"payments.shop.dlq"`},
		{"the queue that the name begins with", ours("shop.payments", died("shop")), "shop.payments", `"shop"`},
	} {
		got := Doubt(c.headers, c.queue)
		if (got == "") != (c.doubt == "") || !strings.Contains(got, c.doubt) {
			t.Errorf("%s: %q, want %q", c.rule, got, c.doubt)
		}
	}
}
