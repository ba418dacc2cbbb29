package hand

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/route"
)

// Message is one delivery, from its arrival to its end. Its exported fields do not change
// after its arrival.
type Message struct {
	Raw      amqp.Delivery
	Received time.Time

	// Key is that of the messages of which only so many are handled at a time; "" is
	// none.
	Key string

	// Deaths is how often consumers may have died of it, if so often that it is a suspect; else 0.
	Deaths int

	Alone  bool // it is handled in no batch with others
	Scarce bool // it should not go back to its queue, see Lane.TakeBack

	// Observer is told how the message fares. This package never calls it.
	Observer Observer

	// In is the session that the message has come in.
	In *Session

	phase      Phase
	consumer   int      // of its session, by number
	grant      *Grant   // in which a worker has it; of one that has left its slot only whether there was one
	prev, next *Message // among the open messages of its session
}

// Observer is told how a message fares.
type Observer interface {
	// Copied says that the copy of the message is written.
	Copied(to route.Target)

	// Confirmed says that the copy is confirmed; instead, that it is the one for a message
	// that can be kept no longer.
	Confirmed(to route.Target, instead bool)

	// Unconfirmed says that the copy is not confirmed, and the message is held.
	Unconfirmed(to route.Target, err error)

	// Settled says, once, that the broker has been told, or cannot be: then the broker
	// delivers the message again.
	Settled(v Verb, err error)
}

// Age returns how long ago the message came.
func (m *Message) Age(now time.Time) time.Duration { return now.Sub(m.Received) }

// IsSuspect reports whether consumers may have died of the message.
func (m *Message) IsSuspect() bool { return m.Deaths > 0 }

// hasCome reports whether the message has been delivered before, or seems so: its publisher may have written the count.
func (m *Message) hasCome() bool { return m.Raw.Redelivered || m.IsSuspect() }

// WasTaken reports whether a worker has the message, or had it.
func (m *Message) WasTaken() bool { return m.grant != nil }
