package examples

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// The first attempt of the first message fails, and two consumers are there.
func TestOrder(t *testing.T) {
	inShop(t, "", func(s *shop) {
		ctx, conn, publisher := s.ctx, s.conn, s.producer()
		var seen []string
		handle := func(_ context.Context, d *consumer.Delivery) error {
			seen = append(seen, string(d.Body))
			time.Sleep(time.Second)
			if len(seen) == 1 {
				return errPaper
			}
			return nil
		}
		customer, body := "customer-7", []byte("first")
		// begin ordered
		orders := topology.WorkQueue{
			Name:                 "orders",
			Bindings:             []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}},
			Waits:                delay.Fixed(5*time.Second, 3), // seconds: a failed message keeps its place while it waits
			SingleActiveConsumer: true,                          // one process at a time
		}
		check(topology.Declare(ctx, conn, topology.Exchange{Name: "shop"}, orders))

		receipt, err := publisher.Publish(ctx, producer.Message{Exchange: "shop", RoutingKey: "order.paid", OrderKey: customer, Body: body})
		check(err)

		worker, err := consumer.New(conn, orders, handle, consumer.Config{Concurrency: 16, KeyLimit: 1, RetryInPlace: true})
		// end ordered
		check(err)
		for i := range 3 {
			s.publish(producer.Message{OrderKey: customer, Body: fmt.Append(nil, i)})
		}
		second, err := consumer.New(conn, orders, handle, consumer.Config{Concurrency: 16, Prefetch: 2, KeyLimit: 1, RetryInPlace: true})
		check(err)
		s.run(worker)
		s.run(second)
		after(time.Minute)
		if !slices.Equal(seen, []string{"first", "first", "0", "1", "2"}) || receipt.ID == "" {
			s.Error(seen)
		}
	})
}

func TestShards(t *testing.T) {
	inShop(t, "", func(s *shop) {
		ctx, conn, publisher := s.ctx, s.conn, s.producer()
		var seen []string
		handle := func(_ context.Context, d *consumer.Delivery) error {
			seen = append(seen, d.Queue)
			return nil
		}
		customer, body := "customer-17", []byte("first")
		// begin shards
		bills := topology.Shards{Name: "bills", Count: 4, Waits: delay.Fixed(5*time.Second, 3), SingleActiveConsumer: true}
		check(topology.Declare(ctx, conn, bills))

		receipt, err := publisher.Publish(ctx, producer.Message{RoutingKey: bills.Queue(customer), OrderKey: customer, Body: body})
		check(err)

		worker, err := consumer.New(conn, bills, handle, consumer.Config{Concurrency: 16, KeyLimit: 1, RetryInPlace: true})
		// end shards
		check(err)
		s.run(worker)
		after(time.Minute)
		if !slices.Equal(seen, []string{"bills.01"}) || receipt.Place != producer.PlaceQueue {
			s.Error(seen, receipt)
		}
	})
}

func TestFewerShards(t *testing.T) {
	inShop(t, "", func(s *shop) {
		ctx, conn := s.ctx, s.conn
		bills := topology.Shards{Name: "bills", Count: 8, SingleActiveConsumer: true}
		s.declare(bills)
		fewer := bills
		fewer.Count = 4
		// begin fewer
		for _, shard := range bills.WorkQueues()[4:] { // of the former Count
			check(topology.Delete(ctx, conn, shard))
		}
		// end fewer
		if drift, err := topology.Verify(ctx, conn, fewer); err != nil || len(drift.Differences) > 0 {
			s.Error(drift, err)
		}
	})
}
