package consumer_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
)

func TestOutcomeOf(t *testing.T) {
	plain := errors.New("plain")
	retryAfter := func(d time.Duration) consumer.Outcome {
		return consumer.Outcome{Action: consumer.ActionRetryAfter, After: d}
	}
	holdFor := func(d time.Duration) consumer.Outcome {
		return consumer.Outcome{Action: consumer.ActionHoldFor, After: d}
	}
	for _, tt := range []struct {
		rule string
		err  error
		want consumer.Outcome
	}{
		{"nil is done", nil, consumer.Outcome{Action: consumer.ActionDone}},
		{"any error is a failed attempt", plain, consumer.Outcome{Action: consumer.ActionRetry}},
		{"a wrapped error too", fmt.Errorf("w: %w", plain), consumer.Outcome{Action: consumer.ActionRetry}},
		{"dead letter", consumer.DeadLetter(plain), consumer.Outcome{Action: consumer.ActionDeadLetter}},
		{"dead letter without an error", consumer.DeadLetter(nil), consumer.Outcome{Action: consumer.ActionDeadLetter}},
		{"retry after", consumer.RetryAfter(time.Hour, plain), retryAfter(time.Hour)},
		{"retry after without an error does not ack", consumer.RetryAfter(time.Hour, nil), retryAfter(time.Hour)},
		{"retry after a time gone by", consumer.RetryAfter(-time.Hour, plain), retryAfter(0)},
		{"hold", consumer.Hold(plain), consumer.Outcome{Action: consumer.ActionHold}},
		{"hold without an error", consumer.Hold(nil), consumer.Outcome{Action: consumer.ActionHold}},
		{"hold for", consumer.HoldFor(time.Minute, plain), holdFor(time.Minute)},
		{"hold for without an error does not ack", consumer.HoldFor(time.Minute, nil), holdFor(time.Minute)},
		{"hold for a time gone by", consumer.HoldFor(-time.Minute, plain), holdFor(0)},
		{"discard", consumer.Discard("old"), consumer.Outcome{Action: consumer.ActionDiscard, Reason: "old"}},
		{"an outcome inside the user's wrapping counts", fmt.Errorf("w: %w", consumer.DeadLetter(plain)), consumer.Outcome{Action: consumer.ActionDeadLetter}},
		{"the outermost outcome wins", consumer.Hold(fmt.Errorf("w: %w", consumer.DeadLetter(plain))), consumer.Outcome{Action: consumer.ActionHold}},
		{"join: dead letter before retry after", errors.Join(consumer.RetryAfter(1, plain), consumer.DeadLetter(plain)), consumer.Outcome{Action: consumer.ActionDeadLetter}},
		{"join: the longest retry after", errors.Join(consumer.RetryAfter(1, plain), consumer.RetryAfter(3, plain), consumer.RetryAfter(2, plain)), retryAfter(3)},
		{"join: retry after before hold", errors.Join(consumer.Hold(plain), consumer.RetryAfter(1, plain)), retryAfter(1)},
		{"join: retry after before hold for", errors.Join(consumer.HoldFor(2, plain), consumer.RetryAfter(1, plain)), retryAfter(1)},
		{"join: the longest hold for, before hold", errors.Join(consumer.HoldFor(1, plain), consumer.Hold(plain), consumer.HoldFor(2, plain)), holdFor(2)},
		{"join: hold before a plain failure", errors.Join(plain, consumer.Hold(plain)), consumer.Outcome{Action: consumer.ActionHold}},
		{"join: a plain failure before discard", errors.Join(consumer.Discard("old"), plain), consumer.Outcome{Action: consumer.ActionRetry}},
		{"join: discard if every branch says so", errors.Join(consumer.Discard("old"), consumer.Discard("x")), consumer.Outcome{Action: consumer.ActionDiscard, Reason: "old"}},
		{"a join inside a join", errors.Join(plain, fmt.Errorf("w: %w", errors.Join(plain, consumer.DeadLetter(plain)))), consumer.Outcome{Action: consumer.ActionDeadLetter}},
		{"an outcome around a join", consumer.Hold(errors.Join(consumer.DeadLetter(plain))), consumer.Outcome{Action: consumer.ActionHold}},
		{"an error that wraps nothing", wrapsNothing{}, consumer.Outcome{Action: consumer.ActionRetry}},
		{"an error that joins nothing", joinsNothing{}, consumer.Outcome{Action: consumer.ActionRetry}},
		{"a panic with a plain error", &consumer.PanicError{Value: plain}, consumer.Outcome{Action: consumer.ActionRetry}},
		{"a panic with an error that has an outcome", &consumer.PanicError{Value: fmt.Errorf("w: %w", consumer.Hold(plain))}, consumer.Outcome{Action: consumer.ActionHold}},
		{"a panic with a value that is no error", &consumer.PanicError{Value: 7}, consumer.Outcome{Action: consumer.ActionRetry}},
		{"a panic with an error whose methods panic", &consumer.PanicError{Value: (*wrapsNil)(nil)}, consumer.Outcome{Action: consumer.ActionRetry}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			if got := consumer.OutcomeOf(tt.err); got != tt.want {
				t.Errorf("OutcomeOf(%v) = %+v, want %+v", tt.err, got, tt.want)
			}
		})
	}
}

type wrapsNil struct{ err error }

func (w *wrapsNil) Error() string { return w.err.Error() }
func (w *wrapsNil) Unwrap() error { return w.err }

type wrapsNothing struct{}

func (wrapsNothing) Error() string { return "wraps nothing" }
func (wrapsNothing) Unwrap() error { return nil }

type joinsNothing struct{}

func (joinsNothing) Error() string   { return "joins nothing" }
func (joinsNothing) Unwrap() []error { return nil }

func TestAnOutcomeKeepsItsCause(t *testing.T) {
	cause := errors.New("cause")
	for _, err := range []error{consumer.DeadLetter(cause), consumer.RetryAfter(1, cause), consumer.Hold(cause), consumer.HoldFor(1, cause)} {
		if !errors.Is(err, cause) || err.Error() != "cause" {
			t.Errorf("%T lost its cause: %v", err, err)
		}
	}
}
