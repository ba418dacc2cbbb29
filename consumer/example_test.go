package consumer_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// Order is what the messages of these examples carry.
type Order struct {
	Number int `json:"number"`
}

// The handlers of several types of messages share a queue. A test calls them with
// deliveries made by hand.
func ExampleMux() {
	handler := consumer.Mux{
		"order.paid": consumer.JSON(func(_ context.Context, _ *consumer.Delivery, o Order) error {
			fmt.Println("paid:", o.Number)
			return nil
		}),
		"order.refunded": consumer.JSON(func(_ context.Context, _ *consumer.Delivery, o Order) error {
			fmt.Println("refunded:", o.Number)
			return nil
		}),
	}.Handle

	for _, d := range []*consumer.Delivery{
		{Type: "order.paid", Body: []byte(`{"number": 1}`)},
		{Type: "order.refunded", Body: []byte(`{"number": 2}`)},
		{Type: "order.paid", Body: []byte(`number 3`)},
		{Type: "order.lost", Body: []byte(`{"number": 4}`)},
	} {
		err := handler(context.Background(), d)
		fmt.Println(consumer.OutcomeOf(err))
	}
	// Output:
	// paid: 1
	// done
	// refunded: 2
	// done
	// dead-letter (undecodable)
	// dead-letter (unhandled)
}

// Rules say what the errors of a database and of others mean.
func ExampleClassify() {
	rules := []consumer.Rule{
		{Is: sql.ErrNoRows, Then: consumer.Outcome{Action: consumer.ActionDeadLetter}},
		{Is: context.DeadlineExceeded, Then: consumer.Outcome{Action: consumer.ActionRetryAfter, After: 10 * time.Minute}},
		{OlderThan: 24 * time.Hour, Then: consumer.Outcome{Action: consumer.ActionDeadLetter, Cause: xdeath.CauseExpired}},
	}
	for _, r := range rules {
		fmt.Println(r)
	}

	handler := consumer.Wrap(func(_ context.Context, d *consumer.Delivery) error {
		if d.Type == "order.lost" {
			return fmt.Errorf("reading the order: %w", sql.ErrNoRows)
		}
		return errors.New("no paper")
	}, consumer.Classify(rules...))

	for _, d := range []*consumer.Delivery{
		{Type: "order.lost", Timestamp: time.Now()},
		{Type: "order.paid", Timestamp: time.Now()},
		{Type: "order.paid", Timestamp: time.Now().Add(-25 * time.Hour)},
	} {
		fmt.Println(consumer.OutcomeOf(handler(context.Background(), d)))
	}
	// Output:
	// "sql: no rows in result set": dead-letter
	// "context deadline exceeded": retry-after 10m0s
	// any error, older than 24h0m0s: dead-letter (expired)
	// dead-letter
	// retry
	// dead-letter (expired)
}

// A handler of batches writes all rows in one transaction. A message that it can name gets
// an outcome of its own; a plain error of the transaction would have the batch run again in
// halves.
func ExampleJSONBatch() {
	handler := consumer.JSONBatch(func(_ context.Context, batch []*consumer.Delivery, orders []Order) error {
		errs := make(consumer.BatchErrors, len(batch))
		for i, o := range orders {
			if o.Number == 0 {
				errs[i] = consumer.DeadLetter(errors.New("no number"))
			}
		}
		fmt.Println("insert", len(orders), "rows")
		return errs
	})
	// worker, err := consumer.NewBatch(conn, orders, handler, consumer.Config{Batch: consumer.Batch{Size: 100}})

	err := handler(context.Background(), []*consumer.Delivery{
		{Body: []byte(`{"number": 1}`)},
		{Body: []byte(`number 2`)},
		{Body: []byte(`{}`)},
	})
	var errs consumer.BatchErrors
	if errors.As(err, &errs) {
		for _, err := range errs {
			fmt.Println(consumer.OutcomeOf(err))
		}
	}
	// Output:
	// insert 2 rows
	// done
	// dead-letter (undecodable)
	// dead-letter
}

// The messages of a customer are handled in their order, those of other customers beside
// them.
func ExampleConfig_keyLimit() {
	cfg := consumer.Config{
		Concurrency: 16,
		KeyLimit:    1,
		Key:         func(d *consumer.Delivery) string { return d.CorrelationID }, // by default d.OrderKey
	}
	fmt.Println(cfg.KeyLimit, cfg.Key(&consumer.Delivery{CorrelationID: "customer-7"}))
	// Output: 1 customer-7
}

// A message that needs another one first comes back later. After three times it is a
// dead letter.
func ExampleSnooze() {
	handler := consumer.Wrap(func(_ context.Context, d *consumer.Delivery) error {
		return consumer.Snooze(time.Minute, "the customer is not there yet")
	}, consumer.Classify(consumer.Rule{Snoozed: 3, Then: consumer.Outcome{Action: consumer.ActionDeadLetter}}))

	for _, snoozes := range []int{0, 3} {
		d := &consumer.Delivery{History: xdeath.History{Snoozes: snoozes}}
		fmt.Println(consumer.OutcomeOf(handler(context.Background(), d)))
	}
	// Output:
	// snooze 1m0s (the customer is not there yet)
	// dead-letter
}

// While a consumer is paused other consumers get the messages, and its Health is degraded.
func ExampleConsumer_Pause() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	broker, err := rehoptest.NewBroker(rehoptest.Config{}) // a service has a real one
	check(err)
	defer broker.Close()
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: broker.Dial})
	check(err)
	defer conn.Close()
	orders := topology.WorkQueue{Name: "orders"}
	check(topology.Declare(ctx, conn, orders))
	worker, err := consumer.New(conn, orders, func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{})
	check(err)
	ran := make(chan error, 1)
	go func() { ran <- worker.Run(ctx) }()

	worker.Pause()
	var health *connection.HealthError
	for !errors.As(worker.Health(), &health) || !health.Degraded {
		time.Sleep(time.Millisecond) // until it has begun to consume
	}
	fmt.Println(health.Cause)
	worker.Resume()
	stop()
	fmt.Println(<-ran)
	// Output:
	// consumer: queue "orders": paused by Pause
	// <nil>
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
