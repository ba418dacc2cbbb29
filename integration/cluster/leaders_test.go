package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/topology"
)

// The broker gives each new queue a leader on the node that leads the fewest queues of all: where the leaders of the queues
// that it has are spread, those of new shards are. Verify says when they are no longer spread, and the command that it names
// spreads them again. Verify sees as much through each node, though each gives another name of a cluster that was given none.
func TestLeadersOfShards(t *testing.T) {
	if absent() != "" {
		return // TestMain says so
	}
	table.Cell(t, ruleLeaders, version, "quorum")
	c := startTrio(t, version)
	conn, err := connection.Open(t.Context(), connection.Config{URLs: c.AMQPURLs(), ManagementURL: c.ManagementURL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if out, err := c.Exec(t.Context(), "rabbitmq-queues", "rebalance", "quorum"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	shards := topology.Shards{Name: "led.by", Count: 6}
	if err := topology.Declare(t.Context(), conn, shards); err != nil {
		t.Fatal(err)
	}
	together := func() (d topology.Difference, found bool) {
		t.Helper()
		drift, err := topology.Verify(t.Context(), conn, shards)
		if err != nil {
			t.Fatal(err)
		}
		if !drift.OK() || len(drift.Unseen) > 0 {
			t.Fatal(drift)
		}
		at := slices.IndexFunc(drift.Differences, func(d topology.Difference) bool { return d.Code == "leaders-together" })
		if at < 0 {
			return d, false
		}
		return drift.Differences[at], true
	}
	if d, found := together(); found {
		t.Errorf("new shards: %+v", d)
	}
	names := map[string]bool{}
	for _, url := range c.AMQPURLs() {
		at, err := connection.Open(t.Context(), connection.Config{URLs: []string{url}, ManagementURL: c.ManagementURL()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { at.Close() })
		names[at.Server().Cluster] = true
		if drift, err := topology.Verify(t.Context(), at, shards); err != nil || len(drift.Unseen) > 0 {
			t.Errorf("through the node %s: %v, %v", at.Server().Cluster, drift, err)
		}
	}
	if len(names) != len(c.Nodes()) {
		t.Errorf("the nodes call the cluster %v: without a name for each this test shows nothing", names)
	}
	n := c.Nodes()[1]
	for _, w := range shards.WorkQueues() {
		c.lead(t, n, w.Name)
	}
	var d topology.Difference
	poll.Until(t, time.Minute, "Verify sees one node lead more than its share", func() (found bool) {
		d, found = together() // of the leaders, one may have been elected anew since
		return found
	})
	if out, err := c.Exec(t.Context(), "sh", "-c", d.Remedy); err != nil {
		t.Fatalf("%s: %v: %s", d.Remedy, err, out)
	}
	poll.Until(t, time.Minute, "the leaders are spread again", func() bool {
		_, found := together()
		return !found
	})
}
