package consumer_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
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

// Rules give the errors of a database and of other libraries their meaning.
func ExampleClassify() {
	rules := []consumer.Rule{
		{Is: sql.ErrNoRows, Then: consumer.Outcome{Action: consumer.ActionDeadLetter}},
		{Is: context.DeadlineExceeded, Then: consumer.Outcome{Action: consumer.ActionRetryAfter, After: 10 * time.Minute}},
		{OlderThan: 24 * time.Hour, Then: consumer.Outcome{Action: consumer.ActionDeadLetter, Cause: rehop.CauseExpired}},
	}
	for _, r := range rules {
		fmt.Println(r)
	}

	classify, err := consumer.Classify(rules...)
	if err != nil {
		panic(err)
	}
	handler := consumer.Wrap(func(_ context.Context, d *consumer.Delivery) error {
		if d.Type == "order.lost" {
			return fmt.Errorf("reading the order: %w", sql.ErrNoRows)
		}
		return errors.New("no paper")
	}, classify)

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

// A handler of batches writes all rows in one transaction. It gives the message that it knows
// to be at fault an error of its own. If the transaction failed, it would return the error, and
// the consumer would call the handler again with halves of the others.
func ExampleJSONBatch() {
	handler := consumer.JSONBatch(func(_ context.Context, batch []*consumer.Delivery, orders []Order) error {
		rows := 0
		for i, o := range orders {
			if o.Number == 0 {
				batch[i].Fail(consumer.DeadLetter(errors.New("no number")))
				continue
			}
			rows++
		}
		fmt.Println("insert", rows, "rows")
		return nil
	})
	// worker, err := consumer.NewBatch(conn, orders, handler, consumer.Batch{Size: 100}, consumer.Config{})

	batch := []*consumer.Delivery{
		{Body: []byte(`{"number": 1}`)},
		{Body: []byte(`number 2`)},
		{Body: []byte(`{}`)},
	}
	fmt.Println(consumer.OutcomeOf(handler(context.Background(), batch)))
	for _, d := range batch {
		fmt.Println(consumer.OutcomeOf(d.Err()))
	}
	// Output:
	// insert 1 rows
	// done
	// done
	// dead-letter (undecodable)
	// dead-letter
}

// A message that needs another one first comes back later. After three times it is a
// dead letter.
func ExampleSnooze() {
	classify, err := consumer.Classify(consumer.Rule{Snoozed: 3, Then: consumer.Outcome{Action: consumer.ActionDeadLetter}})
	if err != nil {
		panic(err)
	}
	handler := consumer.Wrap(func(_ context.Context, d *consumer.Delivery) error {
		return consumer.Snooze(time.Minute, "the customer is not there yet")
	}, classify)

	for _, snoozes := range []int{0, 3} {
		d := &consumer.Delivery{History: xdeath.History{Snoozes: snoozes}}
		fmt.Println(consumer.OutcomeOf(handler(context.Background(), d)))
	}
	// Output:
	// snooze 1m0s (the customer is not there yet)
	// dead-letter
}

// JSON decodes the body. A body that cannot be decoded is a dead letter.
func ExampleJSON() {
	handler := consumer.JSON(func(_ context.Context, _ *consumer.Delivery, o Order) error {
		fmt.Println("order", o.Number)
		return nil
	})
	for _, body := range []string{`{"number": 7}`, `number 7`} {
		err := handler(context.Background(), &consumer.Delivery{Body: []byte(body)})
		fmt.Println(consumer.OutcomeOf(err))
	}
	// Output:
	// order 7
	// done
	// dead-letter (undecodable)
}

// Decode is for bodies that are not JSON.
func ExampleDecode() {
	decode := func(d *consumer.Delivery) (o Order, err error) {
		return o, xml.Unmarshal(d.Body, &o)
	}
	handler := consumer.Decode(decode, func(_ context.Context, _ *consumer.Delivery, o Order) error {
		fmt.Println("order", o.Number)
		return nil
	})
	for _, body := range []string{"<Order><Number>7</Number></Order>", "number 7"} {
		err := handler(context.Background(), &consumer.Delivery{Body: []byte(body)})
		fmt.Println(consumer.OutcomeOf(err))
	}
	// Output:
	// order 7
	// done
	// dead-letter (undecodable)
}

// DecodeBatch is for batches of bodies that are not JSON.
func ExampleDecodeBatch() {
	decode := func(d *consumer.Delivery) (int, error) { return strconv.Atoi(string(d.Body)) }
	handler := consumer.DecodeBatch(decode, func(_ context.Context, _ []*consumer.Delivery, numbers []int) error {
		fmt.Println("insert", numbers)
		return nil
	})
	batch := []*consumer.Delivery{{Body: []byte("7")}, {Body: []byte("seven")}, {Body: []byte("8")}}
	fmt.Println(handler(context.Background(), batch))
	for _, d := range batch {
		fmt.Println(consumer.OutcomeOf(d.Err()))
	}
	// Output:
	// insert [7 8]
	// <nil>
	// done
	// dead-letter (undecodable)
	// done
}

// No attempt can ever succeed: the message goes to the dead-letter queue at once.
func ExampleDeadLetter() {
	errUnknownCustomer := errors.New("no such customer")
	handler := func(context.Context, *consumer.Delivery) error {
		return consumer.DeadLetter(errUnknownCustomer)
	}
	err := handler(context.Background(), &consumer.Delivery{})
	fmt.Println(consumer.OutcomeOf(err))
	fmt.Println(errors.Is(err, errUnknownCustomer))
	// Output:
	// dead-letter
	// true
}

// A card that was refused may be covered tomorrow. This attempt has failed.
func ExampleRetryAfter() {
	errRefused := errors.New("the card is not covered")
	charge := func() error { return errRefused }
	handler := func(context.Context, *consumer.Delivery) error {
		if err := charge(); errors.Is(err, errRefused) {
			return consumer.RetryAfter(24*time.Hour, err)
		}
		return nil
	}
	fmt.Println(consumer.OutcomeOf(handler(context.Background(), &consumer.Delivery{})))
	// Output: retry-after 24h0m0s
}

// A service asks for the call once more in two minutes. The message keeps its place until then,
// and no attempt is spent.
func ExampleHoldFor() {
	handler := func(context.Context, *consumer.Delivery) error {
		answer := http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"120"}}}
		if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil {
			return consumer.HoldFor(time.Duration(seconds)*time.Second, errors.New("too many requests"))
		}
		return nil
	}
	fmt.Println(consumer.OutcomeOf(handler(context.Background(), &consumer.Delivery{})))
	// Output: hold-for 2m0s
}

