// Package nodes gives the suites that break brokers a broker of each version,
// shared by the tests of a package, and clusters.
package nodes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/matrix"
	"github.com/rehop/rehop/topology"
)

// YoungQueue is the age below which a broker that is killed may wipe a quorum
// queue with all that it has confirmed: a fault of the broker's that would look
// like one of ours. So what a kill will meet is declared when the broker starts.
const YoungQueue = 15 * time.Second

// Node is a broker of one version.
type Node struct {
	*broker.Broker
	Column   string    // its version in a table, see matrix.Nearest
	declared time.Time // when the queues that a kill will meet were
}

// Pool starts the broker of a version when it is first asked for. Tests break
// it one after the other and leave it running.
type Pool struct {
	name   string
	killed func(column string) []topology.Spec

	mu        sync.Mutex
	byVersion map[string]func() (*Node, error)
}

// NewPool returns a pool whose containers have name in their names. killed
// returns what is declared when a broker starts, because a kill will meet it.
func NewPool(name string, killed func(column string) []topology.Spec) *Pool {
	return &Pool{name: name, killed: killed, byVersion: map[string]func() (*Node, error){}}
}

// Start returns the broker of a version, "" being the one that there is.
func (p *Pool) Start(version string) (*Node, error) {
	p.mu.Lock()
	start, ok := p.byVersion[version]
	if !ok {
		start = sync.OnceValues(func() (*Node, error) { return p.start(version) })
		p.byVersion[version] = start
	}
	p.mu.Unlock()
	return start()
}

// StartAll starts the brokers of versions at once: their queues age together.
func (p *Pool) StartAll(versions ...string) {
	var all sync.WaitGroup
	for _, version := range versions {
		all.Go(func() { _, _ = p.Start(version) }) // the first test that wants it tells
	}
	all.Wait()
}

// Of returns the broker of a version, or fails the test.
func (p *Pool) Of(t testing.TB, version string) *Node {
	t.Helper()
	n, err := p.Start(version)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (p *Pool) start(version string) (*Node, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
	defer cancel()
	b, err := broker.Start(ctx, broker.Options{Version: version, Name: p.name})
	if err != nil {
		return nil, err
	}
	n := &Node{Broker: b, Column: matrix.Nearest(b.Version())}
	if Given() || p.killed == nil {
		return n, nil
	}
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{b.AMQPURL()}})
	if err == nil {
		err = errors.Join(topology.Declare(ctx, conn, p.killed(n.Column)...), conn.Close())
	}
	if err != nil {
		return nil, errors.Join(err, b.Close(ctx))
	}
	n.declared = time.Now()
	return n, nil
}

// Close removes the brokers.
func (p *Pool) Close(ctx context.Context) []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, version := range slices.Sorted(maps.Keys(p.byVersion)) {
		n, err := p.byVersion[version]()
		if err != nil {
			continue // reported by the tests that wanted it
		}
		if err := n.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", p.name, version, err))
		}
	}
	return errs
}

// Given reports whether the broker is somebody else's, who would not like to
// see it broken.
func Given() bool { return os.Getenv("AMQP_URL") != "" }

// Aged waits until the queues of the node may be killed.
func (n *Node) Aged(t testing.TB) {
	t.Helper()
	select {
	case <-time.After(time.Until(n.declared.Add(YoungQueue))):
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

// Freeze pauses the node. It tries three times: a loaded machine's container
// runtime may fail once.
func (n *Node) Freeze(t testing.TB) {
	t.Helper()
	for range 2 {
		if err := n.Pause(t.Context()); err == nil {
			return
		}
	}
	Must(t, "pause", n.Pause)
}

// DeadLetterWorkers waits until each of the broker's workers that move dead letters at-least-once has begun. Who deletes
// a queue that has just got a leader, before its worker has begun, ends the supervisor of all workers, and with it each
// queue that needs one, until the node is started again (rabbitmq-server 16652; topology/DESIGN.md).
func (n *Node) DeadLetterWorkers(t testing.TB) {
	t.Helper()
	// A worker answers when it has begun, and one of a queue that is deleted meanwhile never does.
	const answers = "[catch sys:get_state(W) || {_, W, _, _} <- supervisor:which_children(rabbit_fifo_dlx_sup)]."
	Must(t, "workers of dead letters", func(ctx context.Context) error {
		out, err := n.Exec(ctx, "rabbitmqctl", "eval", answers)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
}

// Must fails the test if a verb of a broker does.
func Must(t testing.TB, verb string, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 90*time.Second)
	defer cancel()
	if err := do(ctx); err != nil {
		t.Fatalf("%s: %v", verb, err)
	}
}

// Cluster starts a cluster for the length of a test. See [StartCluster].
func Cluster(t testing.TB, name, version string) *broker.Broker {
	t.Helper()
	b, err := StartCluster(t.Context(), name, version)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// StartCluster starts a cluster of three. Its nodes notice within seconds that a
// peer is gone. A queue is led by the node that leads the fewest, where the
// broker can do so.
func StartCluster(ctx context.Context, name, version string) (*broker.Broker, error) {
	return broker.Start(ctx, broker.Options{
		Version: version, Nodes: 3, Name: name,
		Conf: "net_ticktime = 5\nqueue_leader_locator = balanced",
	})
}

// AwaitMajority returns when every quorum queue that has a member on a node
// could do without it: whoever takes the next node down before that takes the
// majority of some queue.
func AwaitMajority(t testing.TB, n *broker.Node) {
	t.Helper()
	Must(t, "await_online_quorum_plus_one", func(ctx context.Context) error {
		_, err := n.Exec(ctx, "rabbitmq-upgrade", "await_online_quorum_plus_one", "--timeout", "60")
		if err == nil {
			return nil
		}
		members, err2 := n.Exec(ctx, "rabbitmqctl", "list_queues", "--silent", "name", "leader", "members", "online")
		return errors.Join(err, err2, errors.New(members))
	})
}
