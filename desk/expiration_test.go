package desk

import (
	"errors"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
)

// A message that is sent back does not expire behind others, and what its producer asked for is not
// forgotten.
func TestAMessageThatIsSentBackDoesNotExpire(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(producer.Message{Exchange: "shop", RoutingKey: "order.paid", ID: "m", Expiration: time.Hour})
		expires := func(when string) {
			w.Helper()
			list, err := w.live().Peek(w.Context(), 1)
			must(w.T, err)
			if m := list.Letters[0].message(); m.Expiration != time.Hour {
				w.Errorf("%s: the message of the letter expires after %v, want 1h", when, m.Expiration)
			}
		}
		expires("at first")
		p, err := w.live().Execute(w.Context(), Redrive{Action: Send, All: true}, nil)
		if err != nil || p.Done != 1 {
			w.Fatalf("%v: %+v", err, p)
		}
		q, _ := w.broker.Queue("orders")
		if len(q.Ready) != 1 || q.Ready[0].Expiration != "" {
			w.Fatalf("in the queue: %+v, want it without an expiration", q.Ready)
		}
		w.consume(1, func(*consumer.Delivery) error { return consumer.DeadLetter(errors.New("again")) })
		w.has("orders.dlq", 1)
		expires("after it was sent back")
		_, source := w.collect("orders.dlq", 1)
		if p, err := source.Execute(w.Context(), Redrive{Action: Send, All: true}, nil); err != nil || p.Done != 1 {
			w.Fatalf("of a store: %v: %+v", err, p)
		}
		if q, _ := w.broker.Queue("orders"); len(q.Ready) != 1 || q.Ready[0].Expiration != "" {
			w.Errorf("in the queue: %+v, want it without an expiration", q.Ready)
		}
	})
}
