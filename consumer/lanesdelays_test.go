package consumer_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// A message reaches its lane through exact delays, and comes back into it.
func TestAMessageWithAnExactDelayReachesItsLane(t *testing.T) {
	everywhere(t, func(w *fixture) {
		shop := topology.Exchange{Name: "shop"}
		l := topology.Lanes{Name: "sms", Type: w.orders.Type, Waits: delay.Schedule{5 * time.Minute},
			Bindings: []topology.Binding{{Exchange: shop.Name, RoutingKey: "order.#"}},
			Lanes: []topology.Lane{{Name: "vip"}, {Name: "normal"},
				{Name: "bulk", Bindings: []topology.Binding{{Exchange: shop.Name, RoutingKey: "newsletter.#"}}}}}
		w.declare(topology.Delays{Max: time.Hour}, shop, l)
		p, err := producer.New(w.conn, producer.Config{})
		if err != nil {
			w.Fatal(err)
		}
		defer func() { _ = p.Close() }()
		type start struct {
			lane  string
			after time.Duration // the publishing, or the attempt before
		}
		began, starts := map[string]time.Time{}, map[string][]start{}
		_, stop := w.startOn(l, func(_ context.Context, d *consumer.Delivery) error {
			starts[d.ID] = append(starts[d.ID], start{d.Queue, time.Since(began[d.ID])})
			began[d.ID] = time.Now()
			if d.Attempt == 1 {
				return consumer.RetryAfter(61*time.Second, errBroken)
			}
			return nil
		}, consumer.Config{})
		time.Sleep(time.Minute)
		const wait, second = 90 * time.Second, time.Second // a grain
		again := 61 * time.Second
		if w.version == "3.10" { // its delays are not as safe as a wait
			again = 5 * time.Minute
		}
		want := map[string]string{}
		for _, tt := range []struct {
			to   producer.Message
			lane string
		}{
			{producer.Message{Exchange: shop.Name, RoutingKey: "order.new", Priority: 9}, "sms.vip"},
			{producer.Message{Exchange: shop.Name, RoutingKey: "order.new"}, "sms.normal"},
			{producer.Message{Exchange: shop.Name, RoutingKey: "order.new", Priority: 1}, "sms.bulk"},
			{producer.Message{Exchange: shop.Name, RoutingKey: "newsletter.may", Priority: 9}, "sms.bulk"},
			{producer.Message{RoutingKey: "sms.vip", Priority: 1}, "sms.vip"},
			{producer.Message{RoutingKey: "sms.normal"}, "sms.normal"},
		} {
			tt.to.ID, tt.to.Delay = fmt.Sprintf("%s %s %d", tt.to.Exchange, tt.to.RoutingKey, tt.to.Priority), wait
			want[tt.to.ID], began[tt.to.ID] = tt.lane, time.Now()
			if _, err := p.Publish(w.Context(), tt.to); err != nil {
				w.Fatal(err)
			}
		}
		time.Sleep(wait + again + time.Minute)
		w.stopped(stop)
		for id, lane := range want {
			got := starts[id]
			if len(got) != 2 {
				w.Errorf("%s: handled %v, want twice", id, got)
				continue
			}
			for i, d := range []time.Duration{wait, again} {
				if got[i].lane != lane || got[i].after < d || got[i].after > d+2*second {
					w.Errorf("%s: attempt %d is in %s after %v, want %s after %v", id, i+1, got[i].lane, got[i].after, lane, d)
				}
			}
		}
	})
}
