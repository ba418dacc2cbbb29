package examples

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

func TestFAQRetryThreeTimes(t *testing.T) {
	inShop(t, "", func(s *shop) {
		ctx, conn := s.ctx, s.conn
		var seen []time.Duration
		begin := time.Now()
		print := func(*consumer.Delivery) error {
			seen = append(seen, time.Since(begin).Truncate(time.Second))
			return errPaper
		}
		// begin retry
		tickets := topology.WorkQueue{Name: "tickets", Waits: delay.Schedule{10 * time.Second, time.Minute, 10 * time.Minute}}
		check(topology.Declare(ctx, conn, tickets)) // tickets, its waits, and tickets.dlq

		worker, err := consumer.New(conn, tickets, func(ctx context.Context, d *consumer.Delivery) error {
			return print(d) // an error: three retries, then tickets.dlq
		}, consumer.Config{})
		// end retry
		check(err)
		s.run(worker)
		s.publish(producer.Message{RoutingKey: "tickets"})
		after(time.Hour)
		if !slices.Equal(seen, []time.Duration{0, 10 * time.Second, 70 * time.Second, 670 * time.Second}) {
			s.Error(seen)
		}
		s.ready("tickets.dlq", 1)
	})
}

// The x-death of a client does not change the number of the attempt.
func TestFAQAttempt(t *testing.T) {
	for _, version := range []string{"3.10", "4.0", "4.3"} {
		inShop(t, version, func(s *shop) {
			conn := s.conn
			s.declare(orders)
			var seen []int
			alert := func(d *consumer.Delivery) { seen = append(seen, d.Attempt) }
			handle := func(context.Context, *consumer.Delivery) error { return errPaper }
			worker, err := consumer.New(conn, orders, func(ctx context.Context, d *consumer.Delivery) error {
				if d.Attempt > 3 { // 1, 2, 3 on every version of the broker
					alert(d)
				}
				return handle(ctx, d)
			}, consumer.Config{})
			check(err)
			s.run(worker)
			forged := amqp.Table{"x-death": []any{amqp.Table{"queue": "orders", "reason": "rejected", "count": int64(7)}}}
			_, err = s.broker.Publish(rehoptest.Message{Exchange: "shop", RoutingKey: "order.paid", Publishing: amqp.Publishing{Headers: forged}})
			check(err)
			after(time.Hour)
			if !slices.Equal(seen, []int{4, 5}) {
				s.Error(version, seen)
			}
		})
	}
}

func TestFAQDelaysOfDifferentLength(t *testing.T) {
	inShop(t, "4.0", func(s *shop) {
		ctx, conn, publisher := s.ctx, s.conn, s.producer()
		var seen []string
		begin := time.Now()
		var at []time.Duration
		// begin delays
		check(topology.Declare(ctx, conn, topology.Delays{}, topology.Exchange{Name: "shop"}, orders))

		for _, d := range []time.Duration{time.Hour, 3 * time.Minute} { // the second message comes first
			_, err := publisher.Publish(ctx, producer.Message{Exchange: "shop", RoutingKey: "order.remind", ID: d.String(), Delay: d})
			check(err)
		}
		// end delays
		worker, err := consumer.New(conn, orders, func(_ context.Context, d *consumer.Delivery) error {
			seen = append(seen, d.ID)
			at = append(at, time.Since(begin).Truncate(time.Second))
			return nil
		}, consumer.Config{})
		check(err)
		s.run(worker)
		after(2 * time.Hour)
		if !slices.Equal(seen, []string{"3m0s", "1h0m0s"}) || !slices.Equal(at, []time.Duration{3 * time.Minute, time.Hour}) {
			s.Error(seen, at)
		}
	})
}

