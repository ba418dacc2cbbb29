package desk

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/foreign"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// Letter is a message that was set aside, and the reason.
type Letter struct {
	// ID names the letter within its [Source]. A live source makes it from the
	// message, so that the same letter has the same ID in the next look.
	ID string

	// Place is the position in the queue, from 1, or the number in the store.
	Place int64

	State string // of a collected letter: held, parked, archived or ready

	// Queue is the work queue that failed on the message; empty if no queue did or
	// none is named.
	Queue string

	// Exchange and RoutingKey are where the message was first published to, as far
	// as its headers know.
	Exchange, RoutingKey string

	Cause       rehop.Cause // empty: the headers name none
	Error       string
	ErrorType   string
	Stack       string
	Host        string
	Attempts    int // 0: unknown
	FirstFailed time.Time
	Failed      time.Time // zero: unknown

	// Fingerprint is the same for all letters of one reason: see store.Entry.
	Fingerprint string

	// Framework is the program whose headers were read: rehop, rabbitmq (x-death
	// alone), spring-amqp, nservicebus or masstransit; empty if no header is known.
	Framework string

	// Redrives is how often a person has sent the message back before, and
	// RedriveID the id of the last redrive. A letter with Redrives above 0 has
	// failed again.
	Redrives  int
	RedriveID string

	// OrderKey is the key that the producer gave the message, see producer.Message.
	OrderKey string

	// Tries is how often a publish of a collected letter has failed because of the message or its
	// target, since a person changed its State. TryError is the last error.
	Tries    int
	TryError string

	// NextTry is the time before which the store.Forwarder does not publish a letter that is
	// ready; zero: at once, or the letter is not ready, or a process has it to publish it.
	NextTry time.Time

	// Publishing is the message as it lies in its place, with every property and
	// header. Its Body must not be changed.
	Publishing amqp.Publishing

	// Malformed says which headers could not be read; they count as absent.
	Malformed string

	// Doubt says why the letter is not sent back to where its headers say that it came
	// from, which everybody can write who may publish: the broker's x-death names another
	// queue, or the letter is in the dead-letter queue of another one. [Letter.Target] does
	// not know its target then, and a redrive needs Redrive.To. Empty: nothing speaks
	// against the headers.
	Doubt string

	history   xdeath.History
	hasOrigin bool
	lane      string // the fingerprint by the queue as it is named: what an earlier version has written has it
}

// Event is one line of the life of a message.
type Event struct {
	At   time.Time // zero: unknown
	What string
}

// fromDelivery returns the letter that a delivery from a dead-letter queue with this owner is.
func fromDelivery(d amqp.Delivery, queue string, of owner) Letter {
	l := readIn(publishingOf(d), queue)
	if l.Doubt == "" {
		l.Doubt = of.doubt(l)
	}
	return l
}

// read returns the letter that a message in a dead-letter queue is.
func read(p amqp.Publishing) Letter { return readIn(p, "") }

// readIn is read for a message in the dead-letter queue of this name.
func readIn(p amqp.Publishing, queue string) Letter {
	h, err := xdeath.Parse(p.Headers)
	h = h.Letter()
	l := Letter{
		Publishing: p, Queue: h.Queue, Cause: h.Failure.Cause, Error: h.Failure.Error, ErrorType: h.Failure.ErrorType,
		Stack: h.Failure.Stack, Host: h.Failure.Host, Attempts: h.FinalAttempts, Failed: h.Failure.At,
		Redrives: h.Redrives, RedriveID: h.RedriveID, OrderKey: foreign.Text(p.Headers[header.OrderKey]), history: h,
	}
	if err != nil {
		l.Malformed = err.Error()
	}
	l.Exchange, l.RoutingKey, l.hasOrigin = h.Origin(h.Queue)
	if !l.hasOrigin && h.Failure.Cause != "" {
		l.Exchange, l.RoutingKey, l.hasOrigin = h.Exchange, h.RoutingKey, h.Exchange != "" || h.RoutingKey != ""
	}
	l.FirstFailed, _ = h.FirstFailedAt(l.Queue)
	switch {
	case header.IsLetter(p.Headers):
		l.Framework = ofRehop
	case l.Cause != "":
		l.Framework = ofRabbitMQ
	}
	if l.Framework != ofRehop {
		l.addForeign()
	}
	if l.FirstFailed.IsZero() {
		l.FirstFailed = l.Failed
	}
	l.Fingerprint = letter.Fingerprint(letter.WorkQueue(l.Queue, queue, l.Exchange), l.Exchange, l.Cause, l.ErrorType, l.Error)
	l.lane = letter.Fingerprint(l.Queue, l.Exchange, l.Cause, l.ErrorType, l.Error)
	l.Doubt = letter.Doubt(p.Headers, l.Queue)
	return l
}

// publishingOf returns a delivery as it was published to the queue it came from.
func publishingOf(d amqp.Delivery) amqp.Publishing {
	return amqp.Publishing{
		Headers: d.Headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode,
		Priority: d.Priority, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration,
		MessageId: d.MessageId, Timestamp: d.Timestamp, Type: d.Type, UserId: d.UserId, AppId: d.AppId, Body: d.Body,
	}
}

