package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/rehop/rehop/integration/account"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/internal/route"
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
	killed, partitioned := workQueue("killed"), workQueue("partitioned")
	led, followed := workQueue("led"), workQueue("followed")
	c := startTrio(t, version, killed, partitioned, led, followed)
	aged := time.After(nodes.YoungQueue)

	c.fault(t, ruleKilled, killed, func(t *testing.T, s *service) {
		<-aged
		n := c.leader(t, c.Node, killed.Name)
		s.measure(t, "killed "+n.Name(), func() { nodes.Must(t, "kill", n.Kill) }, func() {
			s.flow(t, "without the leader")
			nodes.Must(t, "start", n.Start)
			s.flow(t, "with the node back")
		})
	})
	c.fault(t, rulePartitioned, partitioned, func(t *testing.T, s *service) {
		wait := route.WaitQueue(partitioned.Name, 1)
		n := c.leader(t, c.Node, wait)
		majority := c.other(n)
		s.measure(t, "cut off "+n.Name(), func() { c.isolate(t, n) }, func() {
			<-time.After(cutFor) // how long the fault lasts
			if c.leader(t, majority, wait) == n {
				t.Errorf("%s leads %s after %v without the others", n.Name(), wait, cutFor)
			}
			s.flow(t, "without the node")
		})
		s.measure(t, "healed", func() { nodes.Must(t, "heal", c.Heal) }, func() { s.flow(t, "with the node back") })
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
		table.Cell(t, rule, c.version, string(w.Type))
		s := startService(t, c.AMQPURLs(), w, pace)
		s.flow(t, "at first")
		t.Logf("at the fault: %s", c.where(t, w))
		breaks(t, s)
		c.end(t, rule, s)
	})
}

// end accounts for the messages of a service.
func (c *trio) end(t *testing.T, rule string, s *service) {
	t.Helper()
	s.settle(t, c.conn)
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	t.Log(s.account)
	table.Note("%s, %s %s: %s", rule, c.version, s.queue.Type, s.account)
	judge(t, s.account)
}

func judge(t *testing.T, a *account.Account) {
	t.Helper()
	if err := a.Verdict(); err != nil {
		t.Error(err)
	}
}

// measure tells how long the flow of messages stood still from a fault on,
// while something went on after it.
func (s *service) measure(t *testing.T, what string, fault, after func()) {
	t.Helper()
	services{s}.measure(t, what, fault, after)
}

// services run at the same time, under the same faults.
type services []*service

func (all services) measure(t *testing.T, what string, fault, after func()) {
	t.Helper()
	began := time.Now()
	fault()
	broken := time.Now()
	after()
	end := time.Now()
	for _, s := range all {
		text := fmt.Sprintf("%s in %v, %s: %s", what, broken.Sub(began).Round(time.Millisecond), s.queue.Name, s.seen.progress(began, broken, end))
		t.Log(text)
		table.Note("  %s", text)
	}
}

func (all services) flow(t *testing.T, what string) {
	t.Helper()
	for _, s := range all {
		s.flow(t, what)
	}
}
