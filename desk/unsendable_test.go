package desk

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// nested are headers that the client library does not read.
func nested() amqp.Table {
	t := amqp.Table{}
	for range 40 {
		t = amqp.Table{"n": t}
	}
	t["tenant"] = "acme"
	return t
}

// Letters that cannot be sent stay, and stop no other: their target was never asked.
func TestLettersThatCannotBeSentStopNoOther(t *testing.T) {
	for rule, headers := range map[string]amqp.Table{
		"headers of more than 64 KiB": {"x-rehop-queue": "orders", "large": strings.Repeat("x", 70_000)},
		"headers that nobody reads":   nested(),
	} {
		t.Run(rule, func(t *testing.T) {
			inBubble(t, "4.3", func(w *fixture) {
				w.dead()
				for range failuresInARow + 2 {
					_, err := w.broker.Publish(rehoptest.Message{RoutingKey: "orders.dlq", Publishing: amqp.Publishing{Headers: headers}})
					must(w.T, err)
				}
				for _, id := range []string{"m-1", "m-2"} {
					_, err := w.broker.Publish(rehoptest.Message{RoutingKey: "orders.dlq", Publishing: amqp.Publishing{MessageId: id, Headers: amqp.Table{"x-rehop-queue": "orders"}}})
					must(w.T, err)
				}
				l, err := NewLive(w.conn, "orders.dlq", LiveConfig{Journal: w.journal})
				must(w.T, err)
				p, err := l.Execute(w.Context(), Redrive{Action: Send, All: true, Rate: 20, To: &topology.Address{RoutingKey: "orders"}}, nil)
				must(w.T, err)
				if p.Done != 2 || p.Failed != failuresInARow+2 {
					w.Errorf("%+v", p)
				}
				w.has("orders", 2)
				w.has("orders.dlq", failuresInARow+2)
			})
		})
	}
}

// What a line or a copy would lose stays where it is, and is named.
func TestALetterWhoseHeadersNobodyReadsIsMovedNowhere(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		w.dead(producer.Message{Exchange: "shop", RoutingKey: "order.paid", ID: "good"})
		_, err := w.broker.Publish(rehoptest.Message{RoutingKey: "orders.dlq", Publishing: amqp.Publishing{MessageId: "deep", Headers: nested()}})
		must(w.T, err)
		l, err := NewLive(w.conn, "orders.dlq", LiveConfig{Journal: w.journal})
		must(w.T, err)
		var lines bytes.Buffer
		if n, err := l.Export(w.Context(), Filter{}, 0, &lines, By{}); n != 1 || err == nil || !strings.Contains(err.Error(), `"deep"`) || !strings.Contains(err.Error(), "cannot read its headers") {
			w.Errorf("%d exported, %v; want the one that is read, and the other named", n, err)
		}
		for _, r := range []Redrive{{Action: Move, All: true, To: &topology.Address{RoutingKey: "orders"}}, {Action: Drop, All: true, CopyTo: filepath.Join(w.TempDir(), "copy")}} {
			if p, err := l.Execute(w.Context(), r, nil); err != nil || p.Failed != 1 {
				w.Errorf("%s: %+v, %v", r.Action, p, err)
			}
		}
		q, _ := w.broker.Queue("orders.dlq")
		if len(q.Ready) != 1 || q.Ready[0].MessageId != "deep" || q.Ready[0].Headers["tenant"] != "acme" {
			w.Errorf("left: %+v", q.Ready)
		}
	})
}
