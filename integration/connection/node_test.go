package connection_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/topology"
)

// youngQueue is the age below which a broker that is killed may wipe a quorum
// queue with all that it has confirmed: a fault of the broker's that would look
// like one of ours. So what a kill will meet is declared when the broker starts.
const youngQueue = 15 * time.Second

// node is a broker of one version, started once for the whole package.
type node struct {
	*broker.Broker
	declared time.Time // when the queues of killedQueue and stoppedQueue were
}

var nodes = struct {
	sync.Mutex
	byVersion map[string]func() (*node, error)
}{byVersion: map[string]func() (*node, error){}}

// versions are those that are to be had here, or "" if there is but one and it
// is none of broker.Series.
var versions = sync.OnceValues(func() ([]string, error) {
	available, err := broker.Available(context.Background())
	if err == nil && len(available) == 0 {
		available = []string{""}
	}
	return available, err
})

// eachVersion runs a test on every version of the broker, whose nodes start at
// the same time.
func eachVersion(t *testing.T, run func(t *testing.T, version string)) {
	all, err := versions()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < len(broker.Series) {
		t.Logf("NOT RUN on all of %v: there is no Docker, and one version %v", broker.Series, all)
	}
	for _, version := range all {
		go starting(version)() // the first test that wants it has the error
	}
	for _, version := range all {
		t.Run("RabbitMQ "+version, func(t *testing.T) { run(t, version) })
	}
}

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

func nodeOf(t *testing.T, version string) *node {
	t.Helper()
	n, err := starting(version)()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func startNode(version string) (*node, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	b, err := broker.Start(ctx, broker.Options{Version: version, Name: "rehop-connection"})
	if err != nil {
		return nil, err
	}
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{b.AMQPURL()}})
	if err == nil {
		defer conn.Close()
		err = topology.Declare(ctx, conn, killedQueue, stoppedQueue)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close(ctx))
	}
	return &node{b, time.Now()}, nil
}

func closeNodes(ctx context.Context) []error {
	nodes.Lock()
	defer nodes.Unlock()
	var errs []error
	for _, version := range slices.Sorted(maps.Keys(nodes.byVersion)) {
		n, err := nodes.byVersion[version]()
		if err != nil {
			continue // reported by the tests that wanted it
		}
		if err := n.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("broker %s: %w", version, err))
		}
	}
	return errs
}

// aged waits until the queues of a node may be killed.
func (n *node) aged(t *testing.T) {
	t.Helper()
	select {
	case <-time.After(time.Until(n.declared.Add(youngQueue))):
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

// as returns the node's URL with another user, another address or both, where
// they are not empty.
func (n *node) as(user, password, host string) string {
	u, err := url.Parse(n.AMQPURL())
	if err != nil {
		panic(err) // the broker's own URL
	}
	if user != "" {
		u.User = url.UserPassword(user, password)
	}
	if host != "" {
		u.Host = host
	}
	return u.String()
}

// ctl runs rabbitmqctl.
func (n *node) ctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := n.Exec(context.WithoutCancel(t.Context()), append([]string{"rabbitmqctl", "--silent"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// must fails the test if a verb of a broker does.
func must(t *testing.T, verb string, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 90*time.Second)
	defer cancel()
	if err := do(ctx); err != nil {
		t.Fatalf("%s: %v", verb, err)
	}
}
