// Package copies makes the copies of a message that the SDK publishes: one that
// waits, one that comes back, a dead letter, and the one of a producer's
// fallback. The rules are about headers and live in package xdeath, which sets
// the functions here: its users need them no more than its parsing.
package copies

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The functions, pure as all of package xdeath: none changes its argument's
// headers, and a copy shares no table, array or byte slice in them with it.
var (
	// Retry returns the copy of a failed delivery that waits for its next
	// attempt.
	Retry func(amqp.Delivery, RetryCopy) amqp.Publishing

	// Back returns the copy of a delivery from a wait whose time is over, for the
	// queue it waits for.
	Back func(d amqp.Delivery, user string) amqp.Publishing

	// DeadLetter returns the copy of a delivery that its queue has given up.
	DeadLetter func(amqp.Delivery, Letter) amqp.Publishing

	// Fallback returns the copy of a publishing that reached no queue.
	Fallback func(amqp.Publishing, FallbackCopy) amqp.Publishing

	// Cut cuts the headers of a copy to a bound in bytes, in the order that
	// xdeath.MaxHeaderBytes documents.
	Cut func(p amqp.Publishing, limit int)
)

// RetryCopy is what Retry has to know beside the delivery.
type RetryCopy struct {
	// Queue is the work queue whose handler failed, and for which the copy
	// counts.
	Queue string
	// Returned says that the delivery had come back through Queue's own retry
	// exchange, as for History.Attempt. If not, it starts another life: the
	// origin and the first failure it carries are not taken over, but for the
	// origin that a dead letter names.
	Returned bool
	// Attempts at Queue that have ended, the one that just failed included: the
	// next is Attempts+1. Below 0 counts as 0.
	Attempts int
	// At is when the attempt failed: the copy's first failure, unless it has
	// one already. The zero time writes none.
	At time.Time
	// NotBefore, if set, is when the copy may be handled at the earliest; it is
	// written in milliseconds, rounded up.
	NotBefore time.Time
	// Due, if set, is when the wait that the copy goes to is over; written
	// likewise.
	Due time.Time
	// User is the user of the session that publishes the copy. The broker
	// closes the channel of one who sends another user's user-id.
	User string
}

// Letter is what DeadLetter has to know beside the delivery.
type Letter struct {
	// Queue, Returned, Attempts and User are those of RetryCopy.
	Queue    string
	Returned bool
	Attempts int
	User     string
	// Failure is why the message is given up. Its At is also the first failure
	// of a message that has none yet.
	Failure Failure
}

// FallbackCopy is what Fallback has to know beside the publishing.
type FallbackCopy struct {
	// Exchange and RoutingKey are where the message could not be published to.
	Exchange, RoutingKey string
	// User is that of RetryCopy, on the broker that takes the copy.
	User string
	// Failure is why: unroutable, broker-nacked or blocked, and the error.
	Failure Failure
}

// Failure is an xdeath.Failure.
type Failure struct {
	Cause     string
	Error     string
	ErrorType string
	Stack     string
	At        time.Time
	Host      string
}
