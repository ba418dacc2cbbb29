// Package header has the names of the headers that the broker and rehop write, and
// the bounds of the properties and headers of a message. DESIGN.md has the table of
// our own headers. Everything in it is a value or a pure function.
package header

import amqp "github.com/rabbitmq/amqp091-go"

// Headers that the broker writes. A client that republishes a message with them
// gives the broker of 3.x its own old counts back and the broker of 4.x nothing
// at all, so no copy made here carries one.
const (
	// Death is an array of tables, one for each (queue, reason) the
	// message died of, written at each dead-lettering. Newest first on 4.0 and
	// later; on 3.x only the first element has a known place.
	Death = "x-death"

	// The first death, three strings, set once, on every version.
	FirstDeathQueue    = "x-first-death-queue"
	FirstDeathReason   = "x-first-death-reason"
	FirstDeathExchange = "x-first-death-exchange"

	// The latest death, three strings, 3.13 and later.
	LastDeathQueue    = "x-last-death-queue"
	LastDeathReason   = "x-last-death-reason"
	LastDeathExchange = "x-last-death-exchange"

	// DeliveryCount is an integer that a quorum queue sets on a redelivery. The broker
	// raises it at every return up to 3.13, at every acquisition from 4.0 to 4.2, and
	// only at failed deliveries from 4.3 on.
	DeliveryCount = "x-delivery-count"
	// AcquiredCount is an integer that a quorum queue of 4.3 or later
	// sets: how often the message was handed out before.
	AcquiredCount = "x-acquired-count"
)

// Headers that a producer writes and the broker acts upon: more routing keys,
// as arrays of strings. The broker removes BCC on publish, so that no consumer
// sees it, and still routes by it when it dead-letters the message. A key of the form
// orders@2 must not be among them: after its first failure the message would wait
// in wait 3 of the work queue orders, if its engine is topology.EngineNack.
const (
	CC  = "CC"
	BCC = "BCC"
)

// Prefix begins the name of every header that rehop writes. A headers exchange
// ignores names that begin with "x-" unless a binding asks for them.
const Prefix = "x-rehop-"

// MaxPriority is the highest priority of rehop's scale, and the x-max-priority of a
// classic work queue.
const MaxPriority = 9

// Headers that count and place a message. They are never cut.
const (
	// Attempts, int64, on a retry copy: attempts that ended before it.
	// It counts only for the queue in Queue. A dead letter never has it,
	// so that any way out of a dead-letter queue starts at attempt 1.
	Attempts = "x-rehop-attempts"
	// FinalAttempts, int64, on a dead letter: attempts that its queue
	// spent on it.
	FinalAttempts = "x-rehop-final-attempts"
	// Queue, string, on a retry copy and a dead letter: the work queue
	// whose handler failed, and for which the other headers speak.
	Queue = "x-rehop-queue"
	// Exchange and RoutingKey, strings, on every copy and on a message
	// with a delay: where the producer published to.
	Exchange   = "x-rehop-exchange"
	RoutingKey = "x-rehop-routing-key"
	// FirstFailedAt, timestamp (whole seconds), on a retry copy and a
	// dead letter: when the first attempt failed.
	FirstFailedAt = "x-rehop-first-failed-at"
	// NotBefore, int64, Unix milliseconds, on a retry copy that returns
	// too early because the schedule has no wait long enough, and on a dead letter
	// that the consumer of its dead-letter queue has put off.
	NotBefore = "x-rehop-not-before"
	// Due, int64, Unix milliseconds, on a retry copy, a message with a
	// delay and a dead letter that was put off: when its wait is over.
	// The engine carry brings it back then; a message that is handled earlier
	// has come too early, whatever brought it.
	Due = "x-rehop-due"
	// History, array of tables of the shape of Death, on a retry
	// copy and a dead letter of a message that died before: the deaths that
	// republishing has taken off the broker's own header, and former dead
	// letters with their cause as the reason; newest first, at most 32. For
	// people to read; nothing counts it.
	History = "x-rehop-history"
	// Snoozes, int64, on a retry copy: how often handlers have put the message off
	// without spending an attempt. Like Attempts it counts only for Queue. On a dead
	// letter it counts for the dead-letter queue whose consumer has put the letter off.
	Snoozes = "x-rehop-snoozes"
	// FirstSnoozedAt, timestamp (whole seconds), beside Snoozes: when the first of them
	// was.
	FirstSnoozedAt = "x-rehop-first-snoozed-at"
)

