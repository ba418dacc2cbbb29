package xdeath

// Headers that the broker writes. A client that republishes a message with them
// gives the broker of 3.x its own old counts back and the broker of 4.x nothing
// at all, so no copy made here carries one.
const (
	// HeaderDeath is an array of tables, one for each (queue, reason) the
	// message died of, written at each dead-lettering. Newest first on 4.0 and
	// later; on 3.x only the first element has a known place.
	HeaderDeath = "x-death"

	// The first death, three strings, set once, on every version.
	HeaderFirstDeathQueue    = "x-first-death-queue"
	HeaderFirstDeathReason   = "x-first-death-reason"
	HeaderFirstDeathExchange = "x-first-death-exchange"

	// The latest death, three strings, 3.13 and later.
	HeaderLastDeathQueue    = "x-last-death-queue"
	HeaderLastDeathReason   = "x-last-death-reason"
	HeaderLastDeathExchange = "x-last-death-exchange"

	// HeaderDeliveryCount is an integer that a quorum queue sets on a
	// redelivery. What moves it differs by version: every return up to 3.13,
	// every acquisition from 4.0 to 4.2, failed deliveries only from 4.3 on.
	HeaderDeliveryCount = "x-delivery-count"
	// HeaderAcquiredCount is an integer that a quorum queue of 4.3 or later
	// sets: how often the message was handed out before.
	HeaderAcquiredCount = "x-acquired-count"
)

// Headers that a producer writes and the broker acts upon: more routing keys,
// as arrays of strings. The broker removes BCC on publish, so that no consumer
// sees it, and still routes by it when it dead-letters the message. A key of the form
// orders@2 must not be among them: after its first failure the message would wait
// in wait 3 of the work queue orders, if its engine is topology.Ladder.
const (
	HeaderCC  = "CC"
	HeaderBCC = "BCC"
)

// Prefix begins the name of every header that rehop writes. A headers exchange
// ignores names that begin with "x-" unless a binding asks for them.
const Prefix = "x-rehop-"

// Headers that count and place a message. They are never cut.
const (
	// HeaderAttempts, int64, on a retry copy: attempts that ended before it.
	// It counts only for the queue in HeaderQueue. A dead letter never has it,
	// so that any way out of a dead-letter queue starts at attempt 1.
	HeaderAttempts = "x-rehop-attempts"
	// HeaderFinalAttempts, int64, on a dead letter: attempts that its queue
	// spent on it.
	HeaderFinalAttempts = "x-rehop-final-attempts"
	// HeaderQueue, string, on a retry copy and a dead letter: the work queue
	// whose handler failed, and for which the other headers speak.
	HeaderQueue = "x-rehop-queue"
	// HeaderExchange and HeaderRoutingKey, strings, on every copy and on a message
	// with a delay: where the producer published to.
	HeaderExchange   = "x-rehop-exchange"
	HeaderRoutingKey = "x-rehop-routing-key"
	// HeaderFirstFailedAt, timestamp (whole seconds), on a retry copy and a
	// dead letter: when the first attempt failed.
	HeaderFirstFailedAt = "x-rehop-first-failed-at"
	// HeaderNotBefore, int64, Unix milliseconds, on a retry copy that returns
	// too early because the schedule has no wait long enough.
	HeaderNotBefore = "x-rehop-not-before"
	// HeaderDue, int64, Unix milliseconds, on a retry copy and a message with a
	// delay: when its wait is over.
	// The engine carry brings it back then; a message that is handled earlier
	// has come too early, whatever brought it.
	HeaderDue = "x-rehop-due"
	// HeaderHistory, array of tables of the shape of HeaderDeath, on a retry
	// copy and a dead letter of a message that died before: the deaths that
	// republishing has taken off the broker's own header, and former dead
	// letters with their cause as the reason; newest first, at most 32. For
	// people to read; nothing counts it.
	HeaderHistory = "x-rehop-history"
	// HeaderReplays, int64, on a message that came out of a store: how often it
	// did. Copies keep it.
	HeaderReplays = "x-rehop-replays"
	// HeaderPriority, int64, on a message that is published with a priority: that
	// priority, where an exchange can look at it (topology.Lanes). Copies keep it.
	HeaderPriority = "x-rehop-priority"
)

