package consumer

import (
	"errors"
	"fmt"
	"time"
)

// Action is what happens to a message after its handler returned.
type Action uint8

// The actions. The zero value is invalid and settles nothing.
const (
	_ Action = iota

	// ActionDone: acked. The handler returned nil.
	ActionDone

	// ActionRetry: a failed attempt, by any error or panic. The message waits
	// and comes back; when no attempt is left it is dead-lettered.
	ActionRetry

	// ActionRetryAfter: a failed attempt whose next one is not due before
	// Outcome.After. See [RetryAfter].
	ActionRetryAfter

	// ActionDeadLetter: dead-lettered at once. See [DeadLetter].
	ActionDeadLetter

	// ActionRequeue: held and handled again; no attempt is spent. See [Requeue].
	ActionRequeue

	// ActionDiscard: acked without being done. See [Discard].
	ActionDiscard
)

func (a Action) String() string {
	switch a {
	case ActionDone:
		return "done"
	case ActionRetry:
		return "retry"
	case ActionRetryAfter:
		return "retry-after"
	case ActionDeadLetter:
		return "dead-letter"
	case ActionRequeue:
		return "requeue"
	case ActionDiscard:
		return "discard"
	}
	return fmt.Sprintf("Action(%d)", uint8(a))
}

// Outcome is what a handler's error means.
type Outcome struct {
	Action Action
	After  time.Duration // of ActionRetryAfter
	Reason string        // of ActionDiscard
}

// DeadLetter marks err as one that no further attempt can change: the message
// goes to the dead-letter queue at once, with the reason "permanent". It is
// never nil, not even for a nil err.
func DeadLetter(err error) error {
	return steer(Outcome{Action: ActionDeadLetter}, err, "dead letter")
}

// RetryAfter marks err as a failed attempt whose next one must not come before
// d has passed: the message waits in the shortest wait that is not shorter
// than d, and again if none is as long. Without an attempt left it is
// dead-lettered like any failure. It is never nil, not even for a nil err.
func RetryAfter(d time.Duration, err error) error {
	return steer(Outcome{Action: ActionRetryAfter, After: max(d, 0)}, err, fmt.Sprintf("retry after %v", d))
}

// Requeue marks err as not the message's fault, such as an outage of what the
// handler depends on. The consumer holds the message and handles it again
// with growing pauses; no attempt is spent. While it is held it occupies its
// place among the Config.Concurrency, so that a general outage stops the
// fetching of messages. It goes back to its queue when Run stops, and after 15
// minutes, well before the 30 after which a broker takes it away by default. It
// is never nil, not even for a nil err.
func Requeue(err error) error {
	return steer(Outcome{Action: ActionRequeue}, err, "requeue")
}

// Discard drops the message on purpose: it is acked, and the reason is logged.
func Discard(reason string) error {
	return steer(Outcome{Action: ActionDiscard, Reason: reason}, nil, "discarded: "+reason)
}

// OutcomeOf returns what the consumer does with a message whose handler
// returned err. Along one chain of wrapping the outermost of [DeadLetter],
// [RetryAfter], [Requeue] and [Discard] decides. Across the branches of
// errors.Join, DeadLetter comes before RetryAfter (the longest), before
// Requeue, before a plain failure; Discard decides only if every branch says
// so.
func OutcomeOf(err error) Outcome {
	for err != nil {
		switch e := err.(type) { //nolint:errorlint // this is the walk down the chain
		case *steering:
			return e.outcome
		case interface{ Unwrap() error }:
			err = e.Unwrap()
			if err == nil {
				return Outcome{Action: ActionRetry}
			}
		case interface{ Unwrap() []error }:
			return strongest(e.Unwrap())
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
			return 4
		case ActionRetryAfter:
			return 3
		case ActionRequeue:
			return 2
		case ActionDiscard:
			return 0
		}
		return 1
	}
	var best Outcome
	for _, err := range branches {
		if err == nil {
			continue
		}
		o := OutcomeOf(err)
		switch {
		case best.Action == 0, rank(o.Action) > rank(best.Action):
			best = o
		case o.Action == ActionRetryAfter && best.Action == ActionRetryAfter:
			best.After = max(best.After, o.After)
		}
	}
	if best.Action == 0 {
		return Outcome{Action: ActionRetry}
	}
	return best
}

// steering is an error that carries its outcome.
type steering struct {
	outcome Outcome
	cause   error
}

func steer(o Outcome, cause error, text string) error {
	if cause == nil {
		cause = errors.New(text)
	}
	return &steering{outcome: o, cause: cause}
}

func (s *steering) Error() string { return s.cause.Error() }
func (s *steering) Unwrap() error { return s.cause }
