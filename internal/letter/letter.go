// Package letter is what all stores of letters have in common: what a letter is
// made from, what its id and fingerprint are, and how its headers are written.
package letter

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/foreign"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/producer"
)

// Letter is a message and why it is not in its queue.
type Letter struct {
	Message     producer.Message
	Queue       string // of a dead letter: the work queue that gave it up
	WorkQueue   string // of a dead letter: Queue, or the name of the lanes that Queue is one of
	Cause       rehop.Cause
	Error       string
	ErrorType   string
	Attempts    int
	Redrives    int    // times that a person had sent the message back
	RedriveID   string // id of the redrive by which a person did so last
	Unconfirmed bool   // the message may be in its queue
	FirstFailed time.Time
	Failed      time.Time
	Stored      time.Time
}

// Unpublished is the letter of a message that could not be published.
func Unpublished(m producer.Message, cause error, now time.Time) Letter {
	l := Letter{Message: m, Cause: producer.CauseOf(cause), Failed: now, FirstFailed: now, Stored: now}
	if cause != nil {
		l.Error, l.ErrorType = cause.Error(), fmt.Sprintf("%T", innermost(cause))
	}
	l.Unconfirmed = errors.Is(cause, producer.ErrUnconfirmed)
	return l
}

// innermost is the error that others were wrapped around, whose type says most.
func innermost(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// Dead is the letter of a delivery from a dead-letter queue.
func Dead(d *consumer.Delivery, now time.Time) Letter {
	failure := d.History.Failure
	m := producer.FromDelivery(d.AMQP()) // so that every way out sends the same message
	m.Exchange, m.RoutingKey, m.OrderKey, m.Replays = d.Exchange, d.RoutingKey, d.OrderKey, d.History.Replays
	m.Headers = header.Again(maps.Clone(d.Headers), m.UserID) // and a person sees all headers
	header.ArchiveKeys(m.Headers)
	m.Headers = withLay(m.Headers, d.AMQP())
	l := Letter{
		Message: m, Queue: d.History.Queue, Cause: failure.Cause, Error: failure.Error, ErrorType: failure.ErrorType,
		Attempts: d.History.FinalAttempts, Redrives: d.History.Redrives, RedriveID: d.History.RedriveID, Failed: failure.At, Stored: now,
	}
	if f, known := foreign.Read(d.Headers); known && !header.IsLetter(d.Headers) {
		l.addForeign(f)
	}
	if l.Cause == "" { // a message that somebody sent to the queue by hand
		l.Cause, l.Failed = rehop.CauseRejected, now
	}
	l.WorkQueue = WorkQueue(l.Queue, d.Queue, l.Message.Exchange)
	l.FirstFailed, _ = d.History.FirstFailedAt(l.Queue)
	if l.FirstFailed.IsZero() {
		l.FirstFailed = l.Failed
	}
	return l
}

// addForeign takes the reason from the headers of another framework.
func (l *Letter) addForeign(f foreign.Failure) {
	l.Queue, l.Cause, l.Error, l.ErrorType = cmp.Or(f.Queue, l.Queue), f.Cause, f.Error, f.ErrorType
	l.Attempts = cmp.Or(f.Attempts, l.Attempts)
	if !f.At.IsZero() {
		l.Failed = f.At
	}
	if f.HasOrigin {
		l.Message.Exchange, l.Message.RoutingKey = f.Exchange, f.RoutingKey
	}
}

// Cut makes the texts that are only for people fit for every database.
func (l *Letter) Cut() {
	l.Error = Readable(l.Error, MaxError)
	l.ErrorType = Readable(l.ErrorType, MaxName)
	l.Cause = rehop.Cause(Readable(string(l.Cause), MaxName))
}

// MaxError is how many bytes of an error are kept, and MaxName of its type and of a cause.
const (
	MaxError = 4 << 10
	MaxName  = 255
)

// Readable makes a text that is only for people fit for every database.
func Readable(s string, limit int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "?")
	for len(s) > limit {
		cut := limit
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut]
	}
	return s
}

// perPublish are headers that tracing writes anew when the same message is published once
// more, and keys whose receivers have it.
var perPublish = []string{"traceparent", "tracestate", "baggage", header.CC, header.BCC}

// Identity is the same for a message that comes twice, and differs for two
// messages, also if a producer gives both one id. What has no message id cannot be told
// from its like: each gets an id of its own.
func Identity(m producer.Message, queue string) string {
	if m.ID == "" {
		return rand.Text()
	}
	own := header.Strip(m.Headers)
	maps.DeleteFunc(own, func(name string, _ any) bool { return slices.Contains(perPublish, name) })
	headers, err := EncodeTable(own)
	if err != nil { // nested too deep
		headers = err.Error()
	}
	h := sha256.New()
	for _, part := range []string{m.ID, m.Exchange, m.RoutingKey, queue, m.Type, m.ContentType, m.ContentEncoding, m.CorrelationID, m.ReplyTo, m.AppID, m.OrderKey, headers} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	h.Write(m.Body)
	return hex.EncodeToString(h.Sum(nil)[:16])
}