func TestFAQConflict(t *testing.T) {
	inShop(t, "", func(s *shop) {
		ctx, conn := s.ctx, s.conn
		session, err := conn.Session(ctx, connection.Consume)
		check(err)
		_, err = session.Channel().QueueDeclare("legacy", true, false, false, false, amqp.Table{"x-dead-letter-exchange": "legacy.dlx"})
		check(err)
		var advice string
		// begin conflict
		err = topology.Declare(ctx, conn, topology.WorkQueue{Name: "legacy", Waits: delay.Default()})
		var conflict *topology.ConflictError
		if errors.As(err, &conflict) {
			slog.Error("cannot declare", "queue", conflict.Name, "argument", conflict.Argument,
				"want", conflict.Want, "have", conflict.Have, "advice", conflict.Advice)
			advice = conflict.Advice // hidden
		}

		// Retries and dead letters for the queue as it is:
		check(topology.Declare(ctx, conn, topology.WorkQueue{Name: "legacy", Existing: true, Waits: delay.Default()}))
		// end conflict
		if conflict == nil || conflict.Argument == "" || advice == "" {
			s.Errorf("%v: %+v", err, conflict)
		}
		s.ready("legacy.dlq", 0)
	})
}

func TestFAQReconnect(t *testing.T) {
	inShop(t, "", func(s *shop) {
		ctx, cancel := context.WithCancel(s.ctx)
		defer cancel()
		urls := []string{"amqp://guest:guest@broker"}
		var seen []string
		handle := func(_ context.Context, d *consumer.Delivery) error { seen = append(seen, d.ID); return nil }
		// begin reconnect
		conn, err := connection.Open(ctx, connection.Config{
			URLs: urls, // all nodes of the cluster
			OnConnect: func(ctx context.Context, conn *connection.Conn) error { // after each connect and reconnect
				return topology.Declare(ctx, conn, topology.Exchange{Name: "shop"}, orders)
			},
			Dial: s.broker.Dial, // hidden
		})
		check(err)
		worker, err := consumer.New(conn, orders, handle, consumer.Config{})
		check(err)
		go worker.Run(ctx) // goes on after a lost connection, for as long as ctx lives
		// end reconnect
		defer conn.Close()
		after(time.Second)
		s.publish(message("before"))
		after(time.Second) // for the ack
		s.broker.Kill()
		after(10 * time.Minute)
		s.broker.Start()
		after(time.Minute)
		s.broker.DeleteQueue("orders")
		s.broker.DeleteExchange("shop")
		s.broker.Cut("")
		after(time.Minute)
		s.publish(message("after"))
		after(time.Minute)
		if !slices.Equal(seen, []string{"before", "after"}) {
			s.Error(seen)
		}
		cancel()
		after(time.Minute)
	})
}

func TestFAQPublish(t *testing.T) {
	inShop(t, "", func(s *shop) {
		ctx, publisher := s.ctx, s.producer()
		s.declare(orders)
		var outcomes []string
		accepted := func(string) { outcomes = append(outcomes, "safe") }
		publish := func(m producer.Message) {
			// begin publish
			receipt, err := publisher.Publish(ctx, m)
			switch {
			case err == nil:
				accepted(receipt.ID) // the queues have confirmed it
			case errors.Is(err, producer.ErrReturned):
				slog.Error("no queue is bound for this key, or the exchange does not exist", "key", m.RoutingKey)
				outcomes = append(outcomes, "returned") // hidden
			case errors.Is(err, producer.ErrUnconfirmed):
				slog.Error("no answer: it may be in its queue", "id", receipt.ID)
				outcomes = append(outcomes, "unconfirmed") // hidden
			default:
				slog.Error("not published", "error", err)
				outcomes = append(outcomes, "other") // hidden
			}
			// end publish
		}
		publish(producer.Message{Exchange: "shop", RoutingKey: "order.paid"})
		publish(producer.Message{Exchange: "shop", RoutingKey: "refund.paid"})
		publish(producer.Message{Exchange: "nowhere", RoutingKey: "order.paid"})
		if !slices.Equal(outcomes, []string{"safe", "returned", "returned"}) {
			s.Error(outcomes)
		}
	})
}

