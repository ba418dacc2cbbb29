package consumer

import (
	"errors"
	"fmt"
	"time"

	"github.com/rehop/rehop"
)

// Action is the treatment of a message after its handler has returned. "" is invalid and
// settles nothing.
type Action string

// The actions.
const (
	// ActionDone: acked. The handler returned nil.
	ActionDone Action = "done"

	// ActionRetry: a failed attempt, by any error or panic. The message waits
	// and comes back; when no attempt is left it is dead-lettered.
	ActionRetry Action = "retry"

	// ActionRetryAfter: a failed attempt; the next one is not due before
	// Outcome.After. See [RetryAfter].
	ActionRetryAfter Action = "retry-after"

	// ActionDeadLetter: dead-lettered at once. See [DeadLetter].
	ActionDeadLetter Action = "dead-letter"

	// ActionHold: held and handled again; no attempt is spent. See [Hold].
	ActionHold Action = "hold"

	// ActionHoldFor: held for Outcome.After and handled again; no attempt is
	// spent. See [HoldFor].
	ActionHoldFor Action = "hold-for"

	// ActionDiscard: acked without being done. See [Discard].
	ActionDiscard Action = "discard"

	// ActionSnooze: it comes back later; no attempt is spent. See [Snooze].
	ActionSnooze Action = "snooze"
)

// Outcome is the meaning of a handler's error.
type Outcome struct {
	Action Action
	After  time.Duration // for ActionRetryAfter, ActionHoldFor and ActionSnooze
	Reason string        // for ActionDiscard and ActionSnooze
	Cause  rehop.Cause   // for ActionDeadLetter; "": rehop.CausePermanent
}

// String returns the outcome as a few words, such as "retry-after 5m0s".
func (o Outcome) String() string {
	switch {
	case o.Action == ActionSnooze && o.Reason != "":
		return fmt.Sprintf("%v %v (%s)", o.Action, o.After, o.Reason)
	case o.Action == ActionRetryAfter, o.Action == ActionHoldFor, o.Action == ActionSnooze:
		return fmt.Sprintf("%v %v", o.Action, o.After)
	case o.Reason != "":
		return fmt.Sprintf("%v (%s)", o.Action, o.Reason)
	case o.Cause != "":
		return fmt.Sprintf("%v (%s)", o.Action, o.Cause)
	}
	return string(o.Action)
}

// DeadLetter marks err as one that no further attempt can change: the message goes
// to the dead-letter queue at once, with the reason "permanent". DeadLetter never
// returns nil, not even for a nil err.
func DeadLetter(err error) error {
	return withOutcome(Outcome{Action: ActionDeadLetter}, err, "dead-lettered")
}

// RetryAfter marks err as a failed attempt that must not be repeated before d has
// passed. On broker 4.0 and later, where topology.Delays with the queue as a target
// are declared on the Conn, the message waits for d, rounded up to their Grain.
//
// Without such Delays, on 3.x, and where the Delays were declared on 3.x, it uses the
// waits of the work queue: the shortest that is not shorter than d or, if all are
// shorter, the longest one several times. A message with a d longer than Delays.Max
// uses these waits too, if one of them is long enough. Otherwise it waits in the
// Delays for Max, and then for the rest of d.
//
// With a d of zero or less, such as the time until a moment that has passed, the wait
// of the schedule applies. A d of more than 366 days counts as 366 days. A message
// without an attempt left is dead-lettered, as after any failure; Delays add no
// attempts. A consumer of the same queue without waits holds a message that is not due
// yet, for 10 s at a time, and puts it back to the end of the queue; it counts as one
// of its Config.Concurrency meanwhile.
//
// A consumer of a queue without waits, Delays and a place for dead letters, such as a
// dead-letter queue, holds the message until d has passed. Where d is longer than a
// message can be held, see [Hold], it puts the message off as [Snooze] does, and
// counts no snooze. RetryAfter never returns nil, not even for a nil err.
func RetryAfter(d time.Duration, err error) error {
	return withOutcome(Outcome{Action: ActionRetryAfter, After: max(d, 0)}, err, fmt.Sprintf("retry after %v", d))
}

// Hold marks err as not the message's fault, such as an outage of a service that
// the handler needs. The consumer holds the message and handles it again with pauses
// that grow to about half a minute, and in an [Outage] to its MaxPause; no attempt is
// spent. The message goes back to its queue when Run stops, and after 15 minutes, or half of the consumer timeout if that is less. The broker would
// take it away at the consumer timeout, which is 30 minutes by default. Where each return
// counts towards the delivery limit of the queue, a message that has used up half of that
// limit goes to the end of the queue instead, as a confirmed copy: an outage dead-letters
// no message, however long it lasts. Hold never returns nil, not even for a nil
// err.
//
// A held message counts as one of the Config.Concurrency that are handled at a time.
// When held messages have taken every slot of a Concurrency of at least 2, an [Outage]
// begins, and the consumer gives back the messages that no handler has begun. A
// consumer with a Config.KeyLimit of 1, or of a queue with a single active consumer, keeps them
// to keep their order. With a Concurrency of 1, or without outages, messages that were
// sent ahead go back to the queue as Config.Prefetch says.
func Hold(err error) error {
	return withOutcome(Outcome{Action: ActionHold}, err, "held")
}

