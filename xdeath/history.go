// Package xdeath tells the history of a message: how often it has failed and where, why it
// was given up, and where its producer published it.
//
//	x-death, x-first-death-*, x-delivery-count   of the broker --+
//	                                                             +-- Parse --> History --> Attempt, Count, Origin, Failure
//	x-rehop-attempts, x-rehop-cause, ...         of rehop -------+
//
// A program that reads messages by itself parses their headers:
//
//	history, err := xdeath.Parse(delivery.Headers)
//	attempt := history.Attempt("orders", true)
//	why := history.Letter().Failure // of a dead letter: Cause, Error, At, Host
//
// A handler has the history in Delivery.History of package
// [github.com/rehop/rehop/consumer]. The page [Dead letters] has more examples.
//
// Every function is pure: it uses no broker, no clock and no logger, and is safe
// for concurrent use.
//
// [Dead letters]: https://github.com/rehop/rehop/blob/main/docs/dead-letters.md
package xdeath

import (
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/levels"
)

// Reason is the broker's word for why a queue dead-lettered a message. Words
// that this version does not know are kept as they are.
type Reason string

const (
	ReasonRejected      Reason = "rejected"       // nacked or rejected without requeue
	ReasonExpired       Reason = "expired"        // its TTL ended
	ReasonMaxLen        Reason = "maxlen"         // the queue was full
	ReasonDeliveryLimit Reason = "delivery_limit" // a quorum queue's delivery limit was passed
)

// Death is one entry of the broker's x-death. It stands for all deaths in one
// queue for one reason.
type Death struct {
	Queue  string
	Reason Reason
	// Count is how often it died here for this reason, never negative.
	Count int
	// Exchange and RoutingKeys are the address of the message before the first such
	// death. The keys include CC and not BCC.
	Exchange    string
	RoutingKeys []string
	// Time is the time of the first such death, in whole seconds. The broker does
	// not record the time of the latest one.
	Time time.Time
	// OriginalExpiration is the message's own TTL in milliseconds, which the
	// broker removes as it dead-letters; empty if it had none.
	OriginalExpiration string
}

// Point is the place of a message's first or latest death.
type Point struct {
	Queue    string
	Reason   Reason
	Exchange string
}

// Failure is why a message was given up, as a dead letter tells it.
type Failure struct {
	Cause     rehop.Cause
	Error     string    // cut to 4 KiB when written
	ErrorType string    // of the error's method ErrorType, or its innermost Go type; cut to 255 bytes when written
	Stack     string    // cut to 8 KiB when written
	At        time.Time // whole seconds when written; zero: not written
	Host      string    // cut to 255 bytes when written
}

// Archived holds properties of the original that a copy must not have.
type Archived struct {
	Expiration string   // milliseconds, as the producer wrote it
	UserID     string   // the producer's user-id
	CC         []string // the keys of CC and BCC
}

// History is the content of the headers of one message. Its zero value is a message
// without a past.
//
// The fields hold the headers as they are, whoever wrote them. The methods decide
// which headers count.
type History struct {
	// Deaths is the broker's x-death. Its order differs between versions:
	// search it by queue and reason, and never index it.
	Deaths []Death
	// First and Last are the broker's x-first-death-* (every version) and
	// x-last-death-* (3.13 and later).
	First, Last Point
	// DeliveryCount and AcquiredCount are the broker's x-delivery-count and
	// x-acquired-count (4.3 and later), 0 when absent.
	DeliveryCount, AcquiredCount int

	// Queue is the work queue that the following fields are about.
	Queue string
	// Attempts is the number of attempts that had ended before this retry copy was
	// made.
	Attempts int
	// FinalAttempts is the number of attempts that Queue spent on this dead letter.
	FinalAttempts int
	// Exchange and RoutingKey are where the producer published to.
	Exchange, RoutingKey string
	// FirstFailed is when the first attempt failed.
	FirstFailed time.Time
	// NotBefore is when this retry copy may be handled; zero: at once. It
	// counts only if the copy has come back to Queue through its retry exchange, and on
	// a dead letter in its dead-letter queue.
	NotBefore time.Time
	// Due is when the wait of this retry copy is over; zero: not written. Like
	// NotBefore it counts only after a return.
	Due time.Time
	// Earlier holds the deaths of former copies, newest first.
	Earlier []Death
	// Snoozes is how often handlers of Queue have put the message off without
	// spending an attempt. Like NotBefore it counts only after a return. On a dead letter
	// it counts the handlers of the dead-letter queue.
	Snoozes int
	// FirstSnoozed is when the first of the Snoozes was; zero: not written.
	FirstSnoozed time.Time

	// OrderKey is the key of the messages that belong together, as the producer
	// set it.
	OrderKey string
	// Replays is how often the message came out of a store after it had been set
	// aside.
	Replays int
	// Redrives is how often a person has sent the message back, and RedriveID is the
	// id of the redrive that last did so.
	Redrives  int
	RedriveID string

	// Failure is why the message was given up; zero if it never was.
	Failure Failure
	// Archived are the properties that the former copies could not have.
	Archived Archived

	hasOrigin bool // Exchange and RoutingKey were written: both may be empty
	isLetter  bool // a dead letter as it was written, not a retry copy of one
}

// death returns the entry of x-death for this queue and reason, and false if
// there is none.
func (h History) death(queue string, reason Reason) (Death, bool) {
	for _, d := range h.Deaths {
		if d.Queue == queue && d.Reason == reason {
			return d, true
		}
	}
	return Death{}, false
}

