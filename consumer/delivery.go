package consumer

import (
	"maps"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/xdeath"
)

// Delivery is one arrival of a message at a handler. It is plain data: a test of a
// handler builds one by hand. The error that the handler returns decides how it is
// settled, or the error that [Delivery.Fail] gives it.
type Delivery struct {
	Queue string // that the message was read from

	// Exchange and RoutingKey are the producer's own, on every attempt.
	Exchange, RoutingKey string

	// OrderKey is the key of the messages that belong together, as the producer has
	// set it; empty if it has set none.
	OrderKey string

	// Attempt is the number of this attempt, from 1. Deliveries that a crash
	// or a lost connection cut off are not counted.
	Attempt int

	// LastAttempt reports whether a failure now would be the final one.
	LastAttempt bool

	// Redelivered is the broker's hint that the message was delivered before
	// and not settled. From 4.0 on it is also set after some dead-letterings.
	Redelivered bool

	// Body must not be modified, because copies of the message are sent with it.
	Body []byte

	// Headers as they arrived, including those of the broker and of the SDK. The map is
	// the handler's own; its values must not be modified.
	Headers amqp.Table

	ID              string // message-id
	Type            string
	ContentType     string
	ContentEncoding string
	CorrelationID   string
	ReplyTo         string
	AppID           string
	UserID          string
	Timestamp       time.Time
	Priority        uint8 // 0 when absent

	// History is the message's past, as its headers tell it. On a dead letter,
	// History.Failure is the reason, History.Queue the queue where the message failed,
	// and History.FinalAttempts the number of its attempts.
	History xdeath.History

	expiration   string    // as it arrived
	deliveryMode uint8     // as it arrived
	firstFailed  time.Time // when an attempt failed that was in place; zero: none has
	own          *ownError // shared with the copies of the Delivery; nil: nobody has called Fail on one that was made by hand
}

// Fail gives the message an error of its own. It has the meaning that it would have as
// the error of a [Handler], see [OutcomeOf]: a plain error is a failed attempt, and one of
// [DeadLetter], [RetryAfter], [HoldFor], [Hold], [Snooze] or [Discard] says more. The
// latest call decides; Fail(nil) takes the error back.
//
// The error of its own decides about the message, whatever the handler returns. So a
// [BatchHandler] says with it which messages of a batch are at fault, and what it returns
// is about the others. A copy of a Delivery that a consumer has made shares the error.
//
// Before each run of the handler the consumer takes back the errors of the run before.
// When the handler has returned, panicked or ended its goroutine, the consumer takes the
// errors over, and a later call does nothing; a goroutine that a run has left behind must
// not call Fail in the next run of the message. Calls on one Delivery must not be
// concurrent.
func (d *Delivery) Fail(err error) {
	if d.own == nil {
		d.own = new(ownError)
	}
	d.own.set(err)
}

// Err returns the error that [Delivery.Fail] has given the message, nil for none. A wrapper
// of a handler sees with it what the handler has said. After the run it returns the
// error that the consumer has taken over.
func (d *Delivery) Err() error {
	if d.own == nil {
		return nil
	}
	return d.own.get()
}

// ownError is the error of one message in one run of its handler. It is atomic for the
// goroutines that a handler leaves behind: their calls come too late, and must be no data
// race with the consumer.
type ownError struct{ latest atomic.Pointer[ownErrorState] }

type ownErrorState struct {
	err  error
	over bool // the run is over
}

// overWithout is the state of most messages after their run. It is shared.
var overWithout = &ownErrorState{over: true}

func (o *ownError) get() error {
	if s := o.latest.Load(); s != nil {
		return s.err
	}
	return nil
}

func (o *ownError) set(err error) {
	s := &ownErrorState{err: err}
	for {
		latest := o.latest.Load()
		if latest != nil && latest.over || o.latest.CompareAndSwap(latest, s) {
			return
		}
	}
}

// begin begins a run.
func (o *ownError) begin() { o.latest.Store(nil) }

