package model

import (
	"maps"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/rehoptest/internal/wire"
)

// Message is what was published, or what a dead-lettering made of it. It is
// never changed: queues share it. Its steps and its round are those of all copies.
type Message struct {
	Exchange   string
	Keys       []string // the routing key, then those of CC and BCC
	Properties wire.Properties
	Body       []byte

	deaths   []death // newest first; since 4.0
	failures int     // delivery count that came along from the queue before

	bcc     []string
	encoded int // octets of the properties as they were published
	steps   *steps
	round   *round // of all copies of one publish; nil: none was dead-lettered
}

// round is how often the copies of one publish were dead-lettered at one moment.
type round struct {
	at time.Time
	n  int
}

// maxRound bounds a round. RabbitMQ 3.10 does not: where an old rejection hides a
// cycle, a message goes round for ever between queues that have no room for it.
const maxRound = 1000

// Key is the routing key that consumers see.
func (m *Message) Key() string { return m.Keys[0] }

// entry is a message in one queue.
type entry struct {
	*Message
	position    uint64    // by arrival
	index       uint64    // in the log of a quorum queue
	expires     time.Time // zero: never
	bytes       int       // towards a length limit
	level       int       // of priority
	failures    int       // delivery count
	returns     int       // acquired count
	returned    bool      // was with a consumer before
	delayed     time.Time // delayed retry: not before
	at          time.Time // of its arrival
	unconfirmed bool      // came as a dead letter at-most-once
	awaited     bool      // a consumer had room for it
}

func (e *entry) size() int { return e.bytes }

func (e *entry) expired(now time.Time) bool { return !e.expires.IsZero() && e.expires.Before(now) }

func (e *entry) expiring(now time.Time) bool { return !e.expires.IsZero() && !e.expires.After(now) }

// withHeaders returns properties whose headers were changed by change.
func withHeaders(p wire.Properties, change func(amqp.Table)) wire.Properties {
	headers := maps.Clone(p.Headers)
	if headers == nil {
		headers = amqp.Table{}
	}
	change(headers)
	p.Headers = headers
	p.Flags |= wire.FlagHeaders
	return p
}

// headerRoutes returns the further routing keys of a publish.
func headerRoutes(headers amqp.Table, name string) ([]string, *Error) {
	v, ok := headers[name]
	if !ok {
		return nil, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, Fail(PreconditionFailed, "invalid message: {unacceptable_type_in_header,\"%s\",%s}", name, typeName(v))
	}
	var keys []string
	for _, v := range list {
		if s, ok := v.(string); ok {
			keys = append(keys, s)
		}
	}
	return keys, nil
}

func anyKeys(keys []string) []any {
	list := make([]any, len(keys))
	for i, k := range keys {
		list[i] = k
	}
	return list
}
