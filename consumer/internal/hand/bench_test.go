package hand

import (
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// One operation is all events of a message that is handled and acked.
func BenchmarkEvents(b *testing.B) {
	for _, lanes := range []int{1, 8} {
		b.Run(fmt.Sprint(lanes, " lanes"), func(b *testing.B) {
			h := New(64, false)
			ctx := b.Context()
			contexts := Contexts{Stop: ctx, Cancel: func(error) {}, Working: ctx, Copying: ctx}
			sessions := make([]*Session, lanes)
			now := time.Now()
			var out Out
			for i := range sessions {
				sessions[i] = h.Lane(Limits{Slots: 64, Share: 1, Shard: true}).Session(contexts)
			}
			for _, s := range sessions {
				s.Opened(64, time.Millisecond, now, &out)
			}
			w := &Worker{Woken: NewSignal()}
			var spent []Told
			b.ReportAllocs()
			for i := range b.N {
				s := sessions[i%lanes]
				s.Delivered(&Message{Raw: amqp.Delivery{DeliveryTag: uint64(i + 1)}, Received: now}, &out) //nolint:gosec // more than 0
				g, _ := h.Next(w, now)
				m := g.Of[0]
				h.Runs(now, m)
				h.Handled(w, g, now, Told{m, Ack})
				spent, _, _ = s.Take(spent)
				h.Settled(spent, now, &out)
				h.Hooked(m)
				h.idle = h.idle[:0]
				out.Clear()
				w.Out.Clear()
			}
		})
	}
}
