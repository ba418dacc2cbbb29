package work

import (
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/internal/copies"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/internal/transport"
)

// Hold is a verb that settles nothing: the message is kept, and its handler runs again.
const Hold = hand.Copy + 1

// Instruction is all that is needed to settle a message.
type Instruction struct {
	Move hand.Verb

	// Instead is the instruction if the message can be kept no longer: before a copy is
	// confirmed, or while it is held. With nil the message goes back to its queue. With Requeue it goes
	// back, too, and is not to come again before the broker confirms copies.
	Instead *Instruction

	// Keep is how long the message is kept before the move, or held at least.
	Keep time.Duration

	To     route.Target     // of a copy
	Retry  copies.RetryCopy // what a copy says that waits, or goes back to its queue
	Letter copies.Letter    // what a dead letter says; its Failure has a Cause
	Wait   time.Duration    // of the copy, from its sending: its Due, unless Retry has one and no NotBefore
	Ahead  time.Duration    // of the clock that NotBefore of Retry is taken from
	Expire time.Duration    // of the copy; 0: never
	Limit  int              // of the copy's headers, in bytes
}

// IsLetter reports whether the message is dead-lettered.
func (i *Instruction) IsLetter() bool { return i.Letter.Failure.Cause != "" }

// Publishing returns the copy, and the size of its headers.
func (i *Instruction) Publishing(raw amqp.Delivery, now time.Time) (p amqp.Publishing, headers int) {
	if i.IsLetter() {
		p = copies.DeadLetter(raw, i.Letter)
		delete(p.Headers, transport.HeaderUnreadable) // its text is the error: a letter that is sent back can be handled
	} else {
		r := i.Retry
		// A date has meaning on another clock only beside another date of the same clock.
		if r.Due.IsZero() && i.Wait > 0 || !r.NotBefore.IsZero() {
			r.Due = now.Add(i.Ahead + i.Wait)
		}
		p = copies.Retry(raw, r)
		if i.Expire > 0 {
			const longest = 315_360_000_000 // milliseconds; the broker takes no more
			p.Expiration = strconv.FormatInt(min(i.Expire.Milliseconds(), longest), 10)
		}
	}
	copies.Cut(p, i.Limit)
	return p, header.Size(p)
}
