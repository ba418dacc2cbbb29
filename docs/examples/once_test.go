package examples

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

func TestOnce(t *testing.T) {
	inShop(t, "", func(s *shop) {
		ctx, conn := s.ctx, s.conn
		s.declare(orders)
		db := s.database()
		outbox := openStore(ctx, db)
		plain := s.producer()
		forwarder, err := outbox.NewForwarder(plain, store.ForwardConfig{})
		check(err)
		go forwarder.Run(ctx)
		// begin handler
		handler := consumer.Wrap(consumer.JSON(func(ctx context.Context, d *consumer.Delivery, o Order) error {
			tx := store.TxFrom(ctx)
			if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", o.ID); err != nil {
				return err
			}
			_, err := outbox.PutTx(ctx, tx, producer.Message{Exchange: "shop", RoutingKey: "packed", Body: d.Body}) // published once
			return err
		}), outbox.OnceHandler)

		worker, err := consumer.New(conn, orders, handler, consumer.Config{Concurrency: 16})
		// end handler
		check(err)
		for range 2 {
			s.publish(message("order-7"))
		}
		s.run(worker)
		after(time.Minute)
		var n int
		check(db.QueryRowContext(ctx, "SELECT count(*) FROM orders").Scan(&n))
		if n != 1 {
			s.Errorf("%d rows, want 1", n)
		}
	})
}

func TestOnceWithACall(t *testing.T) {
	inShop(t, "", func(s *shop) {
		conn := s.conn
		s.declare(orders)
		db := s.database()
		outbox := openStore(s.ctx, db)
		var mu sync.Mutex           // both copies may be handled at once
		charged := map[string]int{} // by the idempotency key
		charge := func(ctx context.Context, key string) error {
			mu.Lock()
			defer mu.Unlock()
			charged[key]++
			answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}}
			switch {
			case key == "order-8":
				answer.StatusCode = http.StatusUnprocessableEntity
			case charged[key] == 1:
				return meaning(ctx, nil, errAway)
			case charged[key] < 5:
				answer.StatusCode = http.StatusTooManyRequests
				answer.Header.Set("Retry-After", "5")
			}
			return meaning(ctx, answer, nil)
		}
		// begin call
		note := outbox.OnceHandler(consumer.JSON(func(ctx context.Context, d *consumer.Delivery, o Order) error {
			_, err := store.TxFrom(ctx).ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", o.ID)
			return err
		}))
		handler := func(ctx context.Context, d *consumer.Delivery) error {
			if err := charge(ctx, d.ID); err != nil { // before the transaction, with the message id as idempotency key
				return err // HoldFor, Hold, DeadLetter or a failed attempt, as the answer says
			}
			return note(ctx, d)
		}
		worker, err := consumer.New(conn, orders, handler, consumer.Config{Concurrency: 16})
		// end call
		check(err)
		for _, id := range []string{"order-7", "order-7", "order-8"} {
			s.publish(message(id))
		}
		s.run(worker)
		after(time.Minute)
		s.ready("orders.dlq", 1)
		if worker.Health() != nil {
			s.Error(worker.Health())
		}
		var n int
		check(db.QueryRow("SELECT count(*) FROM orders").Scan(&n))
		mu.Lock()
		defer mu.Unlock()
		if n != 1 || charged["order-7"] < 5 || charged["order-8"] != 1 {
			s.Errorf("%d rows, want 1; charges %v", n, charged)
		}
	})
}
