package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/matrix"
	"github.com/rehop/rehop/topology"
)

// youngQueue is the age below which a broker that is killed may wipe a quorum
// queue with all that it has confirmed: a fault of the broker's that would look
// like one of ours. So what a kill will meet is declared when the broker starts.
const youngQueue = 15 * time.Second

// node is a broker of one version, shared by the tests of this package, which
// break it one after the other and leave it running.
type node struct {
	*broker.Broker
	column   string    // its version in the table
	declared time.Time // when the last queue that a kill will meet was declared
}

// nodes are started when first asked for.
var nodes = struct {
	sync.Mutex
	byVersion map[string]func() (*node, error)
}{byVersion: map[string]func() (*node, error){}}

func starting(version string) func() (*node, error) {
	nodes.Lock()
	defer nodes.Unlock()
	start, ok := nodes.byVersion[version]
	if !ok {
		start = sync.OnceValues(func() (*node, error) { return startNode(version) })
		nodes.byVersion[version] = start
	}
	return start
}

// nodeOf returns the broker of a version.
func nodeOf(t *testing.T, version string) *node {
	t.Helper()
	n, err := starting(version)()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// startAll starts the brokers of all versions at once: their queues age together.
func startAll() {
	var all sync.WaitGroup
	for _, version := range ownVersions() {
		all.Go(func() { _, _ = starting(version)() }) // the first test that wants it tells
	}
	all.Wait()
}

func startNode(version string) (*node, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	b, err := broker.Start(ctx, broker.Options{Version: version, Name: "rehop-faults"})
	if err != nil {
		return nil, err
	}
	n := &node{Broker: b, column: matrix.Nearest(b.Version())}
	if given() {
		return n, nil
	}
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{b.AMQPURL()}})
	if err == nil {
		defer conn.Close()
		err = topology.Declare(ctx, conn, killedQueues(n.column)...)
	}
	n.declared = time.Now()
	if err != nil {
		return nil, errors.Join(err, b.Close(ctx))
	}
	return n, nil
}

// killedQueues are those that exist on a broker when it is killed.
func killedQueues(column string) []topology.Spec {
	var all []topology.Spec
	for _, queueType := range queueTypes {
		all = append(all, burstQueue(column, queueType), publishQueue(queueType), endingQueue(queueType))
	}
	return all
}

var queueTypes = []topology.QueueType{topology.Classic, topology.Quorum}

// aged waits until the queues of a node may be killed.
func (n *node) aged(t *testing.T) {
	t.Helper()
	select {
	case <-time.After(time.Until(n.declared.Add(youngQueue))):
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

// must fails the test if a verb of the broker does.
func must(t *testing.T, verb string, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	if err := do(ctx); err != nil {
		t.Fatalf("%s: %v", verb, err)
	}
}

// open connects to a node for the length of the test.
func open(t *testing.T, n *node, cfg connection.Config) *connection.Conn {
	t.Helper()
	cfg.URLs = []string{n.AMQPURL()}
	conn, err := connection.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func closeNodes() []error {
	nodes.Lock()
	defer nodes.Unlock()
	var errs []error
	for _, version := range slices.Sorted(maps.Keys(nodes.byVersion)) {
		n, err := nodes.byVersion[version]()
		if err != nil {
			continue // reported by the tests that wanted it
		}
		if err := n.Close(context.Background()); err != nil {
			errs = append(errs, fmt.Errorf("faults: %w", err))
		}
	}
	return errs
}
