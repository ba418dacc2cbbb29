package connection_test

import (
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// movedOn is how long a client takes to a node that lives, and messages until
// they flow there: their queue may have lost its leader too.
const movedOn = 5 * time.Second

// The client goes from node to node as they are stopped. With one node down the
// queue has its majority, and messages flow. With two down nothing can be
// stored in a cluster of three: what is measured then is that the client is
// connected, and later, when the nodes are back, that nothing was lost. Without
// its majority a queue may refuse a message, and Publish says so.
func TestNodesOfAClusterStopped(t *testing.T) {
	t.Parallel()
	if why := broker.WhyNoCluster(t.Context()); why != "" {
		t.Log("NOT RUN:", why)
		return
	}
	c := startTrio(t)
	c.offer(t, 0)
	conn := open(t, config(c.urls()...))
	work := startWork(t, conn, topology.WorkQueue{Name: "cluster", Type: topology.Quorum}, busy)
	flows := func(r *row, lost time.Time) { r.recovered(work.recovered(r.t, lost), movedOn) }
	connects := func(r *row, lost time.Time) {
		socketsOf(r.t, conn)
		r.recovered(time.Since(lost), movedOn)
	}

	c.stop(t, conn, "node 1 of 3 stopped", 0, 1, flows)
	c.start(t, 0)
	c.stop(t, conn, "node 2 of 3 stopped, node 1 is back", 1, 0, flows)
	c.stop(t, conn, "node 1 of 3 stopped, node 2 too: connection only", 0, 2, connects)
	c.start(t, 0, 1)
	c.step(t, "nodes 1 and 2 of 3 back", func(r *row) {
		flows(r, time.Now())
		work.settle(r.t, r, producer.ErrNacked)
	})
}

// trio is a cluster of three with a proxy in front of each node, which lets a
// test say which of them clients find.
type trio struct {
	*broker.Broker
	proxies []proxy
}

const trioVersion = "4.3"

func startTrio(t *testing.T) *trio {
	t.Helper()
	b := nodes.Cluster(t, "rehop-connection", trioVersion)
	c := &trio{Broker: b}
	for _, n := range b.Nodes() {
		c.proxies = append(c.proxies, proxyTo(t, n.AMQPURL()))
	}
	return c
}

func (c *trio) urls() (all []string) {
	for _, p := range c.proxies {
		all = append(all, p.url)
	}
	return all
}

// offer lets clients find one node only.
func (c *trio) offer(t *testing.T, node int) {
	t.Helper()
	for i, p := range c.proxies {
		if err := p.Refuse(i != node); err != nil {
			t.Fatal(err)
		}
	}
}

// stop stops the node that has the client, which then finds another one.
func (c *trio) stop(t *testing.T, conn *connection.Conn, name string, node, next int, measure func(r *row, lost time.Time)) {
	t.Helper()
	c.step(t, name, func(r *row) {
		both := socketsOf(r.t, conn)
		if live := c.proxies[node].Stats().Live; live != 2 {
			r.t.Fatalf("%d connections at the node, want both", live)
		}
		c.offer(r.t, next)
		began := time.Now()
		stopped := stopping(r.t, c.Nodes()[node])
		took := both.lost(r.t, began)
		measure(r, began.Add(took))
		r.detected(took, stopped()+noticed)
	})
}

// start starts nodes and returns when each queue has a majority to spare.
func (c *trio) start(t *testing.T, which ...int) {
	t.Helper()
	for _, i := range which {
		n := c.Nodes()[i]
		nodes.Must(t, "start", n.Start)
	}
	nodes.AwaitMajority(t, c.Nodes()[which[0]])
}

// step is a row of the table. The steps build on each other.
func (c *trio) step(t *testing.T, name string, run func(*row)) {
	t.Helper()
	if !t.Run(name, func(t *testing.T) { run(newRow(t, trioVersion, name)) }) {
		t.FailNow()
	}
}