// HoldFor marks err as the request of a service to come back after d, such as an answer
// 429 with a Retry-After. The consumer holds the message for d and handles it again; no
// attempt is spent. The message keeps its slot and its key meanwhile, so no later message
// of its key overtakes it. HoldFor is no sign of an [Outage], and ends one, because the
// service has answered. With a d of zero or less, such as the time until a moment that has
// passed, the pauses of [Hold] apply.
//
// A message is held for no longer than the hold limit: 15 minutes after its delivery, or
// half of the consumer timeout if that is less. Where d ends later, the message spends no
// attempt either:
//   - A consumer with a Config.KeyLimit of 1, or of a queue with a single active consumer, holds
//     it until the limit and gives it back to its place, as after [Hold]. Its handler runs
//     again before d has passed. A warning in the log names d and the limit.
//   - Any other consumer puts the message off for d as [Snooze] does, and counts a snooze.
//
// The message goes back to its queue when Run stops, and comes again after a crash or a lost
// connection. Nothing remembers d then: the handler runs at once. HoldFor never returns nil,
// not even for a nil err.
func HoldFor(d time.Duration, err error) error {
	return withOutcome(Outcome{Action: ActionHoldFor, After: max(d, 0)}, err, fmt.Sprintf("held for %v", d))
}

// Discard returns an error that drops the message on purpose: the message is
// acked, and the reason is logged.
func Discard(reason string) error {
	return withOutcome(Outcome{Action: ActionDiscard, Reason: reason}, nil, "discarded: "+reason)
}

// Snooze puts off a message whose turn has not come, such as one that needs another
// message first. It comes back after d and spends no attempt; a message on its last
// attempt can be put off too. Meanwhile it keeps no slot and waits in the broker, as
// after [RetryAfter]: in topology.Delays, rounded up to their Grain, or else in the
// waits of the work queue, rounded up to one of them. With a d of zero or less it waits
// for the shortest time that these allow.
//
// Delivery.History.Snoozes counts the snoozes. Only the handler, or a [Rule] with
// OlderThan or Snoozed, bounds their number. A consumer of a queue without waits and
// Delays holds the message for up to 10 s at a time, and then sends it to the end of the
// queue. Snooze never returns nil.
func Snooze(d time.Duration, reason string) error {
	return withOutcome(Outcome{Action: ActionSnooze, After: max(d, 0), Reason: reason}, nil, "snoozed: "+reason)
}

// OutcomeOf returns the outcome of a message whose handler returned err. Along one
// chain of wrapping the outermost of [DeadLetter], [RetryAfter], [HoldFor], [Hold],
// [Snooze] and [Discard] decides. Across the branches of errors.Join, DeadLetter comes
// before RetryAfter (the longest), before HoldFor (the longest), before Hold, before a
// plain failure, before Snooze (the longest); Discard decides only if every branch says
// so. A [PanicError] has the outcome of the error that was passed to panic.
func OutcomeOf(err error) Outcome {
	for err != nil {
		switch e := err.(type) { //nolint:errorlint // this is the walk down the chain
		case *outcomeError:
			return e.outcome
		case interface{ Unwrap() error }:
			err = e.Unwrap()
			if err == nil {
				return Outcome{Action: ActionRetry}
			}
		case interface{ Unwrap() []error }:
			return strongest(e.Unwrap())
		case *PanicError:
			return e.outcome()
		default:
			return Outcome{Action: ActionRetry}
		}
	}
	return Outcome{Action: ActionDone}
}

// strongest returns the outcome of joined errors.
func strongest(branches []error) Outcome {
	// Of the actions with a branch of their own, the first is the strongest.
	rank := func(a Action) int {
		switch a {
		case ActionDeadLetter:
			return 6
		case ActionRetryAfter:
			return 5
		case ActionHoldFor:
			return 4
		case ActionHold:
			return 3
		case ActionSnooze:
			return 1
		case ActionDiscard:
			return 0
		}
		return 2
	}
	var best Outcome
	for _, err := range branches {
		if err == nil {
			continue
		}
		o := OutcomeOf(err)
		switch {
		case best.Action == "", rank(o.Action) > rank(best.Action):
			best = o
		case o.Action == best.Action:
			best.After = max(best.After, o.After)
		}
	}
	if best.Action == "" {
		return Outcome{Action: ActionRetry}
	}
	return best
}

// outcomeError is an error that carries its outcome.
type outcomeError struct {
	outcome Outcome
	cause   error
}

func withOutcome(o Outcome, cause error, text string) error {
	if cause == nil {
		cause = errors.New(text)
	}
	return &outcomeError{outcome: o, cause: cause}
}

func (e *outcomeError) Error() string { return e.cause.Error() }
func (e *outcomeError) Unwrap() error { return e.cause }

// hasOutcome reports whether something has given err its meaning.
func hasOutcome(err error) bool {
	var s *outcomeError
	var p *PanicError
	return errors.As(err, &s) || errors.As(err, &p) && p.outcome().Action != ActionRetry
}
