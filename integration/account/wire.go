package account

import (
	"context"
	"errors"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// callHeader holds the number of the call of Publish, from the second one on.
const callHeader = "account-call"

// Call returns the headers of a message whose call of Publish has this number.
func Call(call int) amqp.Table { return amqp.Table{callHeader: int64(call)} }

// CallOf returns the number of the call of Publish that a message came from.
func CallOf(headers amqp.Table) int {
	if call, ok := headers[callHeader].(int64); ok {
		return int(call)
	}
	return 1
}

// Publish publishes a message whose ID is from Next, and notes what became of
// it. It may be called again with the same message until it succeeds.
func (a *Account) Publish(ctx context.Context, p *producer.Producer, m producer.Message) error {
	if call := a.Calling(m.ID); call > 1 {
		m.Headers = Call(call)
	}
	receipt, err := p.Publish(ctx, m)
	a.Called(m.ID, receipt.MaybeDuplicate, errors.Is(err, producer.ErrUnconfirmed), err)
	return err
}

// Handler is the handler of the work queue that notes what h does. By names who
// runs it, where there are several.
func (a *Account) Handler(by string, h consumer.Handler) consumer.Handler {
	return func(ctx context.Context, d *consumer.Delivery) error {
		end := a.Begin(d.ID, RunOf(d, by))
		err := h(ctx, d)
		due, failed := Due(a.waits, d.Attempt, err, time.Now())
		end(failed, due)
		return err
	}
}

// RunOf returns the run that a delivery begins.
func RunOf(d *consumer.Delivery, by string) Run {
	return Run{Attempt: d.Attempt, Redelivered: d.Redelivered, Call: CallOf(d.Headers), By: by}
}

// Due returns whether a run that returned err has failed, and the time before
// which the attempt after it must not begin.
func Due(waits delay.Schedule, attempt int, err error, now time.Time) (due time.Time, failed bool) {
	switch o := consumer.OutcomeOf(err); o.Action {
	case consumer.ActionDone, consumer.ActionDiscard:
		return time.Time{}, false
	case consumer.ActionRetryAfter:
		return now.Add(o.After), true
	case consumer.ActionHold, consumer.ActionHoldFor, consumer.ActionSnooze:
		return time.Time{}, true // and the same attempt once more
	}
	wait, _ := waits.After(attempt)
	return now.Add(wait), true
}

// Letters is the handler of the dead-letter queue.
func (a *Account) Letters(_ context.Context, d *consumer.Delivery) error {
	a.Letter(d.ID, d.History.Failure.Cause, d.History.FinalAttempts, CallOf(d.Headers), d.Redelivered)
	return nil
}

// Lies notes a message that was taken from a queue from outside. The letters
// of the dead-letter queue are no different from those that Letters notes.
func (a *Account) Lies(w topology.WorkQueue, queue string, m amqp.Delivery) error {
	h, err := xdeath.Parse(m.Headers)
	switch {
	case err != nil:
		return err
	case queue == w.DeadLetterQueue().Name:
		h = h.Letter()
		a.Letter(m.MessageId, h.Failure.Cause, h.FinalAttempts, CallOf(m.Headers), m.Redelivered)
	default:
		a.Found(m.MessageId, queue, h.Attempt(w.Name, true)-1, CallOf(m.Headers), m.Redelivered)
	}
	return nil
}

// Trace returns hooks that note what is said of deliveries.
func (a *Account) Trace() consumer.Trace {
	return consumer.Trace{
		Received: func(ctx context.Context, d *consumer.Delivery) context.Context { a.Received(d.ID); return ctx },
		Settled:  func(_ context.Context, s consumer.Settled) { a.Said(s.Delivery.ID, s.Delivery.Attempt, s.Settlement) },
	}
}