// The printer is away for all messages: the consumer holds this one, and spends no attempt.
func ExampleHold() {
	printer := func() error { return &net.OpError{Op: "dial", Err: errors.New("connection refused")} }
	handler := func(context.Context, *consumer.Delivery) error {
		err := printer()
		if away := (*net.OpError)(nil); errors.As(err, &away) {
			return consumer.Hold(err)
		}
		return err
	}
	fmt.Println(consumer.OutcomeOf(handler(context.Background(), &consumer.Delivery{})))
	// Output: hold
}

// A reminder of an order that is paid has no work to do.
func ExampleDiscard() {
	paid := map[string]bool{"order-7": true}
	handler := func(_ context.Context, d *consumer.Delivery) error {
		if paid[d.CorrelationID] {
			return consumer.Discard("the order is paid")
		}
		return nil
	}
	fmt.Println(consumer.OutcomeOf(handler(context.Background(), &consumer.Delivery{CorrelationID: "order-7"})))
	// Output: discard (the order is paid)
}

// A wrapper runs around each run of a handler. The first one sees the final error.
func ExampleWrap() {
	measure := func(next consumer.Handler) consumer.Handler {
		return func(ctx context.Context, d *consumer.Delivery) error {
			err := next(ctx, d)
			fmt.Println(d.ID, consumer.OutcomeOf(err))
			return err
		}
	}
	permanent, err := consumer.Classify(consumer.Rule{Is: sql.ErrNoRows, Then: consumer.Outcome{Action: consumer.ActionDeadLetter}})
	if err != nil {
		panic(err)
	}
	handler := consumer.Wrap(func(context.Context, *consumer.Delivery) error {
		return sql.ErrNoRows
	}, measure, permanent)

	_ = handler(context.Background(), &consumer.Delivery{ID: "order-7"})
	// Output: order-7 dead-letter
}

// The rules of a batch give the error of each message its meaning.
func ExampleClassifyBatch() {
	classify, err := consumer.ClassifyBatch(
		consumer.Rule{Is: sql.ErrNoRows, Then: consumer.Outcome{Action: consumer.ActionDeadLetter}},
		consumer.Rule{Is: driver.ErrBadConn, Then: consumer.Outcome{Action: consumer.ActionHold}},
	)
	if err != nil {
		panic(err)
	}
	handler := classify(func(_ context.Context, batch []*consumer.Delivery) error {
		batch[1].Fail(sql.ErrNoRows)
		return driver.ErrBadConn // for all others
	})

	batch := []*consumer.Delivery{{ID: "a"}, {ID: "b"}, {ID: "c"}}
	fmt.Println(consumer.OutcomeOf(handler(context.Background(), batch)))
	fmt.Println(consumer.OutcomeOf(batch[1].Err()))
	// Output:
	// hold
	// dead-letter
}

// A message of a batch that has failed gets an error of its own. The others are done.
func ExampleDelivery_Fail() {
	handler := func(_ context.Context, batch []*consumer.Delivery) error {
		for _, d := range batch {
			if d.CorrelationID == "" {
				d.Fail(consumer.DeadLetter(errors.New("it belongs to no order")))
			}
		}
		return nil
	}
	// worker, err := consumer.NewBatch(conn, orders, handler, consumer.Batch{Size: 100}, consumer.Config{})

	batch := []*consumer.Delivery{{CorrelationID: "order-7"}, {}}
	fmt.Println(handler(context.Background(), batch))
	for _, d := range batch {
		fmt.Println(consumer.OutcomeOf(d.Err()))
	}
	// Output:
	// <nil>
	// done
	// dead-letter
}