// Count returns how often the message died in this queue for this reason, by
// the broker's x-death, from 0 up. It says nothing about deaths before the last
// republish, see Carried.
func (h History) Count(queue string, reason Reason) int {
	d, _ := h.death(queue, reason)
	return max(d.Count, 0)
}

// Carried returns the attempts at this queue that ended before the last republish, from
// 0 up. It returns 0 if the headers are about another queue.
func (h History) Carried(queue string) int {
	if queue == "" || h.Queue != queue {
		return 0
	}
	return max(h.Attempts, 0)
}

// Attempt returns the number of the attempt that this delivery starts at this queue,
// from 1 up. returned says that the delivery has come back through the queue's own
// retry exchange. If so, the number is 1 plus the attempts in rehop's header plus the
// rejections in the broker's x-death, on every version. A message that arrived in any
// other way (a client's publish, a shovel, by hand) begins again at 1, and its headers
// do not count. They date from before it was published again, and from 4.0 on the
// broker shows a client's x-death as if it were its own.
//
// If Attempt(queue, true) is not 1 for a delivery that did not come back, a nack would
// make those earlier attempts count at the next return. Such a message needs a retry
// copy.
func (h History) Attempt(queue string, returned bool) int {
	if !returned {
		return 1
	}
	return add(add(1, h.Carried(queue)), h.Count(queue, ReasonRejected))
}

// Origin returns the exchange and routing key that the producer published to, if the
// headers know it for this queue. The headers of rehop tell it if they are about the
// queue, or about no queue, as on a delayed message. Otherwise the broker's record of
// the first rejection in the queue tells it. Origin returns false when neither knows,
// as on a first attempt: then the delivery's own exchange and routing key are the
// producer's.
func (h History) Origin(queue string) (exchange, key string, ok bool) {
	if h.hasOrigin && queue != "" && h.Queue == queue || h.hasOriginAlone() {
		return h.Exchange, h.RoutingKey, true
	}
	if d, found := h.death(queue, ReasonRejected); found && len(d.RoutingKeys) > 0 {
		return d.Exchange, d.RoutingKeys[0], true // the first is the publish key, CC follows
	}
	return "", "", false
}

// hasOriginAlone reports whether a producer has written where the message was
// published to first, and no copy of it was made since: it came through exact
// delays, or was sent straight to the queue that it had failed in.
func (h History) hasOriginAlone() bool { return h.hasOrigin && h.Queue == "" && !h.isLetter }

// Letter returns h as the history of a dead letter. A letter that a consumer has
// written is returned as it is. If the broker itself moved the message, Letter fills in
// Failure, Queue, FinalAttempts, Exchange and RoutingKey from the broker's record of the
// latest death. It fills in Failure.At only if that death was the first of its kind, and
// never an error, host or stack.
//
// A retry copy without such a record is a message whose work queue was gone when a
// consumer brought it back from its wait. Its cause is rehop.CauseExpired, as if the broker had
// brought it back.
func (h History) Letter() History {
	switch {
	case h.isLetter:
		return h
	case len(h.Deaths) == 0 && h.Attempts > 0 && h.Failure.Cause == "": // else a letter that is retried
		h.Failure.Cause, h.FinalAttempts = rehop.CauseExpired, h.Attempts
		return h
	case len(h.Deaths) == 0:
		return h
	}
	latest := h.Deaths[0] // the one element whose place is known on every version
	if levels.Is(latest.Queue) {
		return h.stranded(latest)
	}
	switch latest.Reason {
	case ReasonExpired:
		h.Failure.Cause = rehop.CauseExpired
	case ReasonDeliveryLimit:
		h.Failure.Cause = rehop.CauseCrashLoop
	case ReasonMaxLen:
		h.Failure.Cause = rehop.CauseMaxLen
	default:
		h.Failure.Cause = rehop.CauseRejected
	}
	exchange, key, ok := h.Origin(latest.Queue)
	if !ok && len(latest.RoutingKeys) > 0 {
		exchange, key = latest.Exchange, latest.RoutingKeys[0]
	}
	if latest.Count == 1 { // of several the broker keeps the first one's time
		h.Failure.At = latest.Time
	}
	h.FinalAttempts = add(h.Carried(latest.Queue), h.Count(latest.Queue, ReasonRejected))
	h.Queue, h.Exchange, h.RoutingKey = latest.Queue, exchange, key
	return h
}

// stranded returns h as the history of a message whose target was gone at the end of
// its delay. Its own headers say where it was to go.
func (h History) stranded(latest Death) History {
	h.Failure.Cause = rehop.CauseUnroutable
	if latest.Count == 1 {
		h.Failure.At = latest.Time
	}
	h.FinalAttempts = h.Carried(h.Queue)
	return h
}

// FirstFailedAt returns when the first attempt at this queue failed, in whole seconds:
// by rehop's header if it is about this queue, and otherwise by the broker's record of
// the first rejection there. It returns false when neither knows.
func (h History) FirstFailedAt(queue string) (time.Time, bool) {
	if queue != "" && h.Queue == queue && !h.FirstFailed.IsZero() {
		return h.FirstFailed, true
	}
	d, _ := h.death(queue, ReasonRejected)
	return d.Time, !d.Time.IsZero()
}

// add returns the sum of two counts, at most header.MaxCount.
func add(a, b int) int {
	return int(min(int64(a)+int64(b), header.MaxCount))
}
