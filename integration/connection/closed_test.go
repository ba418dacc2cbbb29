package connection_test

import (
	"context"
	"flag"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/topology"
)

// closes is how often: more often than the delivery limit of 20 allows.
var closes = flag.Int("closes", 30, "how often the broker closes all connections")

const (
	// poison is how many messages never get their handler to the end while
	// connections are closed. They reach the delivery limit, one after the other.
	poison = 1

	// poisoned is how long their handler takes: longer than connections last,
	// and shorter than settle waits. The consumer takes them one at a time.
	poisoned = 8 * time.Second
)

// busy is a load under which every loss of a connection hits messages on their
// way in both directions.
var busy = poisonous(new(atomic.Int32))

// poisonous is busy, and counts how often poison was taken.
func poisonous(taken *atomic.Int32) load {
	return load{pace: 5 * time.Millisecond, concurrency: 20, handler: func(ctx context.Context, d *consumer.Delivery) error {
		took := 20 * time.Millisecond
		if d.Type == "poison" {
			taken.Add(1)
			took = poisoned
		}
		select {
		case <-time.After(took):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}
}

// Each time a connection is closed the broker counts one more delivery of what
// was in a handler's hands, and after the 20th gives the message up.
func forcedCloses(t *testing.T, n *node, r *row) {
	conn := open(t, config(n.AMQPURL()))
	var taken atomic.Int32
	work := startWork(t, conn, topology.WorkQueue{Name: r.fault, Type: topology.Quorum}, poisonous(&taken))
	for range poison {
		work.publishSoon("poison")
	}
	var detect, recovered time.Duration // the longest of all
	for range *closes {
		both := socketsOf(t, conn)
		before := taken.Load() // it may come back before anything else does
		began := n.closeConnections(t, both)
		detect = max(detect, both.lost(t, began))
		runs := work.account.Counts().Runs
		poll.Until(t, slack*returned, "a handler runs again", func() bool { return work.account.Counts().Runs > runs })
		recovered = max(recovered, time.Since(began))
		// The next close must hit poison, as long as there is some.
		poll.Until(t, slack*returned, "poison is taken again", func() bool {
			return taken.Load() > before || work.account.Caused(rehop.CauseCrashLoop) >= poison
		})
	}
	r.detected(detect, noticed)
	r.recovered(recovered, returned)
	work.settle(t, r)
	if got := work.account.Caused(rehop.CauseCrashLoop); got < poison {
		t.Errorf("%d dead letters by the delivery limit, want at least %d", got, poison)
	}
}

// closeConnections makes the broker close every connection that there is, and
// returns when it last did. A broker may not yet know of one that is young.
func (n *node) closeConnections(t *testing.T, both sockets) (closed time.Time) {
	t.Helper()
	poll.Until(t, slack*returned, "the broker closes its connections", func() bool {
		n.closeKnown(t)
		closed = time.Now()
		young := time.After(200 * time.Millisecond)
		for _, s := range both {
			select {
			case <-s.Done():
			case <-young:
				return false
			}
		}
		return true
	})
	return closed
}

// closeKnown does what "rabbitmqctl close_all_connections" does, without the
// second that the start of rabbitmqctl takes.
func (n *node) closeKnown(t *testing.T) {
	t.Helper()
	u, err := url.JoinPath(n.ManagementURL(), "api", "connections", "username", "guest")
	if err != nil {
		t.Fatal(err)
	}
	ask, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, u, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(ask)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		t.Fatalf("DELETE %s: %s", ask.URL.Path, resp.Status)
	}
}
