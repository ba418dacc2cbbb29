package consumer

import (
	"context"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// message is one delivery, from its arrival to its end. Session, worker, republisher
// and acker own it one after the other, and only its owner changes it. The acker's
// list of what is unsettled runs through prev and next, which are the acker's.
type message struct {
	from     *origin
	lane     *lane // once it is queued for the workers
	raw      amqp.Delivery
	received time.Time
	suspect  bool        // consumers may have died of it
	proved   bool        // its handler has returned once
	begun    atomic.Bool // a worker has it, or had it
	running  atomic.Bool // a handler is at it

	delivery *Delivery  // once a worker has it
	*ending             // once it is decided how it is settled
	end      Settlement // where it is when it is settled

	prev, next *message // among the unsettled of its session, see acker
}

// ending is what the handler has returned, and how the message is settled.
type ending struct {
	result  result
	verdict verdict
}

// succeeded is the ending of every message whose handler returns nil. It is shared,
// because it would be a third of a message's memory: nobody changes it.
var succeeded = &ending{result: result{outcome: Outcome{Action: ActionDone}}, verdict: verdict{move: moveAck}}

// origin is what the messages of one session have in common.
type origin struct {
	route way
	user  string // the session has logged in with
	frame int    // size that the session has agreed on, 0 for no limit
	acks  *acker

	// work is the ctx of handlers. It ends with the session, or when a stop
	// has lasted for DrainTimeout.
	work context.Context

	// settling is the ctx of copies. It ends with the session, or a little
	// after work when Run stops: what a handler has returned is still settled.
	settling context.Context

	// How many messages are unsettled; how many of those are suspect; and how many
	// of the suspects no handler has returned from yet. unproved counts the messages
	// that were delivered before and that no handler has returned from yet.
	unsettled, suspects, uncleared, unproved atomic.Int32
	// cleared holds an element when a handler has returned from a suspect.
	cleared chan struct{}
}

// arrived counts a message that has come.
func (o *origin) arrived(m *message) {
	o.unsettled.Add(1)
	if m.raw.Redelivered {
		o.unproved.Add(1)
	}
	if m.suspect {
		o.suspects.Add(1)
		o.uncleared.Add(1)
	}
}

// settled counts a message that is settled.
func (o *origin) settled(m *message) {
	o.unsettled.Add(-1)
	m.clear()
	if m.suspect {
		o.suspects.Add(-1)
	}
}

// clear notes that a handler has returned from a message. So the message does not end
// the process, whatever becomes of it.
func (m *message) clear() {
	if m.proved {
		return
	}
	m.proved = true
	if m.raw.Redelivered {
		m.from.unproved.Add(-1)
	}
	if !m.suspect {
		return
	}
	m.from.uncleared.Add(-1)
	select {
	case m.from.cleared <- struct{}{}:
	default: // the session has not looked since the last one
	}
}
