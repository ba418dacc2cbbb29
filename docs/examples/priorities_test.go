package examples

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

func TestLanes(t *testing.T) {
	inShop(t, "", func(s *shop) {
		ctx, conn, publisher := s.ctx, s.conn, s.producer()
		var mu sync.Mutex // the four are handled at once
		var seen []string
		sendSMS := func(_ context.Context, d *consumer.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, d.Queue)
			return nil
		}
		// begin lanes
		sms := topology.Lanes{
			Name:     "sms",
			Lanes:    []topology.Lane{{Name: "vip"}, {Name: "normal"}, {Name: "bulk"}},
			Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "sms.#"}},
			Waits:    delay.Default(),
		}
		check(topology.Declare(ctx, conn, topology.Exchange{Name: "shop"}, sms))

		receipt, err := publisher.Publish(ctx, producer.Message{Exchange: "shop", RoutingKey: "sms.paid", Priority: 9}) // to the lane vip

		worker, err2 := consumer.New(conn, sms, sendSMS, consumer.Config{
			Concurrency: 16,
			Lanes:       map[string]consumer.LaneLimits{"bulk": {Concurrency: 4, Rate: 50}},
		})
		// end lanes
		check(err)
		check(err2)
		if receipt.Place != producer.PlaceQueue {
			s.Error(receipt.Place)
		}
		for _, p := range []uint8{1, 4, 9} {
			s.publish(producer.Message{Exchange: "shop", RoutingKey: "sms.paid", Priority: p})
		}
		s.run(worker)
		after(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(seen)
		if !slices.Equal(seen, []string{"sms.bulk", "sms.normal", "sms.vip", "sms.vip"}) {
			s.Error(seen)
		}
	})
}

func TestShares(t *testing.T) {
	inShop(t, "", func(s *shop) {
		ctx, conn := s.ctx, s.conn
		// begin shares
		sms := topology.Lanes{
			Name:  "sms",
			Lanes: []topology.Lane{{Name: "vip", Share: 6}, {Name: "normal", Share: 3}, {Name: "bulk", Share: 1}},
			Waits: delay.Default(),
		}
		// end shares
		check(topology.Declare(ctx, conn, sms))
		// begin native
		quick := topology.WorkQueue{Name: "quick", Type: topology.Classic, NativePriority: true, Waits: delay.Default()}
		// end native
		check(topology.Declare(ctx, conn, quick))
	})
}
