package carry

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/internal/route"
)

// An operator's policy puts a TTL on all queues: what is not in hand of a carrier
// leaves its wait early, again and again, and goes back each time.
func TestPolicyCutsWaitsShort(t *testing.T) {
	const n = 600 // more than are in hand
	onEachVersion(t, func(t *testing.T, b *broker.Broker) {
		for _, queueType := range queueTypes {
			t.Run(string(queueType), func(t *testing.T) {
				conn := open(t, b)
				w := declare(t, conn, queueType, 5*time.Second)
				cutShort(t, b, route.WaitQueue(w.Name, 1))
				l := newLedger(w)
				l.publish(t, conn, w, n)
				early := 0
				consume(t, conn, w, l, consumer.Trace{Settled: func(_ context.Context, s consumer.Settled) {
					if s.Disposition == consumer.DispositionWait {
						l.mu.Lock()
						defer l.mu.Unlock()
						early++
					}
				}})
				poll.Until(t, time.Minute, "the end of all messages", func() bool { return l.done() == n })
				l.end(t, "with a policy")
				l.mu.Lock()
				defer l.mu.Unlock()
				if early -= n; early < n/10 {
					t.Errorf("%d times a message was sent to its wait again: the policy has done nothing", early)
				}
				t.Logf("%d times a message was sent to its wait again", early)
			})
		}
	})
}

// cutShort gives the wait queues a policy, and returns when the broker says that a queue has
// it: a 3.10 on a busy machine has answered set_policy with success and changed nothing.
func cutShort(t *testing.T, b *broker.Broker, queue string) {
	t.Helper()
	poll.Until(t, 2*time.Minute, "the policy of "+queue, func() bool {
		if out, err := b.Exec(t.Context(), "rabbitmqctl", "set_policy", "--apply-to", "queues", "ttl", `\.wait\.`, `{"message-ttl":700}`); err != nil {
			t.Fatal(err, out)
		}
		out, err := b.Exec(t.Context(), "rabbitmqctl", "--silent", "list_queues", "name", "policy")
		if err != nil {
			t.Fatal(err, out)
		}
		return slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
			fields := strings.Fields(line)
			return len(fields) == 2 && fields[0] == queue && fields[1] == "ttl"
		})
	})
}
