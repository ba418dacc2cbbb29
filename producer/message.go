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

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// Message is what is published, and where. Only Key, or Exchange, is required.
type Message struct {
	// Exchange to publish to. Empty: the default exchange, where Key is the
	// name of a queue.
	Exchange string

	// Key is the routing key, up to 255 bytes.
	Key string

	Body []byte

	// Headers are sent along; an int is sent as int64. Headers that the
	// broker or the SDK own (x-death and its family, x-rehop-*) are left out:
	// a message that is published starts a life of its own.
	Headers amqp.Table

	// ID is the message id, the same on every copy and attempt. Defaults to a
	// new one.
	ID string

	ContentType     string
	ContentEncoding string
	Type            string
	CorrelationID   string
	ReplyTo         string
	AppID           string

	// UserID must be the user of the connection if set; the broker checks it.
	UserID string

	// Timestamp defaults to now. AMQP carries whole seconds.
	Timestamp time.Time

	// Priority from 1 (low) to 9 (high); 0: none, which counts as 4 where the
	// queue honours priorities and is a quorum queue, as 0 where it is a
	// classic one. It is sent as the header x-rehop-priority too, which leads the
	// message to its lane, see topology.Lanes.
	Priority uint8

	// Expiration after which a queue gives the message up, in whole
	// milliseconds up to 10 years; in a work queue it then goes to the
	// dead-letter queue. Zero: never. It does not run while the message waits
	// for its next attempt, nor after.
	Expiration time.Duration

	// Delay before the message reaches the queues that its Exchange and Key lead
	// to; zero: none. It is rounded up to the grain of the topology.Delays that
	// are declared on the Conn for this queue or exchange, and counts from when
	// the broker has the message. Publish returns once the message is safe in its
	// wait, and fails before anything is sent if no such delay is declared. It
	// excludes Expiration, and the headers CC and BCC. See topology.Delays for
	// what is promised on which broker.
	//
	// Whether a queue takes the message is decided when it is due. If its queue is
	// gone by then, or its exchange leads its key to no queue, it goes to the queue
	// of topology.Delays.Stranded. Publish has returned before that, so neither the
	// Receipt nor an error says so, and no Fallback is asked.
	Delay time.Duration

	// Replays is how often the message was forwarded or replayed from a store,
	// this time included. Sent as x-rehop-replays unless 0.
	Replays int
}

// Validate returns everything that is wrong with the message, as Publish would.
func (m Message) Validate() error {
	_, err := m.publishing()
	return err
}

// publishing returns the message as it is sent, or everything that is wrong
// with it.
func (m Message) publishing() (amqp.Publishing, error) {
	p := amqp.Publishing{
		Headers:         xdeath.Strip(m.Headers),
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
	if m.Exchange == "" && m.Key == "" {
		fault("Key is empty, and so is Exchange: the default exchange wants the name of a queue as Key")
	}
	if n := len(m.Exchange); n > maxShort {
		fault("Exchange is %d bytes long, want at most %d", n, maxShort)
	}
	if !utf8.ValidString(m.Exchange) { // a key may be any bytes
		fault("Exchange is %q, which is not valid UTF-8", m.Exchange)
	}
	if n := len(m.Key); n > maxShort {
		fault("Key is %d bytes long, want at most %d", n, maxShort)
	}
	if m.Priority > topology.MaxPriority {
		fault("Priority is %d, want 1 (low) to %d (high), or 0 for none", m.Priority, topology.MaxPriority)
	}
	switch {
	case m.Expiration == 0:
	case m.Expiration < 0 || m.Expiration%time.Millisecond != 0:
		fault("Expiration is %v, want whole milliseconds up to 10 years, or 0 for never", m.Expiration)
	default:
		p.Expiration = strconv.FormatInt(m.Expiration.Milliseconds(), 10)
	}
	if m.Priority > 0 {
		if p.Headers == nil {
			p.Headers = amqp.Table{}
		}
		p.Headers[xdeath.HeaderPriority] = int64(m.Priority)
	}
	switch {
	case m.Replays < 0:
		fault("Replays is %d, want 0 or more", m.Replays)
	case m.Replays > 0:
		if p.Headers == nil {
			p.Headers = amqp.Table{}
		}
		p.Headers[xdeath.HeaderReplays] = int64(m.Replays)
	}
	if err := m.faultsOfDelay(); err != nil {
		errs = append(errs, err)
	}
	if err := xdeath.Validate(p); err != nil {
		for _, line := range strings.Split(err.Error(), "\n") {
			fault("%s", strings.TrimPrefix(line, "xdeath: "))
		}
	}
	return p, connection.WithClass(errors.Join(errs...), connection.Bug)
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
