package connection_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/transport"
)

// Messages that the client library publishes and cannot read: too many headers,
// nested too deep, or, after the broker's own headers, larger than a frame.
// Their consumer's connection lives, and the messages between them are consumed.
func unreadableMessages(t *testing.T, n *node, r *row) {
	raw, err := amqp.Dial(n.AMQPURL())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	ch, err := raw.Channel()
	if err != nil {
		t.Fatal(err)
	}
	const work, letters = "unreadable", "unreadable.letters"
	many, deep := amqp.Table{}, amqp.Table{}
	for i := range 8190 {
		many[fmt.Sprint(i)] = nil
	}
	for range 40 {
		deep = amqp.Table{"deep": deep}
	}
	headers := map[string]amqp.Table{
		"many": many, "deep": deep, "large": {"large": strings.Repeat("x", 131_000)},
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string]amqp.Table{letters: nil, work: {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": letters}} {
		if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
			t.Fatal(err)
		}
	}
	publish := func(id string, headers amqp.Table) {
		c, err := ch.PublishWithDeferredConfirm("", work, true, false, amqp.Publishing{
			MessageId: id, ContentType: "text/plain", DeliveryMode: amqp.Persistent, Expiration: "1", Headers: headers, Body: []byte(id),
		})
		if err != nil || !c.Wait() {
			t.Fatalf("publish %s: %v", id, err)
		}
	}
	for id, h := range headers {
		publish("before "+id, nil)
		publish(id, h)
	}

	// They have expired, and the broker has added headers of its own.
	began := time.Now()
	s := sessionOf(t, open(t, config(n.AMQPURL())), connection.Consume)
	var deliveries <-chan amqp.Delivery
	if err := s.Do(t.Context(), func(ch *amqp.Channel) (err error) {
		deliveries, err = ch.Consume(letters, "", false, false, false, false, nil)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for range 2 * len(headers) {
		var d amqp.Delivery
		select {
		case d = <-deliveries:
		case <-s.Done():
			t.Fatalf("the session has ended: %v", s.Err())
		case <-time.After(returned):
			t.Fatal("no delivery")
		}
		why, unreadable := d.Headers[header.Unreadable].(string)
		if _, bad := headers[d.MessageId]; bad != unreadable || string(d.Body) != d.MessageId || d.ContentType != "text/plain" {
			t.Errorf("%q with body %q: unreadable: %v", d.MessageId, d.Body, unreadable)
		}
		if unreadable {
			t.Logf("%s: %s", d.MessageId, why)
		}
		if err := d.Ack(false); err != nil {
			t.Error(err)
		}
	}
	r.recovered(time.Since(began), returned)
	if transport.Inside.Session(s).Generation() != 1 || s.Err() != nil {
		t.Errorf("generation %d, %v", transport.Inside.Session(s).Generation(), s.Err())
	}
}
