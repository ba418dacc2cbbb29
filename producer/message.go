package producer

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/topology"
)

// Message is a message to be published, with its address. Only RoutingKey, or Exchange,
// is required.
type Message struct {
	// Exchange to publish to. Empty: the default exchange, where RoutingKey is the
	// name of a queue.
	Exchange string

	// RoutingKey, up to 255 bytes.
	RoutingKey string

	// Origin is where the message was first published to, for a message that is now
	// sent straight to the queue that failed on it. The consumer shows Origin as
	// Delivery.Exchange and Delivery.RoutingKey. Zero: the message is first
	// published now, to Exchange and RoutingKey. Up to 255 bytes each. Sent as
	// x-rehop-exchange and x-rehop-routing-key where it differs from Exchange and
	// RoutingKey.
	Origin topology.Address

	// OrderKey names the messages that must be handled one after the other, such as
	// the number of an order: up to 255 bytes. Empty: none. Sent as
	// x-rehop-order-key, which every copy, letter and store keeps.
	OrderKey string

	Body []byte

	// Headers are sent along; an int is sent as int64. Headers that the
	// broker or the SDK own (x-death and its family, x-rehop-*) are left out:
	// a message that is published starts a life of its own. Only x-rehop-user-id
	// stays, see [FromDelivery]. Headers and properties
	// together have up to 64 KiB, in which CC counts 19 times, because each hop adds a copy
	// of it. Headers have up to 8,128 entries and 32 levels.
	Headers amqp.Table

	// ID is the message id, the same on every copy and attempt. Defaults to a
	// new one. It and the other strings below have up to 255 bytes.
	ID string

	ContentType     string
	ContentEncoding string
	Type            string
	CorrelationID   string
	ReplyTo         string
	AppID           string

	// UserID must be the user of the connection if set; the broker checks it. The user
	// of a message from [FromDelivery] may be another one.
	UserID string

	// Timestamp defaults to now. AMQP carries whole seconds.
	Timestamp time.Time

	// Priority from 1 (low) to 9 (high); 0: none. A queue that honours priorities
	// counts 0 as 4 if it is a quorum queue, and as 0 if it is a classic one.
	// Priority is sent as the header x-rehop-priority too, which routes the
	// message to its lane, see topology.Lanes.
	Priority uint8

	// Expiration after which a queue gives the message up, in whole milliseconds up to
	// 10 years. A work queue then moves it to the dead-letter queue. Zero: never. It
	// does not run while the message waits for its next attempt, nor after.
	Expiration time.Duration

	// Delay before the message reaches the queues that its Exchange and RoutingKey lead
	// to; zero: none. It is rounded up to the grain of the topology.Delays that are
	// declared on the Conn for this queue or exchange, and begins when the broker has
	// the message. Publish returns once the message is safe on the broker, and fails
	// before anything is sent if no such Delays are declared, or if the message could
	// reach no queue: by a key with the word * or # to a direct exchange, or where all
	// queues that the Conn has bound for the key were declared apart from the Delays. A
	// message with a Delay can have neither an Expiration nor the headers CC and BCC.
	// topology.Delays has the promises for each version of the broker.
	//
	// The message is routed to its queues when it is due. If its queue is gone by
	// then, or its exchange leads its key to no queue, it goes to the queue of
	// topology.Delays.Stranded. Publish has returned by then, so neither the
	// Receipt nor an error reports this, and no Fallback is asked.
	Delay time.Duration

	// Replays is how often a store has forwarded or replayed the message after an
	// earlier publish, this time included. It is 0 if a store publishes the
	// message for the first time, as an outbox does. Sent as x-rehop-replays
	// unless 0.
	Replays int
}

// Validate returns all faults of the message itself, as Publish would. It asks no Conn
// and no broker. Only Publish finds out whether the exchange exists, whether a queue
// takes the message, whether its headers fit in the connection's frames, and whether a
// topology.Delays is declared for its Delay.
func (m Message) Validate() error {
	_, err := m.publishing()
	return err
}

