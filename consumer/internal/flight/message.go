// Package flight has the messages that a consumer has and has not settled: one
// message, and the ledger of one session. The packages carry, intake, schedule and settle
// import flight, and none of them imports another. carry and intake also import ask.
package flight

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Message is one delivery, from its arrival to its end. The session, a worker and
// the settling have it one after the other, and only the one that has it changes it.
type Message struct {
	Raw      amqp.Delivery
	In       *Ledger
	Received time.Time

	// Key is that of the messages of which only so many are handled at a time; "" is
	// none.
	Key string

	// Suspect says that consumers may have died of the message.
	Suspect bool

	// Alone says that the message is handled in no batch with others.
	Alone bool

	// User is for package consumer: what it knows of the message once a worker has it.
	User any

	Begun   atomic.Bool // a worker has it, or had it
	Running atomic.Bool // a handler is at work on it
	Back    atomic.Bool // it goes back to its queue when its session ends, and nobody has it until then

	returned bool // a handler has returned from it once

	prev, next *Message // among the open messages of its session
}

// Age returns how long ago the message came.
func (m *Message) Age() time.Duration { return time.Since(m.Received) }

// Returned notes that a handler has returned from the message. So the message does
// not end the process, whatever becomes of it.
func (m *Message) Returned() {
	if m.returned {
		return
	}
	m.returned = true
	if m.Raw.Redelivered {
		m.In.untried.Add(-1)
	}
	if !m.Suspect {
		return
	}
	m.In.uncleared.Add(-1)
	select {
	case m.In.cleared <- struct{}{}:
	default: // nobody has looked since the last one
	}
}

// Plural returns "1 message" and "2 messages".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// OldestFirst sorts messages by their arrival.
func OldestFirst(ms []*Message) {
	slices.SortFunc(ms, func(a, b *Message) int {
		return cmp.Or(a.Received.Compare(b.Received), cmp.Compare(a.Raw.DeliveryTag, b.Raw.DeliveryTag))
	})
}

// mostNamed bounds the messages that an error names.
const mostNamed = 5

// Named returns the ids of messages for an error or the log, and the number of those beyond the
// first few.
func Named(ms []*Message) string {
	var ids []string
	for _, m := range ms[:min(len(ms), mostNamed)] {
		ids = append(ids, strconv.Quote(m.Raw.MessageId))
	}
	text := strings.Join(ids, ", ")
	if rest := len(ms) - len(ids); rest > 0 {
		text += " and " + Plural(rest, "other")
	}
	return text
}

// MaxSkew is how far the clocks of two consumers may be apart. Beyond it, a message that
// one of them sent to a wait with a TTL looks early to the other.
const MaxSkew = time.Second
