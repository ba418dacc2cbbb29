package desk

import (
	"slices"
	"testing"
)

func TestNearNames(t *testing.T) {
	queues := []Queue{
		{Name: "billing.dlq", IsDeadLetters: true}, {Name: "billing.eu.dlq", IsDeadLetters: true}, {Name: "orders"}, {Name: "orders.dlq", IsDeadLetters: true},
		{Name: "legacy_error", IsDeadLetters: true}, {Name: "a"}, {Name: "mails"},
	}
	for name, want := range map[string][]string{
		"billing":     {"billing.dlq", "billing.eu.dlq"},
		"BILLING":     {"billing.dlq", "billing.eu.dlq"},
		"legacy":      {"legacy_error"},
		"ordesr.dlq":  {"orders.dlq"},
		"order.dlq":   {"orders.dlq"},
		"orders.dlq2": {"orders.dlq"},
		"mail":        {"mails"},
		"b":           {"billing.dlq", "billing.eu.dlq"},
		"z":           nil,
		"shipping":    nil,
	} {
		if got := nearTo(name, queues); !slices.Equal(got, want) {
			t.Errorf("near to %q: %q, want %q", name, got, want)
		}
	}
}
