package consumer

import (
	"context"
	"encoding/json"
	"time"
)

// JSONBatch is [JSON] for a batch: it decodes each body and calls handle with the
// messages that can be decoded, and with their values in the same order. The other
// messages become dead letters with the cause rehop.CauseUndecodable. The error of
// handle is that of a [BatchHandler], for the messages that handle got.
//
//	consumer.NewBatch(conn, orders, consumer.JSONBatch(func(ctx context.Context, batch []*consumer.Delivery, orders []Order) error {
//		return insert(ctx, orders) // in one transaction
//	}), consumer.Config{})
func JSONBatch[T any](handle func(ctx context.Context, batch []*Delivery, values []T) error) BatchHandler {
	return DecodeBatch(func(d *Delivery) (value T, err error) {
		err = json.Unmarshal(d.Body, &value)
		return value, err
	}, handle)
}

// DecodeBatch is [JSONBatch] for any codec, as [Decode] is.
func DecodeBatch[T any](decode func(d *Delivery) (T, error), handle func(ctx context.Context, batch []*Delivery, values []T) error) BatchHandler {
	return func(ctx context.Context, batch []*Delivery) error {
		good, values := make([]*Delivery, 0, len(batch)), make([]T, 0, len(batch))
		errs, at := make(BatchErrors, len(batch)), make([]int, 0, len(batch))
		for i, d := range batch {
			value, err := decode(d)
			if err != nil {
				errs[i] = undecodable[T](err)
				continue
			}
			good, values, at = append(good, d), append(values, value), append(at, i)
		}
		if len(good) == len(batch) {
			return handle(ctx, batch, values)
		}
		if len(good) > 0 {
			err := handle(ctx, good, values)
			of, each := batchErrorsOf(err)
			if each && len(of) != len(good) || !each && err != nil && len(good) > 1 && OutcomeOf(err).Action == ActionRetry {
				return err // of all: those that cannot be decoded are found again in the parts
			}
			for i, j := range at {
				if errs[j] = err; each {
					errs[j] = of[i]
				}
			}
		}
		return errs
	}
}

// ClassifyBatch is [Classify] for a BatchHandler: its rules give the error of each
// message its meaning. An error of several messages to which [Hold] or the like has
// given a meaning goes through the rules for each message. To any other error of several
// messages only rules with the action ActionHold apply, such as a rule for a database that
// is away, and only if one applies to each message. Otherwise the handler is called again
// with parts of the batch, and the rules decide about the messages that fail alone.
func ClassifyBatch(rules ...Rule) func(BatchHandler) BatchHandler {
	classify := classifier(rules)
	return func(next BatchHandler) BatchHandler {
		return func(ctx context.Context, batch []*Delivery) error {
			err := next(ctx, batch)
			if err == nil {
				return nil
			}
			if of, ok := batchErrorsOf(err); ok {
				if len(of) != len(batch) {
					return err
				}
				errs := make(BatchErrors, len(of))
				for i, err := range of {
					if err != nil {
						errs[i] = classify(batch[i], err, time.Now())
					}
				}
				return errs
			}
			if len(batch) == 1 {
				return classify(batch[0], err, time.Now())
			}
			if OutcomeOf(err).Action != ActionRetry { // it is of all
				return eachOf(batch, func(d *Delivery) error { return classify(d, err, time.Now()) })
			}
			for _, d := range batch { // a rule may look at the message
				if meant := classify(d, err, time.Now()); OutcomeOf(meant).Action != ActionHold {
					return err
				}
			}
			return classify(batch[0], err, time.Now())
		}
	}
}

func eachOf(batch []*Delivery, do func(*Delivery) error) BatchErrors {
	errs := make(BatchErrors, len(batch))
	for i, d := range batch {
		errs[i] = do(d)
	}
	return errs
}
