// Package copies makes the copies of a message that the SDK publishes: one that
// waits, one that comes back, a dead letter, and the one of a producer's fallback.
// It has the rules about their headers.
//
// Every function is pure. None changes its argument's headers, and a copy shares no
// table, array or byte slice in them with it. The body is shared.
package copies

import (
	"cmp"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/foreign"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/xdeath"
)

// RetryCopy is what Retry has to know beside the delivery.
type RetryCopy struct {
	// Queue is the work queue whose handler failed, and for which the copy
	// counts.
	Queue string
	// Returned says that the delivery had come back through Queue's own return
	// exchange, as for History.Attempt. If not, it starts another life: the
	// origin and the first failure it carries are not taken over, but for the
	// origin that a dead letter names.
	Returned bool
	// Attempts at Queue that have ended, the one that just failed included: the
	// next is Attempts+1. Below 0 counts as 0.
	Attempts int
	// Letter says that the delivery is a dead letter in its dead-letter queue, and
	// that the copy of it stays one. Of Queue, Attempts, At and FirstFailed the copy
	// says nothing then.
	Letter bool
	// Snoozed is when the handler has put the message off without spending an
	// attempt; zero: it has not.
	Snoozed time.Time
	// At is when the attempt failed: the copy's first failure, unless it has
	// one already. The zero time writes none.
	At time.Time
	// NotBefore, if set, is when the copy may be handled at the earliest; it is
	// written in milliseconds, rounded up.
	NotBefore time.Time
	// Due, if set, is when the wait that the copy goes to is over; written
	// likewise.
	Due time.Time
	// FirstFailed is when the first attempt failed, if that was before At and the
	// headers do not say it; zero: At.
	FirstFailed time.Time
	// User is the user of the session that publishes the copy. The broker
	// closes the channel of one who sends another user's user-id.
	User string
}

// Letter is what DeadLetter has to know beside the delivery.
type Letter struct {
	// Queue, Returned, Attempts, FirstFailed and User are those of RetryCopy.
	Queue       string
	Returned    bool
	Attempts    int
	FirstFailed time.Time
	User        string
	// Failure is why the message is given up. Its At is also the first failure
	// of a message that has none yet.
	Failure xdeath.Failure
}

// FallbackCopy is what Fallback has to know beside the publishing.
type FallbackCopy struct {
	// Exchange and RoutingKey are where the message could not be published to.
	Exchange, RoutingKey string
	// User is that of RetryCopy, on the broker that takes the copy.
	User string
	// Failure is why: the cause of a publish, and the error.
	Failure xdeath.Failure
}

// Retry returns the copy of a failed delivery that waits for its next attempt.
//
// It keeps body, content type and encoding, correlation-id, reply-to, type, app-id,
// message-id, timestamp, priority and the user's headers. It is always persistent, also
// where the original was transient. The broker's family is stripped and folded into the
// history header. Properties that the broker would act on once more are archived and
// not set: expiration, CC and BCC, and the user-id unless it is r.User. The copy
// carries the attempts, their queue, the producer's exchange and routing key, and the
// time of the first failed attempt.
//
// A dead letter that is retried, by the consumer of a dead-letter queue or after
// somebody has moved it back, keeps the producer's exchange and key that it
// names and the report of why it died. Its queue moves to the history, under its
// cause as the reason, because these headers now speak for r.Queue.
//
// With r.Letter the copy says what the letter says, as xdeath.History.Letter reads
// it. The copy has no attempts, so that any way back starts at attempt 1.
//
// The headers stay within header.Max, see there for what is cut. Malformed
// headers of the delivery count as xdeath.Parse says.
func Retry(d amqp.Delivery, r RetryCopy) amqp.Publishing {
	h, _ := xdeath.Parse(d.Headers) // the caller has parsed them too, and logs
	p := fromDelivery(d)
	archive(&p, h, r.User)
	if r.Letter {
		stay(p.Headers, d, h)
	} else {
		place(&p, d, h, r.Queue, r.Returned, cmp.Or(r.FirstFailed, r.At))
		p.Headers[header.Attempts] = bounded(r.Attempts)
		report(p.Headers, h.Failure)
	}
	if n, first := snoozes(d, h, r); n > 0 {
		p.Headers[header.Snoozes] = n
		setTime(p.Headers, header.FirstSnoozedAt, first)
	}
	setMillis(p.Headers, header.NotBefore, r.NotBefore)
	setMillis(p.Headers, header.Due, r.Due)
	Cut(p, header.Max)
	return p
}

