package consumer

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/rehop/rehop"
)

// JSON returns a Handler that decodes the body as JSON and calls handle with the
// value. A message whose body cannot be decoded into a T is not retried: it becomes a
// dead letter with the cause rehop.CauseUndecodable.
//
//	consumer.New(conn, orders, consumer.JSON(func(ctx context.Context, d *consumer.Delivery, o Order) error {
//		return ship(ctx, o)
//	}), consumer.Config{})
func JSON[T any](handle func(ctx context.Context, d *Delivery, value T) error) Handler {
	return Decode(func(d *Delivery) (value T, err error) {
		err = json.Unmarshal(d.Body, &value)
		return value, err
	}, handle)
}

// Decode is [JSON] for any codec: decode returns the value of a message, from its
// Body and any other field of the Delivery, such as its ContentType. It is called for
// each run of the handler. A panic of decode is a failed attempt, as in a handler.
func Decode[T any](decode func(d *Delivery) (T, error), handle func(ctx context.Context, d *Delivery, value T) error) Handler {
	return func(ctx context.Context, d *Delivery) error {
		value, err := decode(d)
		if err != nil {
			return undecodable[T](err)
		}
		return handle(ctx, d, value)
	}
}

// undecodable returns the outcome of a message whose body is no T.
func undecodable[T any](err error) error {
	return withOutcome(Outcome{Action: ActionDeadLetter, Cause: rehop.CauseUndecodable}, fmt.Errorf("decoding a %T: %w", *new(T), err), "")
}
