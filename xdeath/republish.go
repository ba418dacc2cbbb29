package xdeath

import (
	"cmp"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// RetryCopy is what Retry has to know beside the delivery.
type RetryCopy struct {
	// Queue is the work queue whose handler failed, and for which the copy
	// counts.
	Queue string
	// Returned says that the delivery had come back through Queue's own retry
	// exchange, as for History.Attempt. If not, it starts another life: the
	// origin and the first failure it carries are not taken over, but for the
	// origin that a dead letter names.
	Returned bool
	// Attempts at Queue that have ended, the one that just failed included: the
	// next is Attempts+1. Below 0 counts as 0.
	Attempts int
	// At is when the attempt failed: the copy's first failure, unless it has
	// one already. The zero time writes none.
	At time.Time
	// NotBefore, if set, is when the copy may be handled at the earliest; it is
	// written in milliseconds, rounded up.
	NotBefore time.Time
	// User is the user of the session that publishes the copy. The broker
	// closes the channel of one who sends another user's user-id.
	User string
}

// Letter is what DeadLetter has to know beside the delivery.
type Letter struct {
	// Queue, Returned, Attempts and User are those of RetryCopy.
	Queue    string
	Returned bool
	Attempts int
	User     string
	// Failure is why the message is given up. Its At is also the first failure
	// of a message that has none yet.
	Failure Failure
}

// FallbackCopy is what Fallback has to know beside the publishing.
type FallbackCopy struct {
	// Exchange and RoutingKey are where the message could not be published to.
	Exchange, RoutingKey string
	// User is that of RetryCopy, on the broker that takes the copy.
	User string
	// Failure is why: unroutable, broker-nacked or blocked, and the error.
	Failure Failure
}

// Strip returns a copy of the headers without the broker's family (x-death,
// x-first-death-*, x-last-death-*, x-delivery-count, x-acquired-count) and
// without any x-rehop-*: what a producer applies to each fresh publish, because
// a message that a consumer forwards starts another life. CC and BCC stay, they
// are the producer's own wish. Values of the type int are converted to int64,
// see Normalize. No headers left is nil.
func Strip(headers amqp.Table) amqp.Table {
	if len(headers) == 0 {
		return nil
	}
	kept := make(amqp.Table, len(headers))
	for key, v := range headers {
		if !strings.HasPrefix(key, Prefix) && !slices.Contains(brokerFamily, key) {
			kept[key] = clone(v, 1)
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}

// Retry returns the copy of a failed delivery that waits for its next attempt.
//
// It keeps body, content type and encoding, correlation-id, reply-to, type,
// app-id, message-id, timestamp, priority and the user's headers. It is always
// persistent, also where the original was transient. The broker's family is
// stripped and folded into the history header. What the broker would act on
// once more is archived and not set: expiration, CC and BCC, and the user-id
// unless it is r.User. It carries the attempts, the queue they count for, the
// producer's exchange and routing key, and when the first attempt failed.
//
// A dead letter that is retried, by the consumer of a dead-letter queue or after
// somebody has moved it back, keeps the producer's exchange and key that it
// names and the report of why it died. Its queue moves to the history, under its
// cause as the reason, because these headers now speak for r.Queue.
//
// The headers stay within MaxHeaderBytes, see there for what is cut. Malformed
// headers of the delivery count as Parse says.
func Retry(d amqp.Delivery, r RetryCopy) amqp.Publishing {
	h, _ := Parse(d.Headers) // the caller has parsed them too, and logs
	p := fromDelivery(d)
	archive(&p, h, r.User)
	place(&p, d, h, r.Queue, r.Returned, r.At)
	p.Headers[HeaderAttempts] = bounded(r.Attempts)
	if !r.NotBefore.IsZero() {
		ms := r.NotBefore.Add(time.Millisecond - time.Nanosecond).UnixMilli()
		p.Headers[HeaderNotBefore] = min(max(ms, 0), maxMillis) // beyond, Parse would count it as absent: at once
	}
	report(p.Headers, h.Failure)
	fit(p)
	return p
}

// DeadLetter returns the copy of a delivery that its queue has given up. It
// keeps, strips and archives like Retry, and carries the reason, error, error
// type, stack, time and host of the failure, the queue, the attempts it spent
// as HeaderFinalAttempts (never as HeaderAttempts, so that any way back starts
// at attempt 1), the first failure, and the producer's exchange and routing key.
func DeadLetter(d amqp.Delivery, l Letter) amqp.Publishing {
	h, _ := Parse(d.Headers)
	p := fromDelivery(d)
	archive(&p, h, l.User)
	place(&p, d, h, l.Queue, l.Returned, l.Failure.At)
	p.Headers[HeaderFinalAttempts] = bounded(l.Attempts)
	report(p.Headers, l.Failure)
	fit(p)
	return p
}

// Fallback returns the copy of a publishing that reached no queue, for a
// dead-letter exchange or another cluster: the same reason headers as a dead
// letter's, and the exchange and routing key it was meant for. It strips like
// Strip, and archives and persists like Retry: with its expiration it would
// vanish from the dead-letter queue.
func Fallback(p amqp.Publishing, f FallbackCopy) amqp.Publishing {
	p.Headers = orEmpty(Strip(p.Headers))
	p.DeliveryMode = amqp.Persistent
	archive(&p, History{}, f.User)
	p.Headers[HeaderExchange] = f.Exchange
	p.Headers[HeaderRoutingKey] = f.RoutingKey
	report(p.Headers, f.Failure)
	fit(p)
	return p
}

// usual is how many headers a copy of a first failure gets.
const usual = 6

// fromDelivery returns the publishing with all that a copy takes over as it is.
func fromDelivery(d amqp.Delivery) amqp.Publishing {
	headers := make(amqp.Table, len(d.Headers)+usual)
	for key, v := range d.Headers {
		if !slices.Contains(brokerFamily, key) && !slices.Contains(ours, key) {
			headers[key] = clone(v, 1)
		}
	}
	return amqp.Publishing{
		Headers:         headers,
		ContentType:     d.ContentType,
		ContentEncoding: d.ContentEncoding,
		DeliveryMode:    amqp.Persistent, // a transient message would not survive its wait
		Priority:        d.Priority,
		CorrelationId:   d.CorrelationId,
		ReplyTo:         d.ReplyTo,
		Expiration:      d.Expiration,
		MessageId:       d.MessageId,
		Timestamp:       d.Timestamp,
		Type:            d.Type,
		UserId:          d.UserId,
		AppId:           d.AppId,
		Body:            d.Body,
	}
}

// archive takes off what the broker would act on once more and writes it down.
// What the message carries now is newer than what a former copy wrote down.
func archive(p *amqp.Publishing, h History, user string) {
	expiration := cmp.Or(p.Expiration, h.Archived.Expiration)
	for _, death := range h.Deaths { // where the broker puts it, if it dead-letters the message before us
		expiration = cmp.Or(expiration, death.OriginalExpiration)
	}
	p.Expiration = ""
	userID := h.Archived.UserID
	if p.UserId != user {
		userID = cmp.Or(p.UserId, userID)
		p.UserId = ""
	}
	keys := append(texts(p.Headers[HeaderCC]), texts(p.Headers[HeaderBCC])...)
	delete(p.Headers, HeaderCC)
	delete(p.Headers, HeaderBCC)
	if len(keys) == 0 {
		keys = h.Archived.CC
	}
	setText(p.Headers, HeaderExpiration, expiration)
	setText(p.Headers, HeaderUserID, userID)
	if len(keys) > 0 {
		p.Headers[HeaderArchivedCC] = array(keys)
	}
}

// place writes for which queue the copy speaks, where the message came from and
// what has happened to it.
func place(p *amqp.Publishing, d amqp.Delivery, h History, queue string, returned bool, at time.Time) {
	exchange, key := d.Exchange, d.RoutingKey
	if h.isLetter && h.hasOrigin {
		// In a dead-letter queue, or out of one by hand: the delivery's own
		// exchange and key are the way it was moved, not the producer's.
		exchange, key = h.Exchange, h.RoutingKey
	}
	first := at
	if returned {
		if e, k, ok := h.Origin(queue); ok {
			exchange, key = e, k
		}
		if t, ok := h.FirstFailedAt(queue); ok {
			first = t
		}
	}
	p.Headers[HeaderQueue] = queue
	p.Headers[HeaderExchange] = exchange
	p.Headers[HeaderRoutingKey] = key
	setTime(p.Headers, HeaderFirstFailedAt, first)
	if earlier := fold(h); len(earlier) > 0 {
		p.Headers[HeaderHistory] = tables(earlier)
	}
}

// report writes why the message was given up; of the zero Failure, nothing.
func report(headers amqp.Table, f Failure) {
	setText(headers, HeaderReason, cut(string(f.Cause), maxName))
	setText(headers, HeaderError, cut(f.Error, maxErrorBytes))
	setText(headers, HeaderErrorType, cut(f.ErrorType, maxName))
	setText(headers, HeaderStack, cut(f.Stack, maxStackBytes))
	setTime(headers, HeaderFailedAt, f.At)
	setText(headers, HeaderHost, cut(f.Host, maxName))
}

func bounded(attempts int) int64 { return min(max(int64(attempts), 0), maxCount) }

func setText(headers amqp.Table, key, s string) {
	if s != "" {
		headers[key] = s
	}
}

func setTime(headers amqp.Table, key string, t time.Time) {
	if isInstant(t) { // anything else, the zero time included, Parse would refuse
		headers[key] = t
	}
}

func orEmpty(t amqp.Table) amqp.Table {
	if t == nil {
		return amqp.Table{}
	}
	return t
}