// Back returns the copy of a delivery from a wait whose time is over, for the
// queue it waits for: all of it as it is, without what the broker owns. user is
// that of RetryCopy.
func Back(d amqp.Delivery, user string) amqp.Publishing {
	h, _ := xdeath.Parse(d.Headers)
	p := fromDelivery(d)
	for _, key := range header.Past {
		if v, found := d.Headers[key]; found {
			p.Headers[key] = header.Clone(v)
		}
	}
	archive(&p, h, user)
	Cut(p, header.Max)
	return p
}

// DeadLetter returns the copy of a delivery that its queue has given up. It
// keeps, strips and archives like Retry, and carries the reason, error, error
// type, stack, time and host of the failure, the queue, the attempts it spent
// as header.FinalAttempts (never as header.Attempts, so that any way back starts
// at attempt 1), the first failure, and the producer's exchange and routing key.
func DeadLetter(d amqp.Delivery, l Letter) amqp.Publishing {
	h, _ := xdeath.Parse(d.Headers)
	p := fromDelivery(d)
	archive(&p, h, l.User)
	place(&p, d, h, l.Queue, l.Returned, cmp.Or(l.FirstFailed, l.Failure.At))
	p.Headers[header.FinalAttempts] = bounded(l.Attempts)
	report(p.Headers, l.Failure)
	Cut(p, header.Max)
	return p
}

// Fallback returns the copy of a publishing that reached no queue, for a
// dead-letter exchange or another cluster: with the same report as a dead letter,
// and the exchange and routing key it was meant for. It keeps, strips, archives and
// persists like Retry: with its expiration it would vanish from the dead-letter
// queue.
func Fallback(p amqp.Publishing, f FallbackCopy) amqp.Publishing {
	p.Headers = kept(p.Headers)
	p.DeliveryMode = amqp.Persistent
	archive(&p, xdeath.History{}, f.User)
	p.Headers[header.Exchange] = f.Exchange
	p.Headers[header.RoutingKey] = f.RoutingKey
	report(p.Headers, f.Failure)
	Cut(p, header.Max)
	return p
}

// usual is how many headers a copy of a first failure gets.
const usual = 6

// kept returns a copy of the headers that belong to the message: the user's, and
// ours that say nothing about its past.
func kept(headers amqp.Table) amqp.Table {
	t := make(amqp.Table, len(headers)+usual)
	for key, v := range headers {
		if !slices.Contains(header.Family, key) && !slices.Contains(header.Past, key) {
			t[key] = header.Clone(v)
		}
	}
	return t
}

// fromDelivery returns the publishing with all that a copy takes over as it is.
func fromDelivery(d amqp.Delivery) amqp.Publishing {
	return amqp.Publishing{
		Headers:         kept(d.Headers),
		ContentType:     d.ContentType,
		ContentEncoding: d.ContentEncoding,
		DeliveryMode:    amqp.Persistent, // a transient message would not survive its wait
		Priority:        d.Priority,
		CorrelationId:   d.CorrelationId,
		ReplyTo:         header.ReplyTo(d.ReplyTo),
		Expiration:      d.Expiration,
		MessageId:       d.MessageId,
		Timestamp:       d.Timestamp,
		Type:            d.Type,
		UserId:          d.UserId,
		AppId:           d.AppId,
		Body:            d.Body,
	}
}

// archive takes off the properties that the broker would act on once more and writes
// them down. Those of the message are newer than those that a former copy wrote down.
func archive(p *amqp.Publishing, h xdeath.History, user string) {
	millis := expiration(p.Expiration, h)
	p.Expiration = ""
	userID := h.Archived.UserID
	if p.UserId != user {
		userID = cmp.Or(p.UserId, userID)
		p.UserId = ""
	}
	header.ArchiveKeys(p.Headers)
	setText(p.Headers, header.Expiration, millis)
	setText(p.Headers, header.UserID, userID)
	if _, newer := p.Headers[header.ArchivedCC]; !newer && len(h.Archived.CC) > 0 {
		p.Headers[header.ArchivedCC] = array(h.Archived.CC)
	}
}

