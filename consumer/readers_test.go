package consumer

import (
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// Other clients send text as bytes.
func TestTheOrderKeyIsOneForAllReaders(t *testing.T) {
	from := routeOf(topology.WorkQueue{Name: "orders"})
	for rule, c := range map[string]struct {
		value any
		want  string
	}{
		"text":         {"4711", "4711"},
		"bytes":        {[]byte("4711"), "4711"},
		"as long":      {strings.Repeat("k", 255), strings.Repeat("k", 255)},
		"too long":     {strings.Repeat("k", 256), ""},
		"too long, []": {[]byte(strings.Repeat("k", 256)), ""},
		"a number":     {int64(4711), ""},
		"a time":       {time.Unix(4711, 0), ""},
		"a table":      {amqp.Table{"a": "b"}, ""},
		"nothing":      {nil, ""},
	} {
		raw := amqp.Delivery{RoutingKey: "orders", Headers: amqp.Table{header.OrderKey: c.value}}
		var d Delivery
		_ = d.read(&from, raw) // says what is malformed
		for reader, got := range map[string]string{
			"Delivery":              d.OrderKey,
			"KeyLimit":              (&run{part: &part{}}).keyOf(&route.Facts{}, raw),
			"producer.FromDelivery": producer.FromDelivery(raw).OrderKey,
		} {
			if got != c.want {
				t.Errorf("%s: %s reads %q, want %q", rule, reader, got, c.want)
			}
		}
	}
}

// All readers read a header in one way, whatever its type on the wire is. A header that
// xdeath.Parse calls malformed counts as absent for all of them.
func FuzzReadersOfAHeaderAgree(f *testing.F) {
	for name := range ownHeaders() {
		for kind := range byte(9) {
			f.Add(byte(name), kind, "4711", int64(3))
		}
	}
	f.Add(byte(0), byte(1), strings.Repeat("k", 256), int64(-1))
	f.Add(byte(3), byte(4), "\xff", int64(1<<40))
	f.Fuzz(func(t *testing.T, which, kind byte, text string, n int64) {
		names := ownHeaders()
		name, value := names[int(which)%len(names)], wireValue(kind, text, n)
		for _, others := range []amqp.Table{{}, {header.Cause: "exhausted"}, {header.Attempts: int64(1), header.Queue: "orders"}} {
			raw := amqp.Delivery{RoutingKey: "orders", Headers: others}
			raw.Headers[name] = value
			h, _ := xdeath.Parse(raw.Headers)
			m := producer.FromDelivery(raw)
			agree := func(what string, got, want any) {
				if got != want {
					t.Errorf("%s is %T %v: %s: %v, want %v as xdeath reads it", name, value, value, what, got, want)
				}
			}
			agree("the order key of FromDelivery", m.OrderKey, h.OrderKey)
			agree("the key of KeyLimit", (&run{part: &part{}}).keyOf(&route.Facts{}, raw), h.OrderKey)
			agree("the replays of FromDelivery", m.Replays, h.Replays)
			agree("the user of FromDelivery", m.UserID, raw.UserId)
			count, counts := header.Count(raw.Headers[header.Attempts])
			agree("whether it is a copy", header.IsCopy(raw.Headers), counts)
			agree("the attempts", int(count), h.Attempts)
			isLetter := !counts && (h.FinalAttempts > 0 || h.Failure.Cause != "")
			if _, zero := header.Count(raw.Headers[header.FinalAttempts]); !zero {
				agree("whether it is a letter", header.IsLetter(raw.Headers), isLetter)
			}
			for _, from := range []route.Facts{routeOf(topology.WorkQueue{Name: "orders"}), routeOf(topology.DeadLetterQueue{Name: "orders"})} {
				var d Delivery
				_ = d.read(&from, raw)
				agree("the order key of the Delivery", d.OrderKey, h.OrderKey)
				agree("the replays of the Delivery", d.History.Replays, h.Replays)
				agree("the redrives of the Delivery", d.History.Redrives, h.Redrives)
			}
			m.Origin = topology.Address{Exchange: m.Exchange, RoutingKey: m.RoutingKey} // sent back to its queue
			m.Exchange, m.RoutingKey = "", "orders"
			if err := m.Validate(); err != nil {
				t.Errorf("%s is %T %v: it cannot be published once more: %v", name, value, value, err)
			}
		}
	})
}

func ownHeaders() []string {
	return slices.Concat(header.Past, header.Family, []string{header.OrderKey, header.Priority, header.Replays, header.Redrives, header.RedriveID})
}

// wireValue is a value of one of the types that a header can have on the wire.
func wireValue(kind byte, text string, n int64) any {
	switch kind % 9 {
	case 0:
		return text
	case 1:
		return []byte(text)
	case 2:
		return int8(n)
	case 3:
		return int32(n)
	case 4:
		return n
	case 5:
		return uint16(n)
	case 6:
		return time.Unix(n, 0)
	case 7:
		return []any{text, n, amqp.Table{"queue": text, "count": n, "reason": "rejected"}}
	}
	return nil
}