func TestFAQBlocked(t *testing.T) {
	inShop(t, "", func(s *shop) {
		ctx, conn := s.ctx, s.conn
		s.declare(orders)
		outbox := openStore(ctx, s.database())
		m := producer.Message{Exchange: "shop", RoutingKey: "order.paid"}
		s.broker.Block("low on memory")
		begin := time.Now()
		// begin blocked
		publisher, err := producer.New(conn, producer.Config{Fallback: []producer.Sink{outbox}})
		check(err)
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		receipt, err := publisher.Publish(ctx, m) // returns within 2 s: the store has the message
		// end blocked
		check(err)
		if d := time.Since(begin); d > 2*time.Second || receipt.Place != producer.PlaceFallback {
			s.Errorf("after %v in %v", d, receipt.Place)
		}
		s.broker.Unblock()
		check(publisher.Close())
	})
}

func TestFAQConsumerTimeout(t *testing.T) {
	for _, version := range []string{"4.0", "4.3"} {
		inShop(t, version, func(s *shop) {
			ctx, conn := s.ctx, s.conn
			runs := 0
			render := func(ctx context.Context, _ []byte) error {
				runs++
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(90 * time.Minute):
					return nil
				}
			}
			// begin timeout
			films := topology.WorkQueue{Name: "films", Waits: delay.Default(), ConsumerTimeout: 3 * time.Hour}
			check(topology.Declare(ctx, conn, films))

			worker, err := consumer.New(conn, films, func(ctx context.Context, d *consumer.Delivery) error {
				return render(ctx, d.Body) // ctx ends after 2 h 24 min, before the broker takes the message away
			}, consumer.Config{})
			// end timeout
			check(err)
			s.run(worker)
			s.publish(producer.Message{RoutingKey: "films"})
			after(5 * time.Hour)
			if runs != 1 {
				s.Errorf("%s: %d runs, want 1", version, runs)
			}
			s.ready("films", 0)
			s.ready("films.dlq", 0)
		})
	}
}

func TestFAQStop(t *testing.T) {
	inShop(t, "", func(s *shop) {
		conn := s.conn
		s.declare(orders)
		done := false
		handle := func(ctx context.Context, _ *consumer.Delivery) error {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(5 * time.Second):
				done = true
				return nil
			}
		}
		s.publish(message("order-7"))
		ctx, stop := context.WithTimeout(s.ctx, time.Second)
		defer stop()
		worker, err := consumer.New(conn, orders, handle, consumer.Config{DrainTimeout: 20 * time.Second})
		check(err)
		err = worker.Run(ctx) // ctx ends at SIGTERM; nil: the handlers have returned, and the queue has the acks
		check(err)
		if !done {
			s.Error("the handler had not returned")
		}
		after(time.Minute)
		s.ready("orders", 0)
	})
}

// The schedule of a push consumer of RocketMQ, with unordered messages.
func TestComingFromRocketMQ(t *testing.T) {
	inShop(t, "", func(s *shop) {
		const m = time.Minute
		attempts := 0
		// begin rocketmq
		waits := delay.Schedule{10 * time.Second, 30 * time.Second, m, 2 * m, 3 * m, 4 * m, 5 * m, 6 * m, 7 * m, 8 * m, 9 * m, 10 * m, 20 * m, 30 * m, 60 * m, 120 * m}
		orders := topology.WorkQueue{Name: "orders", Waits: waits} // 17 attempts, then orders.dlq
		// end rocketmq
		s.declare(orders)
		worker, err := consumer.New(s.conn, orders, func(context.Context, *consumer.Delivery) error {
			attempts++
			return errPaper
		}, consumer.Config{})
		check(err)
		s.run(worker)
		s.publish(producer.Message{RoutingKey: "orders"})
		after(6 * time.Hour)
		if attempts != 17 {
			s.Errorf("%d attempts, want 17", attempts)
		}
		s.ready("orders.dlq", 1)
	})
}