// deliveryOf is the inverse of publishingOf.
func deliveryOf(p amqp.Publishing) amqp.Delivery {
	return amqp.Delivery{
		Headers: p.Headers, ContentType: p.ContentType, ContentEncoding: p.ContentEncoding, DeliveryMode: p.DeliveryMode,
		Priority: p.Priority, CorrelationId: p.CorrelationId, ReplyTo: p.ReplyTo, Expiration: p.Expiration,
		MessageId: p.MessageId, Timestamp: p.Timestamp, Type: p.Type, UserId: p.UserId, AppId: p.AppId, Body: p.Body,
	}
}

// digest is the same for a letter each time that it is seen in its queue, and for
// its exact like.
func (l Letter) digest() string {
	p := l.Publishing
	headers := maps.Clone(p.Headers)
	delete(headers, header.DeliveryCount)
	delete(headers, header.AcquiredCount)
	header.ArchiveKeys(headers)
	delete(headers, header.ArchivedCC)
	if user, moved := header.Text(headers[header.UserID]); moved { // see header.Relay
		p.UserId = cmp.Or(p.UserId, user)
		delete(headers, header.UserID)
	}
	text, err := letter.EncodeTable(headers)
	if err != nil { // nested too deep
		text = err.Error()
	}
	h := sha256.New()
	for _, part := range []string{
		p.MessageId, l.Queue, l.Exchange, l.RoutingKey, p.CorrelationId, p.Type, p.ContentType, p.ContentEncoding, header.ReplyTo(p.ReplyTo), p.AppId, p.UserId, text,
	} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	fmt.Fprintf(h, "%d:", p.Timestamp.Unix())
	h.Write(p.Body)
	return hex.EncodeToString(h.Sum(nil)[:9])
}

// name gives letters their IDs: letters that are alike get a number behind it.
func name(letters []Letter) {
	seen := make(map[string]int, len(letters))
	for i := range letters {
		id := letters[i].digest()
		seen[id]++
		letters[i].ID = numbered(id, seen[id])
	}
}

func numbered(id string, n int) string {
	if n == 1 {
		return id
	}
	return id + "." + strconv.Itoa(n)
}

// Target returns the address to which the letter is sent back, and false if its headers
// do not tell it, or are in Doubt. That is the queue that failed, by its name, so that no
// other queue gets the message again. A message that no queue had goes to its exchange.
func (l Letter) Target() (topology.Address, bool) {
	if l.Doubt != "" {
		return topology.Address{}, false
	}
	return l.named()
}

// named returns the address to which the headers would have the letter sent back.
func (l Letter) named() (topology.Address, bool) {
	if l.Queue != "" {
		return topology.Address{RoutingKey: l.Queue}, true
	}
	to := topology.Address{Exchange: l.Exchange, RoutingKey: l.RoutingKey}
	return to, l.hasOrigin && to != topology.Address{}
}

// message returns the message as its producer published it.
func (l Letter) message() producer.Message {
	m := producer.FromDelivery(deliveryOf(l.Publishing))
	m.Exchange, m.RoutingKey = l.Exchange, l.RoutingKey
	return m
}

// Life returns the life of the message as its headers tell it, in the order of time.
// Events without a time stand where they happened. The text of the failure is in Error alone.
func (l Letter) Life() []Event {
	var events []Event
	add := func(at time.Time, format string, args ...any) {
		events = append(events, Event{At: at, What: fmt.Sprintf(format, args...)})
	}
	where := strconv.Quote(l.RoutingKey)
	if l.Exchange != "" {
		where = fmt.Sprintf("exchange %q with key %q", l.Exchange, l.RoutingKey)
	}
	if l.hasOrigin {
		add(l.Publishing.Timestamp, "published to %s", where)
	} else {
		add(l.Publishing.Timestamp, "published")
	}
	if !l.FirstFailed.IsZero() && l.FirstFailed.Before(l.Failed) {
		add(l.FirstFailed, "first attempt failed in %q", l.Queue)
	}
	var deaths []xdeath.Death
	deaths = append(append(deaths, l.history.Earlier...), l.history.Deaths...)
	slices.SortStableFunc(deaths, func(a, b xdeath.Death) int { return a.Time.Compare(b.Time) })
	for _, d := range deaths {
		times := ""
		if d.Count > 1 {
			times = fmt.Sprintf(", the first of %d times", d.Count)
		}
		add(d.Time, "left queue %q: %s%s", d.Queue, d.Reason, times)
	}
	if l.Redrives > 0 {
		add(time.Time{}, "sent back %s, last by redrive %s", timesText(l.Redrives), cmp.Or(l.RedriveID, "unknown"))
	}
	if l.Cause != "" {
		what := fmt.Sprintf("given up: %s", l.Cause)
		if l.Attempts > 0 {
			what += fmt.Sprintf(" after %s", count(l.Attempts, "attempt"))
		}
		add(l.Failed, "%s", what)
	}
	slices.SortStableFunc(events, func(a, b Event) int {
		if a.At.IsZero() || b.At.IsZero() {
			return 0
		}
		return a.At.Truncate(time.Second).Compare(b.At.Truncate(time.Second)) // the broker's times have no fractions
	})
	return events
}

func timesText(n int) string {
	if n == 1 {
		return "once"
	}
	return strconv.Itoa(n) + " times"
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
