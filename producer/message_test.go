package producer

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/xdeath"
)

func TestFaultyMessageIsRefusedWithAllItsFaults(t *testing.T) {
	long := strings.Repeat("n", 256)
	m := Message{
		Exchange:      long,
		Key:           long,
		ID:            long,
		CorrelationID: long,
		Priority:      10,
		Expiration:    time.Microsecond,
		Headers:       amqp.Table{"when": time.Second, long: "x"},
		Replays:       -1,
	}
	_, err := m.publishing()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"Message.Exchange is 256 bytes long, want at most 255",
		"Message.Key is 256 bytes long, want at most 255",
		"MessageId is 256 bytes long", "CorrelationId is 256 bytes long",
		"Message.Priority is 10, want 1 (low) to 9 (high)",
		"Message.Expiration is 1µs",
		"Message.Replays is -1, want 0 or more",
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

func TestNoDestinationIsAFault(t *testing.T) {
	if _, err := (Message{}).publishing(); err == nil || !strings.Contains(err.Error(), "Key is empty") {
		t.Errorf("publishing: %v", err)
	}
}

func TestPublishingIsPersistentAndFreeOfAnotherLifesHeaders(t *testing.T) {
	headers := amqp.Table{"x-death": []any{}, "x-rehop-attempts": 3, "mine": 5}
	p, err := Message{Key: "q", Headers: headers, Expiration: 90 * time.Second, Priority: 9}.publishing()
	if err != nil {
		t.Fatal(err)
	}
	if p.DeliveryMode != amqp.Persistent || p.Expiration != "90000" || p.Priority != 9 {
		t.Errorf("delivery mode %d, expiration %q, priority %d", p.DeliveryMode, p.Expiration, p.Priority)
	}
	if len(p.Headers) != 2 || p.Headers["mine"] != int64(5) || p.Headers[xdeath.HeaderPriority] != int64(9) {
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
		p, err := Message{Key: "q", Replays: replays, Headers: amqp.Table{"x-rehop-replays": int64(99)}}.publishing()
		if err != nil || p.Headers["x-rehop-replays"] != want {
			t.Errorf("Replays %d: headers %v, %v", replays, p.Headers, err)
		}
	}
	if err := (Message{}).Validate(); err == nil {
		t.Error("Validate takes a message without an address")
	}
}
