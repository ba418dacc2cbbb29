package producer

import (
	"cmp"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/xdeath"
)

// FromDelivery returns the message of a delivery as its producer published it, to
// publish it once more. The delivery may be a dead letter, a message that a fallback
// took, or any other.
//
//	receipt, err := publisher.Publish(ctx, producer.FromDelivery(d))
//
// Exchange and RoutingKey are the address that the producer published to, if the
// headers tell it, and otherwise the address of the delivery. A message published there
// goes to every queue that is bound. To publish it only to the queue that failed on it,
// set Origin to these two, Exchange to "" and RoutingKey to the queue's name. The
// consumer then still sees the address that the message was first published to. ID and
// every other property and header stay as they were, including properties that copies
// had to archive. Body is shared with d. Headers that the broker and rehop have written
// on the way are left out, so that the message starts at attempt 1.
//
// RabbitMQ takes a user-id from that user only. A Producer with another login therefore
// sends it as the header x-rehop-user-id, as Delivery.History.Archived.UserID shows it.
// FromDelivery notes this in Headers; a program that sets another UserID is judged by the
// broker, as with any message. A user-id that a copy had to archive stays in that header,
// which anybody may have written.
//
// The keys of CC and BCC are left out, because their receivers have the message, and so is
// the reply-to of a client that waits on its own channel. A Priority above 9 becomes 9, a
// transient message becomes persistent, and one without a timestamp gets that of its publish.
func FromDelivery(d amqp.Delivery) Message {
	h, _ := xdeath.Parse(d.Headers) // a malformed header counts as none
	h = h.Letter()
	exchange, key, known := h.Origin(h.Queue)
	if !known && h.Failure.Cause != "" { // a letter of a fallback, which speaks for no queue
		exchange, key, known = h.Exchange, h.RoutingKey, h.Exchange != "" || h.RoutingKey != ""
	}
	if !known {
		exchange, key = d.Exchange, d.RoutingKey
	}
	headers := header.Strip(d.Headers)
	delete(headers, header.CC)
	delete(headers, header.BCC)
	m := Message{
		Exchange:        exchange,
		RoutingKey:      key,
		Body:            d.Body,
		Headers:         header.Again(headers, cmp.Or(d.UserId, h.Archived.UserID)),
		ID:              d.MessageId,
		ContentType:     d.ContentType,
		ContentEncoding: d.ContentEncoding,
		Type:            d.Type,
		CorrelationID:   d.CorrelationId,
		ReplyTo:         header.ReplyTo(d.ReplyTo),
		AppID:           d.AppId,
		UserID:          d.UserId,
		Timestamp:       d.Timestamp,
		Priority:        min(d.Priority, header.MaxPriority),
		Replays:         h.Replays,
		OrderKey:        h.OrderKey,
	}
	expiration := d.Expiration
	for _, death := range h.Deaths {
		if expiration == "" {
			expiration = death.OriginalExpiration
		}
	}
	if expiration == "" || !h.Due.IsZero() { // a retry copy may have one of its consumer's
		expiration = h.Archived.Expiration
	}
	if ms, err := strconv.ParseInt(expiration, 10, 64); err == nil && ms > 0 && ms <= maxMillis {
		m.Expiration = time.Duration(ms) * time.Millisecond
	}
	return m
}

// maxMillis is the longest Expiration: ten years of 365 days.
const maxMillis = 315_360_000_000
