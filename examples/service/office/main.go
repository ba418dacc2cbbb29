// Office bills orders, VIPs first and each customer's in order, and archives in batches
// what was billed. Each order is billed once, whatever is delivered twice or killed in between.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/examples/service/order"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/service"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/sqlite"
)

const tables = `
CREATE TABLE IF NOT EXISTS bills (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT, customer TEXT, of_customer INTEGER);
CREATE TABLE IF NOT EXISTS archive (id TEXT)`

func main() { order.Main(run) }

func run(ctx context.Context) error {
	db, err := sqlite.Open(os.Getenv("OFFICE_DB"))
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, tables); err != nil {
		return err
	}
	conn, err := order.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	outbox, err := store.Open(ctx, db, store.SQLite, store.Config{KeepOrder: true, Conn: conn})
	if err != nil {
		return err
	}
	publisher, err := producer.New(conn, producer.Config{})
	if err != nil {
		return err
	}
	defer publisher.Close()

	billing, err1 := consumer.New(conn, order.Billing, bill(outbox), consumer.Config{Concurrency: 16, KeyLimit: 1, RetryInPlace: true})
	archive, err2 := consumer.NewBatch(conn, order.Archive, outbox.OnceBatch(consumer.JSON(keep)), consumer.Batch{Linger: 50 * time.Millisecond}, consumer.Config{})
	forwarder, err3 := outbox.NewForwarder(publisher, store.ForwardConfig{})
	operator, err4 := consumer.Operator(billing, archive)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}

	ops := &http.Server{Addr: os.Getenv("OFFICE_ADDR"), Handler: operator, ReadHeaderTimeout: 5 * time.Second}
	return service.Service{Stages: [][]service.Part{
		{billing, archive},
		{forwarder, service.Server(ops.ListenAndServe, ops.Shutdown)}, // operators see the stop
	}}.Run(ctx)
}

// bill charges an order, notes it, and says so. The gateway is called before the
// transaction, which would keep all others waiting; the id of the message tells it
// which charges it has had.
func bill(outbox *store.Store) consumer.Handler {
	note := outbox.OnceHandler(consumer.JSON(func(ctx context.Context, d *consumer.Delivery, o order.Order) error {
		tx := store.TxFrom(ctx)
		if _, err := tx.ExecContext(ctx, "INSERT INTO bills (id, customer, of_customer) VALUES (?, ?, ?)", o.ID, o.Customer, o.Number); err != nil {
			return err
		}
		_, err := outbox.PutTx(ctx, tx, producer.Message{Exchange: order.Exchange, RoutingKey: order.Billed, ID: o.ID + "-billed", OrderKey: o.Customer, Body: d.Body})
		return err
	}))
	return func(ctx context.Context, d *consumer.Delivery) error {
		if err := charge(ctx, d.ID); err != nil {
			return err
		}
		return note(ctx, d)
	}
}

// keep archives an order that was billed, in a transaction with up to a hundred others.
func keep(ctx context.Context, _ *consumer.Delivery, o order.Order) error {
	_, err := store.TxFrom(ctx).ExecContext(ctx, "INSERT INTO archive (id) VALUES (?)", o.ID)
	return err
}

// charge asks the gateway for the money of an order. Its error says what is to become of the
// message.
func charge(ctx context.Context, id string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("GATEWAY_URL"), nil)
	if err != nil {
		return err
	}
	r.Header.Set("Idempotency-Key", id)
	answer, err := http.DefaultClient.Do(r)
	if err == nil {
		defer answer.Body.Close()
	}
	return meaning(ctx, answer, err)
}

// meaning returns the error of a handler that has called the gateway with ctx. Only a gateway
// that is away for all orders is an outage.
func meaning(ctx context.Context, answer *http.Response, err error) error {
	switch {
	case err != nil && ctx.Err() != nil:
		return err // the call was cut off: HandlerTimeout spends an attempt, a stop spends none
	case err != nil:
		return consumer.Hold(err) // nobody answers
	case answer.StatusCode < 300:
		return nil
	}
	err = fmt.Errorf("gateway: %s", answer.Status)
	switch code := answer.StatusCode; code {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return consumer.HoldFor(retryAfter(answer.Header.Get("Retry-After"), time.Now()), err) // later, and in the same place
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return consumer.Hold(err)
	default:
		if code >= 400 && code < 500 {
			return consumer.DeadLetter(err) // the same request will never succeed
		}
		return err // a failed attempt: this order may be the reason
	}
}

// retryAfter returns the time that a Retry-After asks for, in seconds or as a date; 0 if it
// asks for none.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(header, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return max(at.Sub(now), 0)
}
