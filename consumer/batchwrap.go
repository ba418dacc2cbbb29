package consumer

import (
	"cmp"
	"context"
	"encoding/json"
	"time"
)

// JSONBatch is [JSON] for a batch: it decodes each body and calls handle with the
// messages that can be decoded, and with their values in the same order. [Delivery.Fail]
// makes each of the other messages a dead letter with the cause rehop.CauseUndecodable. The
// error of handle is that of a [BatchHandler], for the messages that handle got.
//
//	consumer.NewBatch(conn, orders, consumer.JSONBatch(func(ctx context.Context, batch []*consumer.Delivery, orders []Order) error {
//		return insert(ctx, orders) // in one transaction
//	}), consumer.Batch{}, consumer.Config{})
func JSONBatch[T any](handle func(ctx context.Context, batch []*Delivery, values []T) error) BatchHandler {
	return DecodeBatch(func(d *Delivery) (value T, err error) {
		err = json.Unmarshal(d.Body, &value)
		return value, err
	}, handle)
}

// DecodeBatch is [JSONBatch] for any codec, as [Decode] is: an error of decode that has an
// outcome is the error of its message.
func DecodeBatch[T any](decode func(d *Delivery) (T, error), handle func(ctx context.Context, batch []*Delivery, values []T) error) BatchHandler {
	return func(ctx context.Context, batch []*Delivery) error {
		good, values := make([]*Delivery, 0, len(batch)), make([]T, 0, len(batch))
		for _, d := range batch {
			value, err := decode(d)
			if err != nil {
				if d.Err() == nil { // else decode has said it already
					d.Fail(undecodable[T](err))
				}
				continue
			}
			good, values = append(good, d), append(values, value)
		}
		if len(good) == 0 {
			return nil
		}
		return handle(ctx, good, values)
	}
}

// ClassifyBatch is [Classify] for a BatchHandler. Its rules give the error of each message
// that has one of its own its meaning.
//
// The error that the handler returns is about the messages without an error of their own. The
// rules give that error its meaning too if the handler got one message. If it got several,
// and [Hold] or the like has given the error a meaning, the rules may give a message another
// one, as [Classify] does, such as by its age. To any other error the rules apply only if
// they give all the messages without an error of their own one outcome, and that is
// ActionHold, ActionHoldFor, ActionRetryAfter or ActionSnooze, such as for a database that
// is away.
// Otherwise the consumer calls the handler again with parts of the batch, and the rules
// decide about the messages that fail alone.
func ClassifyBatch(rules ...Rule) (func(BatchHandler) BatchHandler, error) {
	classify, err := newClassifier("ClassifyBatch", rules)
	if err != nil {
		return nil, err
	}
	return func(next BatchHandler) BatchHandler {
		return func(ctx context.Context, batch []*Delivery) error {
			err := func() error {
				defer classify.own(batch...)
				return next(ctx, batch)
			}()
			now := time.Now()
			var others []*Delivery
			for _, d := range batch {
				if d.Err() == nil {
					others = append(others, d)
				}
			}
			if err == nil || len(others) == 0 {
				return err
			}
			if len(batch) == 1 {
				return cmp.Or(classify(batch[0], err, now), err)
			}
			if OutcomeOf(err).Action != ActionRetry { // it is of each, or a dead letter, to which no rule applies
				for _, d := range others {
					if meant := classify(d, err, now); meant != nil {
						d.Fail(meant)
					}
				}
				return err
			}
			meant := classify(others[0], err, now)
			outcome := OutcomeOf(meant)
			if isOfOne(outcome.Action, false) {
				return err
			}
			for _, d := range others[1:] { // a rule may look at the message
				if OutcomeOf(classify(d, err, now)) != outcome {
					return err
				}
			}
			return meant
		}
	}, nil
}