// Headers that belong to the message and not to its past. Only a producer writes
// them, and every copy keeps them as they are.
const (
	// OrderKey, string, at most 255 bytes: the key of the messages that belong
	// together.
	OrderKey = "x-rehop-order-key"
	// Priority, int64, on a message that is published with a priority: that
	// priority, where an exchange can look at it (topology.Lanes).
	Priority = "x-rehop-priority"
	// Replays, int64: how often the message came out of a store after it had been
	// set aside. The first send of a message from an outbox is none.
	Replays = "x-rehop-replays"
	// Redrives, int64: how often a person has sent the message back.
	Redrives = "x-rehop-redrives"
	// RedriveID, string, at most 255 bytes: the id of the redrive by which a person
	// has sent the message back last.
	RedriveID = "x-rehop-redrive-id"
)

// Headers that say why a message failed for good, on a dead letter and on a
// producer's fallback copy. All strings but FailedAt, a timestamp. A
// retry copy of a dead letter keeps them.
const (
	Cause     = "x-rehop-cause" // an rehop.Cause
	Error     = "x-rehop-error" // cut to 4 KiB, or less
	ErrorType = "x-rehop-error-type"
	Stack     = "x-rehop-stack" // cut to 8 KiB, or less
	FailedAt  = "x-rehop-failed-at"
	Host      = "x-rehop-host"
)

// Properties and headers of the original that a copy must not carry because the
// broker would act on them once more, kept under these names.
const (
	// Expiration, string: the expiration in milliseconds.
	Expiration = "x-rehop-expiration"
	// UserID, string: the user-id, if it is not the republishing user's;
	// the broker refuses a user-id that is not the connection's.
	UserID = "x-rehop-user-id"
	// ArchivedCC, array of strings: the keys of CC and BCC, which would
	// deliver to the other receivers again.
	ArchivedCC = "x-rehop-cc"
)

// AsItLay, table, is on a dead letter in a store and on no message: what producer.Message does
// not keep of the letter as it lay in its queue. "delivery_mode" and "priority" are int64,
// "expiration" is a string in milliseconds, and "doubt" says why the headers are not believed.
const AsItLay = Prefix + "as-it-lay"

// Unreadable, string, stands in place of all headers of a message whose
// own ones the client library cannot read, because they are too many, nested too
// deep or larger than a frame: package connection replaces them as the message
// comes in, and the message in its queue is unchanged. The value says why.
const Unreadable = "x-rehop-unreadable"

// Family is what the broker owns, and what every copy strips.
var Family = []string{
	Death,
	FirstDeathQueue, FirstDeathReason, FirstDeathExchange,
	LastDeathQueue, LastDeathReason, LastDeathExchange,
	DeliveryCount, AcquiredCount,
}

// Past is what a copy writes anew. Other names with our Prefix pass through a copy
// untouched: those of the message itself, and a later version's.
var Past = []string{
	Attempts, FinalAttempts, Queue, Exchange, RoutingKey,
	FirstFailedAt, NotBefore, Due, History, Snoozes, FirstSnoozedAt,
	Cause, Error, ErrorType, Stack, FailedAt, Host,
	Expiration, UserID, ArchivedCC,
}

// HasOrigin reports whether the headers say where the producer published to.
func HasOrigin(headers amqp.Table) bool {
	return isName(headers[Exchange]) && isName(headers[RoutingKey])
}

// IsLetter reports whether the headers are those of a dead letter as it was
// written, and not of a retry copy of one.
func IsLetter(headers amqp.Table) bool {
	_, final := Count(headers[FinalAttempts])
	return !IsCopy(headers) && (final || Name(headers[Cause]) != "")
}
