package confirm

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/rehop/rehop"
)

// An errgroup ends the ctx of all with the error of one.
func TestTheErrorOfAnotherMessageSaysNothingOfThisOne(t *testing.T) {
	returned := fmt.Errorf("message 1: %w", &ReturnedError{RoutingKey: "nowhere"})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(returned)
	own := errors.New("own")
	for _, tt := range []struct {
		rule    string
		err     error
		is, not []error
	}{
		{"not sent", &UnsentError{Why: errNoTime, Cause: context.Cause(ctx)}, []error{errNoTime, returned}, []error{ErrReturned, ErrUnconfirmed}},
		{"not sent, by the text of a connection", &UnsentError{Why: fmt.Errorf("no session: %w: %w", returned, own), Cause: context.Cause(ctx)}, []error{own, returned}, []error{ErrReturned}},
		{"unconfirmed", fmt.Errorf("%w: %w", ErrUnconfirmed, context.Cause(ctx)), []error{ErrUnconfirmed, returned}, []error{ErrReturned}},
		{"returned itself", &ReturnedError{RoutingKey: "other"}, []error{ErrReturned}, []error{ErrUnconfirmed}},
	} {
		err := ofMessage(ctx, tt.err)
		if err.Error() != tt.err.Error() {
			t.Errorf("%s: it says %q, want %q", tt.rule, err, tt.err)
		}
		for _, is := range tt.is {
			if !errors.Is(err, is) {
				t.Errorf("%s: %v is not %v", tt.rule, err, is)
			}
		}
		for _, not := range tt.not {
			if errors.Is(err, not) {
				t.Errorf("%s: %v is %v", tt.rule, err, not)
			}
		}
		var as *ReturnedError
		if errors.As(err, &as) != errors.Is(err, ErrReturned) {
			t.Errorf("%s: as a %T: %v", tt.rule, as, as)
		}
		if got, want := rehop.ClassOf(err), rehop.ClassOf(tt.err); got != want {
			t.Errorf("%s: class %v, want %v", tt.rule, got, want)
		}
	}
}

func TestTheCauseOfACtxThatHasNotEndedIsNotLookedFor(t *testing.T) {
	err := fmt.Errorf("%w: %w", ErrUnconfirmed, context.Canceled)
	if got := ofMessage(t.Context(), err); got != err { //nolint:errorlint // the same one
		t.Errorf("%v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := ofMessage(ctx, err); got != err { //nolint:errorlint // the same one
		t.Errorf("%v", got)
	}
}
