package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/topology"
)

// flow is how many messages pass before and after the broker is away.
const flow = 400

// A frozen broker keeps its connections open and says nothing. Both ends give
// them up; when it thaws, its consumers come back by themselves.
func TestBrokerSilent(t *testing.T) {
	for _, version := range ownVersions() {
		t.Run(version, func(t *testing.T) {
			n := pool.Of(t, version)
			noLeaks(t)
			bursts := startFlow(t, n, "silent", connection.Config{Heartbeat: 2 * time.Second})
			n.Freeze(t)
			silent := time.Now()
			for _, b := range bursts {
				poll.Until(t, time.Minute, b.queue.Name+": its consumer notices the silence", func() bool { return b.work.consumer.Health() != nil })
				b.state = fmt.Sprintf("%d handlers had run, noticed after %v", b.account.Counts().Runs, time.Since(silent).Round(time.Millisecond))
			}
			nodes.Must(t, "unpause", n.Unpause)
			endFlow(t, n, bursts, ruleSilent, time.Now())
		})
	}
}

// A broker that stops in order and comes back.
func TestBrokerRestarted(t *testing.T) {
	for _, version := range ownVersions() {
		t.Run(version, func(t *testing.T) {
			n := pool.Of(t, version)
			noLeaks(t)
			bursts := startFlow(t, n, "restarted", connection.Config{})
			nodes.Must(t, "stop", n.Stop)
			for _, b := range bursts {
				b.state = fmt.Sprintf("%d failures", b.account.Counts().Failures)
				poll.Until(t, time.Minute, b.queue.Name+": its consumer notices", func() bool { return b.work.consumer.Health() != nil })
			}
			nodes.Must(t, "start", n.Start)
			endFlow(t, n, bursts, ruleRestarted, time.Now())
		})
	}
}

// startFlow declares a work queue of each type, starts producers and consumers,
// and returns when messages flow.
func startFlow(t *testing.T, n *nodes.Node, name string, cfg connection.Config) []*burst {
	t.Helper()
	conn := open(t, n, connection.Config{})
	var bursts []*burst
	for _, queueType := range queueTypes {
		w := topology.WorkQueue{Name: name + "." + string(queueType), Type: queueType, Waits: shortWaits}
		plan, err := topology.DeclarePlan(t.Context(), conn, w)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { deleteAll(t, conn, plan) })
		bursts = append(bursts, newBurst(t, n, w, cfg))
	}
	for _, b := range bursts {
		b.startWork(t)
		b.startPublishing(t, 40_000, true)
	}
	for _, b := range bursts {
		poll.Until(t, 60*time.Second, b.queue.Name+": messages flow", func() bool { return b.account.Counts().Failures >= flow })
	}
	return bursts
}

// endFlow sees to it that messages flow again, and accounts for all of them.
func endFlow(t *testing.T, n *nodes.Node, bursts []*burst, rule string, back time.Time) {
	t.Helper()
	for _, b := range bursts {
		before := b.account.Counts().Failures
		poll.Until(t, 60*time.Second, b.queue.Name+": messages flow again", func() bool { return b.account.Counts().Failures >= before+flow })
		// A confirm that is late degrades its health for a moment.
		poll.Until(t, time.Minute, b.queue.Name+": its consumer is said to be healthy", func() bool { return b.work.consumer.Health() == nil })
		b.publish.finish()
	}
	for _, b := range bursts {
		b.report(t, n, rule, b.end(t, back))
	}
}
