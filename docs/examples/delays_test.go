package examples

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/topology"
)

func message(id string) producer.Message {
	return producer.Message{ID: id, Body: []byte(`{"id":"` + id + `"}`)}
}

func TestDelays(t *testing.T) {
	inShop(t, "4.3", func(s *shop) {
		ctx, conn, publisher := s.ctx, s.conn, s.producer()
		// begin delay
		// Once for each service. Messages can then be delayed to orders, and to shop.
		check(topology.Declare(ctx, conn, topology.Delays{}, topology.Exchange{Name: "shop"}, orders))

		receipt, err := publisher.Publish(ctx, producer.Message{Exchange: "shop", RoutingKey: "order.remind", Delay: 30 * time.Minute})
		// end delay
		check(err)
		if receipt.Place != producer.PlaceQueue {
			s.Error(receipt.Place)
		}
		var seen []time.Duration
		begin := time.Now()
		worker, err := consumer.New(conn, orders, func(ctx context.Context, d *consumer.Delivery) error {
			seen = append(seen, time.Since(begin).Truncate(time.Second))
			if d.Attempt == 1 {
				return consumer.RetryAfter(61*time.Second, errPaper)
			}
			return nil
		}, consumer.Config{})
		check(err)
		s.run(worker)
		after(time.Hour)
		if !slices.Equal(seen, []time.Duration{30 * time.Minute, 30*time.Minute + 61*time.Second}) {
			s.Error(seen)
		}
	})
}

func TestPutAt(t *testing.T) {
	inShop(t, "", func(s *shop) {
		ctx, conn := s.ctx, s.conn
		s.declare(orders)
		outbox := openStore(ctx, s.database())
		order := Order{ID: "7"}
		due := time.Now().Add(time.Minute)
		// begin putat
		m, err := producer.Message{Exchange: "shop", RoutingKey: "order.remind"}.JSON(order)
		check(err)
		id, err := outbox.PutAt(ctx, due, m) // a Forwarder publishes it when it is due
		check(err)
		plain, err := producer.New(conn, producer.Config{})                 // hidden
		check(err)                                                          // hidden
		forwarder, err := outbox.NewForwarder(plain, store.ForwardConfig{}) // hidden
		check(err)                                                          // hidden
		go forwarder.Run(ctx)                                               // hidden
		// the customer has paid
		n, err := outbox.Cancel(ctx, id) // 1: it was cancelled, and is never published
		// end putat
		check(err)
		defer plain.Close()
		if n != 1 {
			s.Errorf("%d were cancelled, want 1", n)
		}
		_, err = outbox.PutAt(ctx, due, m)
		check(err)
		after(50 * time.Second)
		s.ready("orders", 0)
		after(20 * time.Second)
		s.ready("orders", 1)
	})
}

func TestStranded(t *testing.T) {
	inShop(t, "", func(s *shop) {
		ctx, conn, publisher := s.ctx, s.conn, s.producer()
		audit := topology.WorkQueue{Name: "audit", Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}}}
		s.declare(topology.Delays{}, orders, audit)
		failing, err := consumer.New(conn, orders, func(context.Context, *consumer.Delivery) error {
			return consumer.RetryAfter(61*time.Second, errPaper)
		}, consumer.Config{})
		check(err)
		stop := s.run(failing)
		s.publish(producer.Message{}) // to orders and to audit
		after(time.Second)
		stop()
		s.publish(producer.Message{RoutingKey: "orders", Delay: time.Minute})
		check(topology.DeleteAll(ctx, conn, orders))
		bills := topology.Shards{Name: "bills", Count: 8, Waits: orders.Waits}
		s.declare(topology.Delays{}, bills)
		customer := "customer-1"
		for n := 1; bills.Queue(customer) < "bills.04"; n++ {
			customer = fmt.Sprint("customer-", n)
		}
		failing, err = consumer.New(conn, bills, func(context.Context, *consumer.Delivery) error {
			return consumer.RetryAfter(61*time.Second, errPaper)
		}, consumer.Config{})
		check(err)
		stop = s.run(failing)
		s.publish(producer.Message{RoutingKey: bills.Queue(customer), OrderKey: customer})
		after(time.Second)
		stop()
		s.publish(producer.Message{RoutingKey: bills.Queue(customer), OrderKey: customer, Delay: time.Minute})
		for _, shard := range bills.WorkQueues()[4:] {
			check(topology.Delete(ctx, conn, shard))
		}
		bills.Count = 4
		after(2 * time.Minute)
		s.ready("rehop.delays.1s.stranded", 4)
		s.ready("audit", 1)
		s.declare(topology.Delays{}, orders, audit)
		// begin stranded
		worker, err := consumer.New(conn, topology.Delays{}.Stranded(), func(ctx context.Context, d *consumer.Delivery) error {
			m := producer.FromDelivery(d.AMQP())
			queue := d.History.Queue // only this queue wants it again
			if m.Exchange == "" && strings.HasPrefix(m.RoutingKey, "bills.") {
				queue = bills.Queue(m.OrderKey) // its shard may be gone
			}
			if queue != "" {
				m.Origin = topology.Address{Exchange: m.Exchange, RoutingKey: m.RoutingKey}
				m.Exchange, m.RoutingKey = "", queue
			}
			_, err := publisher.Publish(ctx, m)
			return err // an error holds the message
		}, consumer.Config{})
		// end stranded
		check(err)
		s.run(worker)
		after(time.Minute)
		s.ready("orders", 2)
		s.ready("audit", 1)
		s.ready(bills.Queue(customer), 2)
		s.ready("rehop.delays.1s.stranded", 0)
	})
}
