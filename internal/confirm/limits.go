package confirm

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Patient returns a ctx for something that m has to wait for before it is written,
// and whose cause began at since. It ends with ctx, with the Timeout and the
// WriteUntil of m, and when the cause has lasted for the Patience of m. It never
// outlives what it waits for: the next message that waits asks again since when.
func (m *Message) Patient(ctx context.Context, since time.Time) (context.Context, context.CancelFunc) {
	limit, cause := sooner(m.deadline, ErrLate, m.WriteUntil, errReserved)
	if m.Patience > 0 {
		lasts := &impatientError{max(m.Patience, time.Since(since))}
		limit, cause = sooner(limit, cause, since.Add(m.Patience), lasts)
	}
	if limit.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, limit, cause)
}

// answerLimit returns when the waiting for the answer to m ends, and why; zero:
// never.
func (m *Message) answerLimit() (limit time.Time, cause error) {
	return sooner(m.deadline, ErrLate, m.AnswerUntil, errReserved)
}

// sooner returns the earlier of two limits; a zero one is none.
func sooner(a time.Time, whyA error, b time.Time, whyB error) (time.Time, error) {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b, whyB
	}
	return a, whyA
}

// earlier returns the earlier of two times; a zero one does not count.
func earlier(a, b time.Time) time.Time {
	first, _ := sooner(a, nil, b, nil)
	return first
}

// Full is the error of a message for which there was no room. An outage that the message has met
// takes the place of the Advice. An outage of other targets stands beside it, and only its text, because it is no outage of
// the message's target: their messages may take the room, or the publishers may be too fast.
func (l Limits) Full(outage Outage) error {
	full := fmt.Sprintf("the window is full: %d messages or %d bytes are unconfirmed", l.Messages, l.Bytes)
	switch {
	case l.Advice == "":
		return errors.New(full)
	case outage.Partial:
		return errors.New(full + "; " + l.Advice + "; perhaps because of messages elsewhere: " + outage.Cause.Error())
	case outage.Cause != nil:
		return fmt.Errorf("%s: %w", full, outage.Cause)
	}
	return fmt.Errorf("%s; %s", full, l.Advice)
}
