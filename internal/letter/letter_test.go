package letter

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/xdeath"
)

var now = time.Unix(1_700_000_000, 0).UTC()

func TestUnpublished(t *testing.T) {
	for _, tt := range []struct {
		rule  string
		cause error
		want  Letter
	}{
		{"why, and the type of the innermost error", fmt.Errorf("order 7: %w", connection.ErrSessionLost),
			Letter{Cause: rehop.CauseUnreachable, Error: "order 7: " + connection.ErrSessionLost.Error(), ErrorType: fmt.Sprintf("%T", connection.ErrSessionLost)}},
		{"without an answer: the message may be in its queue", producer.ErrUnconfirmed,
			Letter{Cause: rehop.CauseUnconfirmed, Error: producer.ErrUnconfirmed.Error(), ErrorType: fmt.Sprintf("%T", producer.ErrUnconfirmed), Unconfirmed: true}},
		{"no error", nil, Letter{Cause: producer.CauseOf(nil)}},
	} {
		m := producer.Message{ID: "m-1"}
		got := Unpublished(m, tt.cause, now)
		if got.Cause != tt.want.Cause || got.Error != tt.want.Error || got.ErrorType != tt.want.ErrorType || got.Unconfirmed != tt.want.Unconfirmed {
			t.Errorf("%s: %+v, want %+v", tt.rule, got, tt.want)
		}
		if got.Message.ID != "m-1" || got.Failed != now || got.FirstFailed != now || got.Stored != now {
			t.Errorf("%s: message %q, failed %v, first %v, stored %v", tt.rule, got.Message.ID, got.Failed, got.FirstFailed, got.Stored)
		}
	}
}

func TestDead(t *testing.T) {
	failed := now.Add(-time.Minute)
	whole := &consumer.Delivery{}
	whole.ID, whole.RoutingKey, whole.Body = "m-1", "order.paid", []byte("body")
	whole.History.Queue = "orders"
	whole.History.FinalAttempts = 5
	whole.Headers = amqp.Table{header.Expiration: "1500"}
	whole.History.Failure = xdeath.Failure{Cause: rehop.CauseExhausted, Error: "no stock", ErrorType: "*E", At: failed}
	l := Dead(whole, now)
	if l.Queue != "orders" || l.Cause != rehop.CauseExhausted || l.Error != "no stock" || l.ErrorType != "*E" || l.Attempts != 5 || !l.Failed.Equal(failed) || !l.Stored.Equal(now) {
		t.Errorf("a letter that a consumer gave up: %+v", l)
	}
	if m := l.Message; m.ID != "m-1" || m.RoutingKey != "order.paid" || string(m.Body) != "body" || m.Expiration != 1500*time.Millisecond {
		t.Errorf("its message: %+v", m)
	}
	if !l.FirstFailed.Equal(failed) {
		t.Errorf("it first failed at %v: without a time of the broker that is when it failed, %v", l.FirstFailed, failed)
	}
	sent := Dead(&consumer.Delivery{}, now)
	if sent.Cause != rehop.CauseRejected || !sent.Failed.Equal(now) || !sent.FirstFailed.Equal(now) || sent.Message.Expiration != 0 {
		t.Errorf("a message that somebody sent to the dead-letter queue by hand: %+v", sent)
	}
}

func TestIdentity(t *testing.T) {
	m := producer.Message{ID: "m-1", Exchange: "shop", RoutingKey: "order.paid", Body: []byte("body")}
	base := Identity(m, "orders")
	with := func(change func(*producer.Message)) producer.Message { other := m; change(&other); return other }
	for _, tt := range []struct {
		rule  string
		m     producer.Message
		queue string
		same  bool
	}{
		{"the same message", m, "orders", true},
		{"another type", with(func(m *producer.Message) { m.Type = "order.cancelled" }), "orders", false},
		{"another header", with(func(m *producer.Message) { m.Headers = map[string]any{"a": "b"} }), "orders", false},
		{"another order key", with(func(m *producer.Message) { m.OrderKey = "anna" }), "orders", false},
		{"another trace", with(func(m *producer.Message) { m.Headers = map[string]any{"traceparent": "00-1"} }), "orders", true},
		{"the broker's and our headers", with(func(m *producer.Message) {
			m.Headers = map[string]any{"x-acquired-count": int64(2), "x-delivery-count": int64(1), "x-rehop-host": "a"}
		}), "orders", true},
		{"the time and the priority", with(func(m *producer.Message) { m.Timestamp, m.Priority = now, 3 }), "orders", true},
		{"another id", with(func(m *producer.Message) { m.ID = "m-2" }), "orders", false},
		{"another exchange", with(func(m *producer.Message) { m.Exchange = "bank" }), "orders", false},
		{"another key", with(func(m *producer.Message) { m.RoutingKey = "order.sent" }), "orders", false},
		{"another body", with(func(m *producer.Message) { m.Body = nil }), "orders", false},
		{"another queue", m, "bills", false},
		{"where one part ends counts", with(func(m *producer.Message) { m.Exchange, m.RoutingKey = "shopo", "rder.paid" }), "orders", false},
	} {
		if got := Identity(tt.m, tt.queue); (got == base) != tt.same {
			t.Errorf("%s: same is %t", tt.rule, !tt.same)
		}
	}
	nameless := producer.Message{Body: []byte("body")}
	if first, second := Identity(nameless, ""), Identity(nameless, ""); first == second {
		t.Error("messages without an id are taken for one")
	}
}

func TestCut(t *testing.T) {
	l := Letter{Error: strings.Repeat("e", MaxError+1), ErrorType: "a\x00b", Cause: rehop.Cause(strings.Repeat("c", 300))}
	l.Cut()
	if len(l.Error) != MaxError || l.ErrorType != "a?b" || len(l.Cause) != 255 {
		t.Errorf("%d bytes of error, type %q, %d bytes of cause", len(l.Error), l.ErrorType, len(l.Cause))
	}
}

func TestProperties(t *testing.T) {
	m := producer.Message{ContentType: "text/plain", ContentEncoding: "gzip", Type: "order", CorrelationID: "c", ReplyTo: "r", AppID: "shop", UserID: "u",
		Timestamp: now, Priority: 7, Expiration: time.Minute, Delay: 5 * time.Nanosecond, Replays: 3}
	table := Properties(m)
	var got producer.Message
	if err := SetProperties(&got, table); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", m) {
		t.Errorf("kept\n%+v\nof\n%+v", got, m)
	}
	if len(Properties(producer.Message{})) != 0 {
		t.Error("a message without properties has some")
	}
	table["colour"], table["priority"] = "red", "high"
	err := SetProperties(&got, table)
	for _, want := range []string{`"colour"`, `"priority"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("faulty properties: %v, want a word of %s", err, want)
		}
	}
}

func TestInnermost(t *testing.T) {
	inner := errors.New("inner")
	if got := innermost(fmt.Errorf("outer: %w", fmt.Errorf("middle: %w", inner))); got != inner { //nolint:errorlint // the error itself is wanted
		t.Errorf("innermost is %v", got)
	}
}
