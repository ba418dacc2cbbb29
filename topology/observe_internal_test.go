package topology

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/internal/management"
)

// failing is an API that takes a second to say that there are no bindings, and fails at once at the question for those of one queue.
type failing struct {
	shows
	at  string
	err error

	asked atomic.Int32
}

func (f *failing) To(ctx context.Context, name string, _ bool) ([]management.Binding, error) {
	f.asked.Add(1)
	if name == f.at {
		return nil, f.err
	}
	select {
	case <-time.After(time.Second):
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (f *failing) From(ctx context.Context, exchange string) ([]management.Binding, error) {
	return f.To(ctx, exchange, true)
}

// A broker of 4.3 answers 500 to a question about a binding whose key has ~ and that has arguments. Only what that question was about is unseen.
func TestAQuestionThatTheBrokerFailsAtEndsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plan, err := NewPlan(versions[2], WorkQueue{Name: "a"}, WorkQueue{Name: "b"})
		if err != nil {
			t.Fatal(err)
		}
		have := shown(plan)
		all := len(have.to) + len(have.from)
		api := &failing{at: "a", err: fmt.Errorf("bindings of queue %q: %w", "a", management.ErrFailed)}
		if err := have.bound(t.Context(), api, plan); err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(have.unseen, "\n"); int(api.asked.Load()) != all || len(have.to)+len(have.from) != all-1 || !strings.HasPrefix(text, `bindings of queue "a": `) {
			t.Errorf("%d of %d questions were asked, %d had an answer; unseen: %q", api.asked.Load(), all, len(have.to)+len(have.from), text)
		}
	})
}
