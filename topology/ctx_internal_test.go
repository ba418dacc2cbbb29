package topology

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rehop/rehop/internal/management"
)

// unanswered is an API that fails when its ctx has ended.
type unanswered struct{ shows }

func (unanswered) From(ctx context.Context, _ string) ([]management.Binding, error) {
	return nil, ctx.Err()
}
func (unanswered) To(ctx context.Context, _ string, _ bool) ([]management.Binding, error) {
	return nil, ctx.Err()
}
func (unanswered) Rules(ctx context.Context) (management.Rules, error) {
	return management.Rules{}, ctx.Err()
}

// A caller whose ctx has ended finds the error of the ctx and its cause.
func TestACallSaysWhyItsCtxHasEnded(t *testing.T) {
	plan, err := NewPlan(version4, WorkQueue{Name: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("the request is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for rule, err := range map[string]error{
		"between two tries":   (&caller{ctx: ctx}).pause(time.Hour),
		"a look for bindings": (&observed{parts: map[part]bool{}}).bound(ctx, unanswered{}, plan),
		"a look for policies": (&observed{}).ruled(ctx, unanswered{}, plan),
	} {
		if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
			t.Errorf("%s: %v; want the error of the ctx and its cause", rule, err)
		}
	}
}
