package desk

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/management"
)

func TestNumbersLeaveOutWhatWeHaveInHand(t *testing.T) {
	for rule, tt := range map[string]struct {
		api    numbers
		own    int
		lately bool
		now    amqp.Queue
		want   numbers
		mixed  bool
	}{
		"our redrive has just ended":             {numbers{0, 49, 1}, 0, true, amqp.Queue{Messages: 20}, numbers{ready: 20}, false},
		"that of another process has just ended": {numbers{0, 49, 1}, 0, false, amqp.Queue{Messages: 20}, numbers{ready: 20}, false},
		"our look goes on":                       {numbers{9, 40, 1}, 1, true, amqp.Queue{Messages: 9, Consumers: 1}, numbers{ready: 49}, false},
		"the API has not noticed our look":       {numbers{49, 0, 0}, 2, true, amqp.Queue{Messages: 9, Consumers: 2}, numbers{ready: 49}, false},
		"a collector works":                      {numbers{9, 40, 2}, 0, false, amqp.Queue{Messages: 9, Consumers: 2}, numbers{9, 40, 2}, false},
		"a collector beside our look":            {numbers{0, 49, 2}, 1, true, amqp.Queue{Consumers: 2}, numbers{0, 49, 1}, true},
		"a collector, and our look was before":   {numbers{0, 49, 1}, 0, true, amqp.Queue{Consumers: 1}, numbers{0, 49, 1}, true},
		"a collector with nothing in hand":       {numbers{49, 0, 1}, 0, true, amqp.Queue{Messages: 49, Consumers: 1}, numbers{49, 0, 1}, false},
	} {
		if got, mixed := tt.api.without(tt.own, tt.lately, tt.now); got != tt.want || mixed != tt.mixed {
			t.Errorf("%s: %+v, mixed %v; want %+v, %v", rule, got, mixed, tt.want, tt.mixed)
		}
	}
}

// What a look or a redrive of this process has in hand counts as ready, while it lasts and
// afterwards, until the management API has noticed.
func TestALookIsNoCollector(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(orders(40)...)
		stale := func() []management.Info {
			return []management.Info{{Name: "orders.dlq", Unacked: 40, Consumers: 1}, {Name: "orders", Ready: 7}}
		}
		check := func(when string, consumers int) {
			infos := stale()
			mixed := hands.takeOut(w.Context(), w.conn, infos)
			if got := infos[0]; got.Ready != 40 || got.Unacked != 0 || got.Consumers != 0 || mixed["orders.dlq"] || infos[1].Ready != 7 {
				w.Errorf("%s: %+v, mixed %v; want 40 ready", when, infos, mixed)
			}
			if q, err := QueueByName(w.Context(), w.conn, "orders.dlq"); err != nil || q.Consumers != 0 || q.Mixed != (consumers > 0) {
				w.Errorf("%s: %+v, %v", when, q, err)
			}
		}
		h, err := newHand(w.Context(), w.conn, "orders.dlq")
		must(w.T, err)
		must(w.T, h.step(w.Context(), 16))
		counter, before, err := countOf(w.Context(), w.conn, "orders.dlq")
		must(w.T, err)
		defer counter.close()
		check("while it lasts", 1)
		if before.Messages != 24 || before.Consumers != 1 {
			w.Errorf("the broker says %+v, want 24 ready and 1 consumer", before)
		}
		must(w.T, h.back())
		counter.full(w.Context(), 40, 0)
		check("after it", 0)
		time.Sleep(2 * managementLag)
		if _, lately := hands.of(w.conn, "orders.dlq"); lately {
			w.Error("a look of long ago is remembered")
		}
	})
}
