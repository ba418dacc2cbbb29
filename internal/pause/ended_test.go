package pause

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestEndedSaysWhyACtxHasEnded(t *testing.T) {
	t.Parallel()
	theirs, ours := errors.New("the request is over"), Own(errors.New("no answer in time"))
	for _, tt := range []struct {
		rule   string
		cause  error
		want   string
		theirs bool // the error of the ctx counts as the caller's
	}{
		{"without a cause: the error of the ctx", nil, "context canceled", true},
		{"with one: both", theirs, "context canceled: the request is over", true},
		{"a cause that has the error already: the cause", fmt.Errorf("over: %w", context.Canceled), "over: context canceled", true},
		{"a limit of ours: the limit alone", ours, "no answer in time", false},
		{"what a limit of ours has ended elsewhere is a cause of the caller's", fmt.Errorf("another message: %w", ours), "context canceled: another message: no answer in time", true},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(tt.cause)
			err := Ended(ctx)
			if err.Error() != tt.want || errors.Is(err, context.Canceled) != tt.theirs || tt.cause != nil && !errors.Is(err, tt.cause) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}
