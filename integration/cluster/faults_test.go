package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/rehop/rehop/topology"
)

// cutFor is how long a node stays cut off: its peers have noticed and elected
// other leaders, and its clients' heartbeats have found nothing wrong.
const cutFor = 12 * time.Second

// All faults hit one cluster, one after the other, each with a work queue of its
// own: to start a cluster takes as long as to break one.
func TestFaults(t *testing.T) {
	if absent() != "" {
		return // TestMain says so
	}
	killed, partitioned, rolling := workQueue("killed"), workQueue("partitioned"), workQueue("rolling")
	led, followed := workQueue("led"), workQueue("followed")
	c := startTrio(t, killed, partitioned, rolling, led, followed)
	aged := time.After(youngQueue)

	c.fault(t, ruleKilled, killed, func(t *testing.T, s *service) {
		<-aged
		n := c.leader(t, c.Node, killed.Name)
		s.measure(t, "killed "+n.Name(), func() { must(t, "kill", n.Kill) }, func() {
			s.flow(t, "without the leader")
			must(t, "start", n.Start)
			s.flow(t, "with the node back")
		})
	})
	c.fault(t, ruleRolling, rolling, func(t *testing.T, s *service) {
		for _, n := range c.Nodes() {
			s.measure(t, "restarted "+n.Name(), func() { must(t, "stop", n.Stop) }, func() {
				must(t, "start", n.Start)
				// Whoever takes the next node down before this one has caught up
				// takes the majority of some queue.
				if _, err := n.Exec(t.Context(), "rabbitmq-upgrade", "await_online_quorum_plus_one", "--timeout", "60"); err != nil {
					t.Fatal(err)
				}
			})
		}
		s.flow(t, "with all nodes back")
	})
	c.fault(t, rulePartitioned, partitioned, func(t *testing.T, s *service) {
		wait := partitioned.WaitQueue(1)
		n := c.leader(t, c.Node, wait)
		majority := c.other(n)
		s.measure(t, "cut off "+n.Name(), func() { c.isolate(t, n) }, func() {
			<-time.After(cutFor) // how long the fault lasts
			if c.leader(t, majority, wait) == n {
				t.Errorf("%s leads %s after %v without the others", n.Name(), wait, cutFor)
			}
			s.flow(t, "without the node")
		})
		s.measure(t, "healed", func() { must(t, "heal", c.Heal) }, func() { s.flow(t, "with the node back") })
	})
	t.Run("consumers cut off", func(t *testing.T) {
		n := c.leader(t, c.Node, led.Name)
		c.lead(t, c.other(n), followed.Name)
		c.cutOff(t, n, &cutCase{rule: ruleCutLeader, queue: led}, &cutCase{rule: ruleCutFollower, queue: followed})
	})
}

// fault runs a service, breaks something in the midst of its failures, and
// accounts for its messages.
func (c *trio) fault(t *testing.T, rule string, w topology.WorkQueue, breaks func(*testing.T, *service)) {
	t.Run(rule, func(t *testing.T) {
		table.Cell(t, rule, version, queueType)
		s := startService(t, c.AMQPURLs(), w)
		s.flow(t, "at first")
		t.Logf("at the fault: %s", c.where(t, w))
		breaks(t, s)
		s.settle(t, c.conn)
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		t.Log(s.ledger)
		table.Note("%s: %s", rule, s.ledger)
		if lost := s.ledger.lost(); len(lost) > 0 {
			t.Errorf("%d messages are lost: %s", len(lost), s.ledger.stories(lost))
		}
		if err := s.ledger.check(); err != nil {
			t.Error(err)
		}
	})
}

// measure tells how long the flow of messages stood still from a fault on,
// while something went on after it.
func (s *service) measure(t *testing.T, what string, fault, after func()) {
	t.Helper()
	began := time.Now()
	fault()
	broken := time.Now()
	after()
	text := fmt.Sprintf("%s in %v: %s", what, broken.Sub(began).Round(time.Millisecond), s.ledger.progress(began, broken, time.Now()))
	t.Log(text)
	table.Note("  %s", text)
}
