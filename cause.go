package rehop

// Cause is why rehop gave a message up: the value of the header x-rehop-cause. The broker's
// word for a death in a queue is a [github.com/rehop/rehop/xdeath.Reason]. Values that this
// version does not know are kept.
type Cause string

// The causes.
const (
	CauseExhausted   Cause = "exhausted"   // the last attempt failed
	CausePermanent   Cause = "permanent"   // the handler said that it will never work
	CauseExpired     Cause = "expired"     // it was too old when its turn came
	CauseCrashLoop   Cause = "crash-loop"  // consumers died while they had it, up to the delivery limit
	CauseMaxLen      Cause = "maxlen"      // the queue was full
	CauseRejected    Cause = "rejected"    // nacked or rejected, and dead-lettered by the broker
	CauseUnreadable  Cause = "unreadable"  // the client library cannot read its headers
	CauseUndecodable Cause = "undecodable" // its body cannot be decoded
	CauseUnhandled   Cause = "unhandled"   // there is no handler for its type

	// Causes of a publish that need a person, to bind a queue, give a permission
	// or make room.
	CauseUnroutable Cause = "unroutable" // returned: no queue took it
	CauseRefused    Cause = "refused"    // the broker does not allow it
	CauseNacked     Cause = "nacked"     // a queue refused it: full, or not available

	// Causes of a publish that pass by themselves; the message can be published
	// again then.
	CauseUnreachable Cause = "unreachable" // not sent: no connection, no room, or its ctx had ended
	CauseBlocked     Cause = "blocked"     // the broker blocked publishers, short of memory or disk
	CauseUnconfirmed Cause = "unconfirmed" // sent, and not answered: it may be in its queue
)

// Passes reports whether the cause of a publish passes without the help of a
// person. The message can then be published again later.
func (c Cause) Passes() bool {
	return c == CauseUnreachable || c == CauseBlocked || c == CauseUnconfirmed
}