// Headers that say why a message failed for good, on a dead letter and on a
// producer's fallback copy. All strings but HeaderFailedAt, a timestamp. A
// retry copy of a dead letter keeps them.
const (
	HeaderReason    = "x-rehop-reason" // a Cause
	HeaderError     = "x-rehop-error"  // cut to 4 KiB, or less
	HeaderErrorType = "x-rehop-error-type"
	HeaderStack     = "x-rehop-stack" // cut to 8 KiB, or less
	HeaderFailedAt  = "x-rehop-failed-at"
	HeaderHost      = "x-rehop-host"
)

// Properties and headers of the original that a copy must not carry because the
// broker would act on them once more, kept under these names.
const (
	// HeaderExpiration, string: the expiration in milliseconds.
	HeaderExpiration = "x-rehop-expiration"
	// HeaderUserID, string: the user-id, if it is not the republishing user's;
	// the broker refuses a user-id that is not the connection's.
	HeaderUserID = "x-rehop-user-id"
	// HeaderArchivedCC, array of strings: the keys of CC and BCC, which would
	// deliver to the other receivers again.
	HeaderArchivedCC = "x-rehop-cc"
)

// HeaderUnreadable, string, stands in place of all headers of a message whose
// own ones the client library cannot read, because they are too many, nested too
// deep or larger than a frame: package connection replaces them as the message
// comes in, and the message in its queue is unchanged. The value says why.
const HeaderUnreadable = "x-rehop-unreadable"

// Cause is why rehop gave a message up: the value of HeaderReason. (A Reason is
// the broker's word, and of another kind.) Values that this version does not
// know are kept.
type Cause string

const (
	CauseExhausted  Cause = "exhausted"  // the last attempt failed
	CausePermanent  Cause = "permanent"  // the handler said that it will never work
	CauseExpired    Cause = "expired"    // it was too old when its turn came
	CauseCrashLoop  Cause = "crash-loop" // consumers died while they had it, up to the delivery limit
	CauseMaxLen     Cause = "maxlen"     // the queue was full
	CauseRejected   Cause = "rejected"   // nacked or rejected, and dead-lettered by the broker
	CauseUnreadable Cause = "unreadable" // the client library cannot read its headers
	// Causes of a publish that need a person, to bind a queue, give a permission
	// or make room.
	CauseUnroutable Cause = "unroutable" // returned: no queue took it
	CauseRefused    Cause = "refused"    // the broker does not allow it
	CauseNacked     Cause = "nacked"     // a queue refused it: full, or not available

	// Causes of a publish that pass; the message can be published again then.
	CauseUnreachable Cause = "unreachable" // there was no connection, or no room
	CauseBlocked     Cause = "blocked"     // the broker blocked publishers, short of memory or disk
	CauseUnconfirmed Cause = "unconfirmed" // sent, and not answered: it may be in its queue
)

// Passes reports whether the cause of a publish passes without the help of a
// person. The message can then be published again later.
func (c Cause) Passes() bool {
	return c == CauseUnreachable || c == CauseBlocked || c == CauseUnconfirmed
}

// brokerFamily is what the broker owns, and what every republish strips.
var brokerFamily = []string{
	HeaderDeath,
	HeaderFirstDeathQueue, HeaderFirstDeathReason, HeaderFirstDeathExchange,
	HeaderLastDeathQueue, HeaderLastDeathReason, HeaderLastDeathExchange,
	HeaderDeliveryCount, HeaderAcquiredCount,
}

// ours is what a copy writes anew. Other names with our Prefix, a later
// version's, pass through a copy untouched.
var ours = []string{
	HeaderAttempts, HeaderFinalAttempts, HeaderQueue, HeaderExchange, HeaderRoutingKey,
	HeaderFirstFailedAt, HeaderNotBefore, HeaderDue, HeaderHistory,
	HeaderReason, HeaderError, HeaderErrorType, HeaderStack, HeaderFailedAt, HeaderHost,
	HeaderExpiration, HeaderUserID, HeaderArchivedCC,
}
