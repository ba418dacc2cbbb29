package cluster

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/integration/queues"
	"github.com/rehop/rehop/topology"
)

// trio is the cluster under test.
type trio struct {
	*broker.Broker
	version string           // its column
	conn    *connection.Conn // to declare and to look
}

// shared is the cluster of [version], which takes as long to start as to break:
// one for all tests, from the first that asks for it until TestMain ends it.
var shared struct {
	sync.Mutex
	*broker.Broker
}

func sharedCluster(t *testing.T) *broker.Broker {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.Broker == nil {
		b, err := nodes.StartCluster(t.Context(), "rehop-cluster", version)
		if err != nil {
			t.Fatal(err)
		}
		shared.Broker = b
	}
	return shared.Broker
}

// startTrio gives a cluster for the length of the test, and declares the queues
// that its faults will meet.
func startTrio(t *testing.T, v string, queues ...topology.WorkQueue) *trio {
	t.Helper()
	var b *broker.Broker
	if v == version {
		b = sharedCluster(t)
	} else {
		b = nodes.Cluster(t, "rehop-cluster", v)
	}
	conn, err := connection.Open(t.Context(), connection.Config{URLs: b.AMQPURLs(), Name: "observer"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	for _, w := range queues {
		plan, err := topology.DeclarePlan(t.Context(), conn, w)
		if err != nil {
			t.Fatal(err)
		}
		if engine := plan.Engines[0].Engine; engine != topology.EngineNack {
			t.Fatalf("%s works by %v, want nack", w.Name, engine)
		}
	}
	return &trio{Broker: b, version: v, conn: conn}
}

func workQueue(name string) topology.WorkQueue {
	return topology.WorkQueue{Name: name, Type: topology.Quorum, Waits: delay.Schedule{time.Second, 300 * time.Millisecond}}
}

// leader returns the node that leads a queue, as one of the nodes sees it.
func (c *trio) leader(t *testing.T, seenBy *broker.Node, queue string) *broker.Node {
	t.Helper()
	name := c.leaders(t, seenBy)[queue]
	for _, n := range c.Nodes() {
		if n.Name() == name {
			return n
		}
	}
	t.Fatalf("the leader of %s is %q, which is no node", queue, name)
	return nil
}

// lead makes a node the leader of a quorum queue.
func (c *trio) lead(t *testing.T, n *broker.Node, queue string) {
	t.Helper()
	expr := fmt.Sprintf(`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"%s">>)), rabbit_quorum_queue:transfer_leadership(Q, '%s').`, queue, n.Name())
	if out, err := c.leader(t, c.Node, queue).Exec(t.Context(), "rabbitmqctl", "eval", expr); err != nil {
		t.Fatalf("%s to lead %s: %v: %s", n.Name(), queue, err, out)
	}
	poll.Until(t, time.Minute, n.Name()+" leads "+queue, func() bool { return c.leader(t, c.Node, queue) == n })
}

// leaders returns the name of the leading node of each queue.
func (c *trio) leaders(t *testing.T, seenBy *broker.Node) map[string]string {
	t.Helper()
	out, err := seenBy.Exec(t.Context(), "rabbitmqctl", "--silent", "list_queues", "name", "leader", "pid")
	if err != nil {
		t.Fatal(err)
	}
	leaders := map[string]string{}
	for line := range strings.Lines(out) { // killed rabbit@rmq1 <rabbit@rmq1.1700000000.100.0>
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if len(fields) != 3 {
			t.Fatalf("list_queues printed %q", line)
		}
		leader := fields[1]
		if leader == "" { // of a classic queue, before 4.0
			leader, _, _ = strings.Cut(strings.TrimPrefix(fields[2], "<"), ".")
		}
		leaders[fields[0]] = leader
	}
	return leaders
}

// where tells which nodes lead the queues of w and which clients they have.
func (c *trio) where(t *testing.T, w topology.WorkQueue) string {
	t.Helper()
	leaders := c.leaders(t, c.Node)
	out, err := c.Exec(t.Context(), "rabbitmqctl", "--silent", "list_connections", "pid", "client_properties")
	if err != nil {
		t.Fatal(err)
	}
	var s strings.Builder
	for _, n := range c.Nodes() {
		fmt.Fprintf(&s, "\n\t%s leads", n.Name())
		for _, q := range queues.Of(w) {
			if leaders[q] == n.Name() {
				fmt.Fprintf(&s, " %s,", q)
			}
		}
		fmt.Fprint(&s, " serves")
		for line := range strings.Lines(out) { // <rabbit@rmq1.1700000000.100.0> [... {"connection_name","instance 1 publish"} ...]
			_, client, _ := strings.Cut(line, `"connection_name","`)
			client, _, _ = strings.Cut(client, `"`)
			if strings.HasPrefix(line, "<"+n.Name()+".") {
				fmt.Fprintf(&s, " %s,", client)
			}
		}
	}
	return s.String()
}

// other returns a node that is not n.
func (c *trio) other(n *broker.Node) *broker.Node {
	if all := c.Nodes(); all[0] != n {
		return all[0]
	}
	return c.Nodes()[1]
}

// isolate cuts a node off from all others.
func (c *trio) isolate(t *testing.T, lonely *broker.Node) {
	t.Helper()
	for _, n := range c.Nodes() {
		if n == lonely {
			continue
		}
		if err := c.Partition(t.Context(), lonely, n); err != nil {
			t.Fatal(err)
		}
	}
}