// expiration returns the producer's, of a message that has this one now. A copy that
// waits, or has come back, has the producer's in its archive. Any other one is the
// consumer's.
func expiration(now string, h xdeath.History) string {
	if !h.Due.IsZero() {
		return h.Archived.Expiration
	}
	millis := cmp.Or(now, h.Archived.Expiration)
	for _, death := range h.Deaths { // where the broker puts it, if it dead-letters the message before us
		millis = cmp.Or(millis, death.OriginalExpiration)
	}
	return millis
}

// place writes for which queue the copy speaks, where the message came from and
// what has happened to it.
func place(p *amqp.Publishing, d amqp.Delivery, h xdeath.History, queue string, returned bool, first time.Time) {
	exchange, key := d.Exchange, d.RoutingKey
	letter := header.IsLetter(d.Headers)
	if header.HasOrigin(d.Headers) && (letter || h.Queue == "") {
		// In a dead-letter queue, out of one by hand, through exact delays, or sent
		// back to this queue: the delivery's own exchange and key are the way it was
		// moved, not the producer's.
		exchange, key = h.Exchange, h.RoutingKey
	}
	if returned {
		if e, k, ok := h.Origin(queue); ok {
			exchange, key = e, k
		}
		if t, ok := h.FirstFailedAt(queue); ok {
			first = t
		}
	}
	p.Headers[header.Queue] = queue
	p.Headers[header.Exchange] = exchange
	p.Headers[header.RoutingKey] = key
	setTime(p.Headers, header.FirstFailedAt, first)
	if earlier := fold(h, letter); len(earlier) > 0 {
		p.Headers[header.History] = tables(earlier)
	}
}

// stay writes what a letter says that stays in its dead-letter queue. The copy has the
// exchange and key of a message that is no letter, and nothing else of its past.
func stay(headers amqp.Table, d amqp.Delivery, h xdeath.History) {
	l := h.Letter()
	letter := header.IsLetter(d.Headers)
	if !letter && l.Failure.Cause != "" {
		// What another framework has written is the reason, and not how the broker has
		// moved the message before.
		_, known := foreign.Read(d.Headers)
		letter = !known
	}
	switch hasOrigin := header.HasOrigin(d.Headers) || len(h.Deaths) > 0; {
	case hasOrigin:
		headers[header.Exchange], headers[header.RoutingKey] = l.Exchange, l.RoutingKey
	case !letter:
		headers[header.Exchange], headers[header.RoutingKey] = d.Exchange, d.RoutingKey
	}
	if letter {
		setText(headers, header.Queue, l.Queue)
		headers[header.FinalAttempts] = bounded(l.FinalAttempts)
		first, _ := l.FirstFailedAt(l.Queue)
		setTime(headers, header.FirstFailedAt, first)
		report(headers, l.Failure)
	}
	if earlier := fold(h, false); len(earlier) > 0 {
		headers[header.History] = tables(earlier)
	}
}

// report writes why the message was given up; of the zero Failure, nothing.
func report(headers amqp.Table, f xdeath.Failure) {
	setText(headers, header.Cause, cut(string(f.Cause), header.MaxName))
	setText(headers, header.Error, cut(f.Error, maxErrorBytes))
	setText(headers, header.ErrorType, cut(f.ErrorType, header.MaxName))
	setText(headers, header.Stack, cut(f.Stack, maxStackBytes))
	setTime(headers, header.FailedAt, f.At)
	setText(headers, header.Host, cut(f.Host, header.MaxName))
}

func bounded(attempts int) int64 { return min(max(int64(attempts), 0), header.MaxCount) }

func setText(headers amqp.Table, key, s string) {
	if s != "" {
		headers[key] = s
	}
}

func setTime(headers amqp.Table, key string, t time.Time) {
	if header.IsInstant(t) { // anything else, the zero time included, xdeath.Parse would refuse
		headers[key] = t
	}
}

// setMillis rounds up: a message may not come early. Beyond header.MaxMillis xdeath.Parse would
// count it as absent, which is at once.
func setMillis(headers amqp.Table, key string, t time.Time) {
	if !t.IsZero() {
		ms := t.Add(time.Millisecond - time.Nanosecond).UnixMilli()
		headers[key] = min(max(ms, 0), header.MaxMillis)
	}
}
