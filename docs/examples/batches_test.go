package examples

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

func TestBatches(t *testing.T) {
	inShop(t, "", func(s *shop) {
		conn := s.conn
		s.declare(orders)
		var sizes []int
		insert := func(_ context.Context, batch []*consumer.Delivery) error {
			sizes = append(sizes, len(batch))
			return nil
		}
		// begin batch
		worker, err := consumer.NewBatch(conn, orders, func(ctx context.Context, batch []*consumer.Delivery) error {
			return insert(ctx, batch) // a row for each message, in one transaction
		}, consumer.Batch{Size: 100, Linger: 50 * time.Millisecond}, consumer.Config{})
		// end batch
		check(err)
		for range 5 {
			s.publish(producer.Message{})
		}
		s.run(worker)
		after(time.Minute)
		if len(sizes) != 1 || sizes[0] != 5 {
			s.Error(sizes)
		}
	})
}

func TestBatchOutcomes(t *testing.T) {
	inShop(t, "", func(s *shop) {
		conn := s.conn
		s.declare(orders)
		// begin outcomes
		handler := consumer.JSONBatch(func(ctx context.Context, batch []*consumer.Delivery, values []Order) error {
			for i, o := range values {
				if o.Customer == "" {
					batch[i].Fail(consumer.DeadLetter(errors.New("no customer")))
				}
			}
			return nil // the others are done
		})
		worker, err := consumer.NewBatch(conn, orders, handler, consumer.Batch{Size: 100}, consumer.Config{})
		// end outcomes
		check(err)
		s.publish(producer.Message{Body: []byte(`{"customer":"Anna"}`)})
		s.publish(producer.Message{Body: []byte(`{}`)})
		s.run(worker)
		after(time.Minute)
		s.ready("orders.dlq", 1)
	})
}

func TestOnceBatch(t *testing.T) {
	inShop(t, "", func(s *shop) {
		ctx, conn := s.ctx, s.conn
		s.declare(orders)
		db := s.database()
		outbox := openStore(ctx, db)
		handler := consumer.JSON(func(ctx context.Context, d *consumer.Delivery, o Order) error {
			_, err := store.TxFrom(ctx).ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", o.ID)
			return err
		})
		// begin oncebatch
		worker, err := consumer.NewBatch(conn, orders, outbox.OnceBatch(handler), consumer.Batch{Size: 100}, consumer.Config{})
		// end oncebatch
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