// end ends a run, and returns the error that it has left. It may be called again.
func (o *ownError) end() error {
	for {
		latest, over := o.latest.Load(), overWithout
		if latest != nil && latest.err != nil {
			over = &ownErrorState{err: latest.err, over: true}
		}
		if latest != nil && latest.over || o.latest.CompareAndSwap(latest, over) {
			return over.err
		}
	}
}

// AMQP returns the delivery in the form of amqp091-go, without an Acknowledger and a
// tag: it cannot settle anything. producer.FromDelivery takes it:
//
//	receipt, err := publisher.Publish(ctx, producer.FromDelivery(d.AMQP()))
func (d *Delivery) AMQP() amqp.Delivery {
	return amqp.Delivery{
		Exchange:        d.Exchange,
		RoutingKey:      d.RoutingKey,
		Redelivered:     d.Redelivered,
		Headers:         d.Headers,
		MessageId:       d.ID,
		Type:            d.Type,
		ContentType:     d.ContentType,
		ContentEncoding: d.ContentEncoding,
		DeliveryMode:    d.deliveryMode,
		CorrelationId:   d.CorrelationID,
		ReplyTo:         d.ReplyTo,
		AppId:           d.AppID,
		UserId:          d.UserID,
		Timestamp:       d.Timestamp,
		Priority:        d.Priority,
		Expiration:      d.expiration,
		Body:            d.Body,
	}
}

// read reads a raw delivery of a route's queue. The error says what is malformed in
// the headers, which then count as absent; the Delivery is complete all the same.
func (d *Delivery) read(from *route.Facts, raw amqp.Delivery) error {
	history, err := xdeath.Parse(raw.Headers)
	returned := from.Returned(raw.Exchange)
	*d = Delivery{
		Queue:           from.Queue,
		Exchange:        raw.Exchange,
		RoutingKey:      raw.RoutingKey,
		OrderKey:        history.OrderKey,
		Attempt:         attemptNumber(from, &history, returned),
		Redelivered:     raw.Redelivered,
		Body:            raw.Body,
		Headers:         maps.Clone(raw.Headers),
		ID:              raw.MessageId,
		Type:            raw.Type,
		ContentType:     raw.ContentType,
		ContentEncoding: raw.ContentEncoding,
		CorrelationID:   raw.CorrelationId,
		ReplyTo:         raw.ReplyTo,
		AppID:           raw.AppId,
		UserID:          raw.UserId,
		Timestamp:       raw.Timestamp,
		Priority:        raw.Priority,
		History:         history,
		expiration:      raw.Expiration,
		deliveryMode:    raw.DeliveryMode,
	}
	// A producer that sends a message straight to this queue may say where it was first
	// published to.
	straight := history.Queue == "" && header.HasOrigin(raw.Headers)
	if exchange, key, ok := history.Origin(from.Queue); ok && (returned || straight || from.Kind != route.Work) {
		d.Exchange, d.RoutingKey = exchange, key
	}
	if from.Kind != route.Letters && (history.Queue != from.Queue || from.Kind == route.Work && !returned) {
		d.History.Snoozes, d.History.FirstSnoozed = 0, time.Time{} // of another life of the message
	}
	if from.Kind == route.Letters && history.Carried(from.Queue) == 0 { // else it is a copy of a letter, for its next attempt
		d.History = history.Letter()
	}
	if d.History.Failure.Cause != "" && !returned {
		// A dead letter, in its queue or moved out of it by hand.
		d.Exchange, d.RoutingKey = d.History.Exchange, d.History.RoutingKey
	}
	d.LastAttempt = d.Attempt > len(from.Waits)
	return err
}

// attemptNumber returns the number of the attempt that a delivery starts. In a queue that
// others declared, deaths are not attempts: only our own header counts them there.
func attemptNumber(from *route.Facts, h *xdeath.History, returned bool) int {
	if from.Kind != route.Work {
		return 1 + h.Carried(from.Queue)
	}
	return h.Attempt(from.Queue, returned)
}
