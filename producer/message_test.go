package producer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

func TestFaultyMessageIsRefusedWithAllItsFaults(t *testing.T) {
	long := strings.Repeat("n", 256)
	m := Message{
		Exchange:      long,
		RoutingKey:    long,
		ID:            long,
		CorrelationID: long,
		Priority:      10,
		Expiration:    time.Microsecond,
		Headers:       amqp.Table{"when": time.Second, long: "x"},
		Replays:       -1,
		OrderKey:      long,
		ReplyTo:       "amq.rabbitmq.reply-to",
		Origin:        topology.Address{Exchange: long, RoutingKey: long},
	}
	_, err := m.publishing()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"Message.Exchange is 256 bytes long, want at most 255",
		`Message.ReplyTo is "amq.rabbitmq.reply-to", want the name of a queue`,
		"Message.RoutingKey is 256 bytes long, want at most 255",
		"MessageId is 256 bytes long", "CorrelationId is 256 bytes long",
		"Message.Priority is 10, want 1 (low) to 9 (high)",
		"Message.Expiration is 1µs",
		"Message.Replays is -1, want 0 or more",
		"Message.OrderKey is 256 bytes long, want at most 255",
		"Message.Origin.Exchange is 256 bytes long, want at most 255",
		"Message.Origin.RoutingKey is 256 bytes long, want at most 255",
		"time.Duration",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in:\n%v", want, err)
		}
	}
	for _, line := range strings.Split(err.Error(), "\n") {
		if !strings.HasPrefix(line, "producer: Message.") {
			t.Errorf("a fault that does not name its field: %q", line)
		}
	}
}

// The broker removes BCC and goes on routing by it: no consumer could see that such a
// message has not waited.
func TestAKeyOfAWaitIsNoCC(t *testing.T) {
	for _, name := range []string{"CC", "BCC"} {
		for key, refused := range map[string]bool{"orders@2": true, "a@b@16": true, "orders@17": false, "orders@0": false, "orders@02": false, "me@example.org": false, "orders": false} {
			err := Message{RoutingKey: "orders", Headers: amqp.Table{name: []any{"other", key}}}.Validate()
			if refused != (err != nil) || refused && !strings.Contains(err.Error(), `Headers["`+name+`"] has the key "`+key+`"`) {
				t.Errorf("%s with %q: %v", name, key, err)
			}
		}
	}
}

func TestNamesThatAreNotTextAreFaults(t *testing.T) {
	err := Message{Exchange: "a\xff"}.Validate()
	if want := `Exchange is "a\xff"`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("missing %q in:\n%v", want, err)
	}
	if err := (Message{RoutingKey: "q\xff", OrderKey: "b\xff", Origin: topology.Address{Exchange: "c\xff"}}).Validate(); err != nil {
		t.Errorf("a message from a queue, whose headers may have any bytes, cannot be published once more: %v", err)
	}
}

func TestOrderKeyAndOriginAreSentAndOnlyByTheirFields(t *testing.T) {
	foreign := amqp.Table{"x-rehop-order-key": "x", "x-rehop-exchange": "x", "x-rehop-routing-key": "x", "x-rehop-queue": "x"}
	shop := topology.Address{Exchange: "shop", RoutingKey: "order.paid"}
	for _, row := range []struct {
		rule string
		m    Message
		want amqp.Table
	}{
		{"neither", Message{RoutingKey: "orders"}, nil},
		{"an order key", Message{RoutingKey: "orders", OrderKey: "4711"}, amqp.Table{"x-rehop-order-key": "4711"}},
		{"an origin", Message{RoutingKey: "orders", Origin: shop}, amqp.Table{"x-rehop-exchange": "shop", "x-rehop-routing-key": "order.paid"}},
		{"an origin that is a queue", Message{RoutingKey: "b", Origin: topology.Address{RoutingKey: "a"}}, amqp.Table{"x-rehop-exchange": "", "x-rehop-routing-key": "a"}},
		{"an origin that is where it goes", Message{Exchange: "shop", RoutingKey: "order.paid", Origin: shop}, nil},
	} {
		row.m.Headers = foreign
		p, err := row.m.publishing()
		if err != nil || fmt.Sprint(p.Headers) != fmt.Sprint(row.want) {
			t.Errorf("%s: headers %v, %v, want %v", row.rule, p.Headers, err, row.want)
		}
		if row.m.Origin == (topology.Address{}) || row.want == nil {
			continue
		}
		h, _ := xdeath.Parse(p.Headers)
		if exchange, key, known := h.Origin(row.m.RoutingKey); !known || exchange != row.m.Origin.Exchange || key != row.m.Origin.RoutingKey {
			t.Errorf("%s: the consumer sees %q, %q, %v", row.rule, exchange, key, known)
		}
	}
}

func TestNoDestinationIsAFault(t *testing.T) {
	if _, err := (Message{}).publishing(); err == nil || !strings.Contains(err.Error(), "RoutingKey is empty") {
		t.Errorf("publishing: %v", err)
	}
}

func TestPublishingIsPersistentAndFreeOfAnotherLifesHeaders(t *testing.T) {
	headers := amqp.Table{"x-death": []any{}, "x-rehop-attempts": 3, "mine": 5}
	p, err := Message{RoutingKey: "q", Headers: headers, Expiration: 90 * time.Second, Priority: 9}.publishing()
	if err != nil {
		t.Fatal(err)
	}
	if p.DeliveryMode != amqp.Persistent || p.Expiration != "90000" || p.Priority != 9 {
		t.Errorf("delivery mode %d, expiration %q, priority %d", p.DeliveryMode, p.Expiration, p.Priority)
	}
	if len(p.Headers) != 2 || p.Headers["mine"] != int64(5) || p.Headers[header.Priority] != int64(9) {
		t.Errorf("headers %v, want mine as int64, the priority and nothing else", p.Headers)
	}
	if len(headers) != 3 {
		t.Error("the caller's headers were changed")
	}
}

func TestIDsDifferBetweenMessagesAndProducers(t *testing.T) {
	a, b := newIDs(), newIDs()
	seen := map[string]bool{}
	for range 1000 {
		seen[a.next()] = true
		seen[b.next()] = true
	}
	if len(seen) != 2000 {
		t.Errorf("%d ids, want 2000", len(seen))
	}
}

func TestConfigFaults(t *testing.T) {
	_, err := New(nil, Config{Window: 10_001, Timeout: -1, Fallback: []Sink{nil}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"conn is nil", "Config.Window is 10001, want 1 to 10000", "Config.Timeout is -1ns", "Config.Fallback[0] is nil"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in:\n%v", want, err)
		}
	}
}

func TestReplaysAreSentAndOnlyByTheirField(t *testing.T) {
	for replays, want := range map[int]any{0: nil, 3: int64(3)} {
		p, err := Message{RoutingKey: "q", Replays: replays, Headers: amqp.Table{"x-rehop-replays": int64(99)}}.publishing()
		if err != nil || p.Headers["x-rehop-replays"] != want {
			t.Errorf("Replays %d: headers %v, %v", replays, p.Headers, err)
		}
	}
	if err := (Message{}).Validate(); err == nil {
		t.Error("Validate takes a message without an address")
	}
}
