package consumer

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/rehop/rehop"
)

// JSON returns a Handler that decodes the body as JSON and calls handle with the
// value. A message whose body cannot be decoded into a T is not retried: it becomes a
// dead letter with the cause rehop.CauseUndecodable. An error of an
// UnmarshalJSON of T that has an outcome keeps it, see [Decode].
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
// each run of the handler. An error of decode makes the message a dead letter, unless
// [Hold], [RetryAfter] or the like has given that error, or one that it wraps or joins, a
// meaning: then it is as the error of a handler. A panic of decode is a failed attempt, as
// in a handler.
func Decode[T any](decode func(d *Delivery) (T, error), handle func(ctx context.Context, d *Delivery, value T) error) Handler {
	return func(ctx context.Context, d *Delivery) error {
		value, err := decode(d)
		if err != nil {
			return undecodable[T](err)
		}
		return handle(ctx, d, value)
	}
}

// undecodable returns the outcome of a message whose decode function has returned err, such
// as for a body that is no T.
func undecodable[T any](err error) error {
	meant := hasOutcome(err)
	err = fmt.Errorf("decoding a %T: %w", *new(T), err)
	if meant {
		return err
	}
	return withOutcome(Outcome{Action: ActionDeadLetter, Cause: rehop.CauseUndecodable}, err, "")
}
