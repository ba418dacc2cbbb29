package connection_test

import (
	"context"
	"net/url"
	"sync"
	"testing"

	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/topology"
)

// pool has a broker of each version for the whole package.
var pool = nodes.NewPool("rehop-connection", func(string) []topology.Spec {
	all := []topology.Spec{killedQueue, stoppedQueue, plainQueue}
	for i := range restartedQueues {
		all = append(all, restartedQueue(i))
	}
	return all
})

// node is a broker of one version.
type node struct{ *nodes.Node }

func nodeOf(t *testing.T, version string) *node {
	t.Helper()
	return &node{pool.Of(t, version)}
}

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
		t.Logf("NOT RUN on all of %v but on %v: %s", broker.Series, all, broker.WhyNotAll())
	}
	for _, version := range all {
		go func() { _, _ = pool.Start(version) }() // the first test that wants it has the error
	}
	for _, version := range all {
		t.Run("RabbitMQ "+version, func(t *testing.T) { run(t, version) })
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
