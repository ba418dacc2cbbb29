package xdeath

import (
	"cmp"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/copies"
)

func init() {
	copies.Retry, copies.Back, copies.DeadLetter, copies.Fallback, copies.Cut = retry, back, deadLetter, fallback, fit
}

// Again returns the message that a delivery was when it was published, to publish
// it once more on a channel of your own. The delivery may be a letter out of a
// dead-letter queue, or any other. Its headers are those of Strip, with
// HeaderPriority if it has a priority, and its other properties are unchanged; an expiration that copies had to archive is set again.
// The message starts at attempt 1 wherever it is published to. History.Origin and
// History.Letter say where it came from.
//
// Again leaves out the keys of CC and BCC that are archived, because their
// receivers have the message, and an archived user-id, because only its own user
// may send it.
func Again(d amqp.Delivery) amqp.Publishing {
	h, _ := Parse(d.Headers)
	p := fromDelivery(d)
	p.DeliveryMode = d.DeliveryMode
	p.Headers = Strip(d.Headers)
	if d.Priority > 0 {
		p.Headers = orEmpty(p.Headers)
		p.Headers[HeaderPriority] = int64(d.Priority)
	}
	p.Expiration = expiration(d.Expiration, h)
	return p
}

// Strip returns a copy of the headers without the broker's family (x-death,
// x-first-death-*, x-last-death-*, x-delivery-count, x-acquired-count) and
// without any x-rehop-*. A producer applies it to each publish, because a message
// that is published starts at attempt 1. CC and BCC stay, because the producer asked
// for them. Values of type int are converted to int64, because amqp091-go sends an
// int as 32 bits. If no headers are left, Strip returns nil.
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

// retry returns the copy of a failed delivery that waits for its next attempt.
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
func retry(d amqp.Delivery, r copies.RetryCopy) amqp.Publishing {
	h, _ := Parse(d.Headers) // the caller has parsed them too, and logs
	p := fromDelivery(d)
	archive(&p, h, r.User)
	place(&p, d, h, r.Queue, r.Returned, r.At)
	p.Headers[HeaderAttempts] = bounded(r.Attempts)
	setMillis(p.Headers, HeaderNotBefore, r.NotBefore)
	setMillis(p.Headers, HeaderDue, r.Due)
	report(p.Headers, h.Failure)
	fit(p, MaxHeaderBytes)
	return p
}

// back returns the copy of a delivery from a wait whose time is over, for the
// queue it waits for: all of it as it is, without what the broker owns. user is
// that of copies.RetryCopy.
func back(d amqp.Delivery, user string) amqp.Publishing {
	h, _ := Parse(d.Headers)
	p := fromDelivery(d)
	for _, key := range ours {
		if v, found := d.Headers[key]; found {
			p.Headers[key] = clone(v, 1)
		}
	}
	archive(&p, h, user)
	fit(p, MaxHeaderBytes)
	return p
}

// deadLetter returns the copy of a delivery that its queue has given up. It
// keeps, strips and archives like retry, and carries the reason, error, error
// type, stack, time and host of the failure, the queue, the attempts it spent
// as HeaderFinalAttempts (never as HeaderAttempts, so that any way back starts
// at attempt 1), the first failure, and the producer's exchange and routing key.
func deadLetter(d amqp.Delivery, l copies.Letter) amqp.Publishing {
	h, _ := Parse(d.Headers)
	p := fromDelivery(d)
	archive(&p, h, l.User)
	place(&p, d, h, l.Queue, l.Returned, l.Failure.At)
	p.Headers[HeaderFinalAttempts] = bounded(l.Attempts)
	report(p.Headers, failure(l.Failure))
	fit(p, MaxHeaderBytes)
	return p
}

// fallback returns the copy of a publishing that reached no queue, for a
// dead-letter exchange or another cluster: the same reason headers as a dead
// letter's, and the exchange and routing key it was meant for. It strips like
// Strip, and archives and persists like retry: with its expiration it would
// vanish from the dead-letter queue.
func fallback(p amqp.Publishing, f copies.FallbackCopy) amqp.Publishing {
	p.Headers = orEmpty(Strip(p.Headers))
	p.DeliveryMode = amqp.Persistent
	archive(&p, History{}, f.User)
	p.Headers[HeaderExchange] = f.Exchange
	p.Headers[HeaderRoutingKey] = f.RoutingKey
	report(p.Headers, failure(f.Failure))
	fit(p, MaxHeaderBytes)
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
	millis := expiration(p.Expiration, h)
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
	setText(p.Headers, HeaderExpiration, millis)
	setText(p.Headers, HeaderUserID, userID)
	if len(keys) > 0 {
		p.Headers[HeaderArchivedCC] = array(keys)
	}
}

// expiration returns the producer's, of a message that has this one now. A copy
// that waits, or has come back, has had the producer's archived. What it has
// beside that is the consumer's.
func expiration(now string, h History) string {
	if !h.Due.IsZero() {
		return h.Archived.Expiration
	}
	millis := cmp.Or(now, h.Archived.Expiration)
	for _, death := range h.Deaths { // where the broker puts it, if it dead-letters the message before us
		millis = cmp.Or(millis, death.OriginalExpiration)
	}
	return millis
}

func failure(f copies.Failure) Failure {
	return Failure{Cause: Cause(f.Cause), Error: f.Error, ErrorType: f.ErrorType, Stack: f.Stack, At: f.At, Host: f.Host}
}

// place writes for which queue the copy speaks, where the message came from and
// what has happened to it.
func place(p *amqp.Publishing, d amqp.Delivery, h History, queue string, returned bool, at time.Time) {
	exchange, key := d.Exchange, d.RoutingKey
	if h.hasOrigin && (h.isLetter || h.isDelayed()) {
		// In a dead-letter queue, out of one by hand, or through exact delays: the
		// delivery's own exchange and key are the way it was moved, not the
		// producer's.
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

// setMillis rounds up: a message may not come early. Beyond maxMillis Parse would
// count it as absent, which is at once.
func setMillis(headers amqp.Table, key string, t time.Time) {
	if !t.IsZero() {
		ms := t.Add(time.Millisecond - time.Nanosecond).UnixMilli()
		headers[key] = min(max(ms, 0), maxMillis)
	}
}

func orEmpty(t amqp.Table) amqp.Table {
	if t == nil {
		return amqp.Table{}
	}
	return t
}
