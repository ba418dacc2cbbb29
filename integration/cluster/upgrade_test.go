package cluster

import (
	"context"
	"strings"
	"testing"

	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/topology"
)

// Two processes share shards while the nodes of a cluster go into maintenance and restart, one after the
// other, while all of them stop and come back as another version, and while they restart once more.
func TestShardsThroughAnUpgrade(t *testing.T) {
	if absent() != "" {
		return // TestMain says so
	}
	const from = "4.0"
	table.Cell(t, ruleUpgraded, version, "quorum")
	c := startTrio(t, from)
	s := startKeyed(t, c, ruleUpgraded)
	s.flow(t, "at first")
	s.rolls(t, c)
	if out, err := c.Exec(t.Context(), "rabbitmqctl", "enable_feature_flag", "--opt-in", "khepri_db"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.flow(t, "on Khepri")
	s.measure(t, "upgraded from "+c.Version()+" with all nodes stopped", func() {
		if err := c.Upgrade(t.Context(), version); err != nil {
			t.Fatal(err)
		}
		s.flow(t, "after the upgrade")
	})
	if !strings.HasPrefix(c.Version(), version+".") {
		t.Fatalf("the version is %s, want %s", c.Version(), version)
	}
	if err := topology.Declare(t.Context(), c.conn, s.shards); err != nil { // as a process does that starts now
		t.Error(err)
	}
	s.rolls(t, c)
	s.end(t)
}

// rolls puts one node after the other into maintenance and restarts it, as an upgrade node by node does.
func (s *keyed) rolls(t *testing.T, c *trio) {
	t.Helper()
	for _, n := range c.Nodes() {
		s.measure(t, c.Version()+", drained and restarted "+n.Name(), func() {
			nodes.Must(t, "drain", func(ctx context.Context) error {
				_, err := n.Exec(ctx, "rabbitmq-upgrade", "drain")
				return err
			})
			nodes.Must(t, "stop", n.Stop)
			nodes.Must(t, "start", n.Start)
			nodes.AwaitMajority(t, n)
			s.flow(t, "after a restart")
		})
	}
}
