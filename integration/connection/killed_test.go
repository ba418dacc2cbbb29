package connection_test

import (
	"context"
	"testing"
	"time"

	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/topology"
)

var (
	killedQueue  = topology.WorkQueue{Name: "killed", Type: topology.Quorum}
	stoppedQueue = topology.WorkQueue{Name: "stopped", Type: topology.Quorum}
)

func brokerKilled(t *testing.T, n *node, r *row) {
	n.Aged(t)
	work := startWork(t, open(t, config(n.AMQPURL())), killedQueue, busy)
	both := socketsOf(t, work.conn)
	began := time.Now()
	nodes.Must(t, "kill", n.Kill)
	r.detected(both.lost(t, began), noticed)
	nodes.Must(t, "start", n.Start)
	r.recovered(work.recovered(t, time.Now()), returned)
	work.settle(t, r)
}

// A broker that stops in order says goodbye to its clients.
func brokerStopped(t *testing.T, n *node, r *row) {
	work := startWork(t, open(t, config(n.AMQPURL())), stoppedQueue, busy)
	both := socketsOf(t, work.conn)
	began := time.Now()
	stopped := stopping(t, n.Broker.Node)
	r.detected(both.lost(t, began), stopped()+noticed)
	nodes.Must(t, "start", n.Start)
	r.recovered(work.recovered(t, time.Now()), returned)
	work.settle(t, r)
}

// stopping stops a node in the background. The function it returns waits for
// the end of that, and returns how long it took.
func stopping(t *testing.T, n *broker.Node) (stopped func() time.Duration) {
	began := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- n.Stop(context.WithoutCancel(t.Context())) }()
	return func() time.Duration {
		t.Helper()
		if err := <-ended; err != nil {
			t.Fatalf("stop: %v", err)
		}
		return time.Since(began)
	}
}
