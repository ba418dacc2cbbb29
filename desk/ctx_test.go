package desk

import (
	"context"
	"errors"
	"testing"
)

// A look that waits for its turn ends with its ctx, and says why.
func TestALookSaysWhyItsCtxHasEnded(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		live := w.live()
		leave, err := live.enter(w.Context())
		must(w.T, err)
		defer leave()
		cause := errors.New("the request is over")
		ctx, cancel := context.WithCancelCause(w.Context())
		cancel(cause)
		if _, err := live.enter(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
			w.Errorf("%v; want the error of the ctx and its cause", err)
		}
	})
}