// publishing returns the message as it is sent, or everything that is wrong
// with it.
func (m Message) publishing() (amqp.Publishing, error) {
	p := amqp.Publishing{
		Headers:         header.Strip(m.Headers),
		ContentType:     m.ContentType,
		ContentEncoding: m.ContentEncoding,
		DeliveryMode:    amqp.Persistent,
		Priority:        m.Priority,
		CorrelationId:   m.CorrelationID,
		ReplyTo:         m.ReplyTo,
		MessageId:       m.ID,
		Timestamp:       m.Timestamp,
		Type:            m.Type,
		UserId:          m.UserID,
		AppId:           m.AppID,
		Body:            m.Body,
	}
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("producer: Message."+format, args...))
	}
	if m.Exchange == "" && m.RoutingKey == "" {
		fault("RoutingKey is empty, and so is Exchange: the default exchange wants the name of a queue as RoutingKey (topology.Shards.Queue returns none for an empty key)")
	}
	short := func(field, value string, text bool) {
		if n := len(value); n > maxShort {
			fault("%s is %d bytes long, want at most %d", field, n, maxShort)
		}
		if text && !utf8.ValidString(value) {
			fault("%s is %q, which is not valid UTF-8", field, value)
		}
	}
	short("Exchange", m.Exchange, true)
	short("RoutingKey", m.RoutingKey, false)           // may be any bytes
	short("Origin.Exchange", m.Origin.Exchange, false) // these go to headers
	short("Origin.RoutingKey", m.Origin.RoutingKey, false)
	short("OrderKey", m.OrderKey, false)
	if m.Priority > header.MaxPriority {
		fault("Priority is %d, want 1 (low) to %d (high), or 0 for none", m.Priority, header.MaxPriority)
	}
	switch {
	case m.Expiration == 0:
	case m.Expiration < 0 || m.Expiration%time.Millisecond != 0:
		fault("Expiration is %v, want whole milliseconds up to 10 years, or 0 for never", m.Expiration)
	default:
		p.Expiration = strconv.FormatInt(m.Expiration.Milliseconds(), 10)
	}
	if m.ReplyTo == header.DirectReply {
		fault("ReplyTo is %q, want the name of a queue: the broker takes that one only from a channel that consumes its answers", m.ReplyTo)
	}
	if m.Replays < 0 {
		fault("Replays is %d, want 0 or more", m.Replays)
	}
	m.addHeaders(&p)
	if err := m.faultsOfDelay(); err != nil {
		errs = append(errs, err)
	}
	for _, name := range []string{header.CC, header.BCC} {
		for _, key := range header.Texts(p.Headers[name]) {
			if route.IsWaitKey(key) {
				fault("Headers[%q] has the key %q, want another one: with it messages leave the waits of a work queue, which would take this one for a message that has waited", name, key)
			}
		}
	}
	if err := header.Check(p); err != nil {
		for _, line := range strings.Split(err.Error(), "\n") {
			fault("%s", line)
		}
	}
	return p, rehop.WithClass(errors.Join(errs...), rehop.ClassBug)
}

// addHeaders adds the headers that fields of the message stand for.
func (m Message) addHeaders(p *amqp.Publishing) {
	origin := m.origin()
	travels := origin != m.target()
	sender := header.Sender(m.Headers, m.UserID)
	if m.Priority == 0 && m.Replays <= 0 && m.OrderKey == "" && !travels && sender == "" {
		return
	}
	if p.Headers == nil {
		p.Headers = amqp.Table{}
	}
	if m.Priority > 0 {
		p.Headers[header.Priority] = int64(m.Priority)
	}
	if m.Replays > 0 {
		p.Headers[header.Replays] = min(int64(m.Replays), header.MaxCount)
	}
	if m.OrderKey != "" {
		p.Headers[header.OrderKey] = m.OrderKey
	}
	if travels {
		setOrigin(p.Headers, origin)
	}
	if sender != "" {
		p.Headers[header.UserID] = sender
	}
}

// target is where the message is published to.
func (m Message) target() topology.Address {
	return topology.Address{Exchange: m.Exchange, RoutingKey: m.RoutingKey}
}

// origin is where the message was first published to.
func (m Message) origin() topology.Address {
	if m.Origin == (topology.Address{}) {
		return m.target()
	}
	return m.Origin
}

func setOrigin(headers amqp.Table, origin topology.Address) {
	headers[header.Exchange] = origin.Exchange
	headers[header.RoutingKey] = origin.RoutingKey
}

// maxShort is the length of an AMQP short string in bytes.
const maxShort = 255

// ids makes message ids: a random part for each producer and a running number.
type ids struct {
	prefix string
	last   atomic.Uint64
}

func newIDs() *ids {
	var random [12]byte
	_, _ = rand.Read(random[:]) // documented never to fail
	return &ids{prefix: hex.EncodeToString(random[:]) + "-"}
}

func (i *ids) next() string {
	var id [48]byte
	return string(strconv.AppendUint(append(id[:0], i.prefix...), i.last.Add(1), 10))
}
