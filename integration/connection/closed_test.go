package connection_test

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/topology"
)

const (
	closes = 100

	// poison is how many messages never get their handler to the end while
	// connections are closed. They reach the delivery limit.
	poison = 2
)

// busy is a load under which every loss of a connection hits messages on their
// way in both directions.
var busy = load{pace: 5 * time.Millisecond, concurrency: 20, handler: func(ctx context.Context, d *consumer.Delivery) error {
	took := 20 * time.Millisecond
	if d.Type == "poison" {
		took = time.Minute
	}
	select {
	case <-time.After(took):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}}

// Each time a connection is closed the broker counts one more delivery of what
// was in a handler's hands, and after the 20th gives the message up.
func forcedCloses(t *testing.T, n *node, r *row) {
	conn := open(t, config(n.AMQPURL()))
	work := startWork(t, conn, topology.WorkQueue{Name: r.fault, Type: topology.Quorum}, busy)
	for range poison {
		work.publishSoon("poison")
	}
	var detect, recovered time.Duration // the longest of all
	for range closes {
		both := socketsOf(t, conn)
		n.closeConnections(t)
		began := time.Now()
		detect = max(detect, both.lost(t, began))
		runs, _ := work.ledger.count()
		until(t, slack*returned, "a handler runs again", func() bool { now, _ := work.ledger.count(); return now > runs })
		recovered = max(recovered, time.Since(began))
	}
	r.detected(detect, noticed)
	r.recovered(recovered, returned)
	work.settle(t, r)
	if got := work.ledger.crashed(); got < poison {
		t.Errorf("%d dead letters by the delivery limit, want at least %d", got, poison)
	}
}

// closeConnections makes the broker close every connection that there is, in
// the way of "rabbitmqctl close_all_connections", but without the second that
// the start of rabbitmqctl takes.
func (n *node) closeConnections(t *testing.T) {
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
