package cluster

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
)

// 200 work queues, 1,200 quorum queues in all, are declared by 20 clients at a
// time, as when all of a service's processes start, and again; with -orderly by
// one client before that. They stay until the end of the cluster, so that this file must
// be the last one with tests.
func TestManyWorkQueues(t *testing.T) {
	if why := absent(); why != "" {
		t.Log("NOT RUN:", why)
		return
	}
	table.Cell(t, ruleMany, version, "quorum")
	b := sharedCluster(t)
	var specs []topology.Spec
	for i := range 200 {
		specs = append(specs, topology.WorkQueue{Name: fmt.Sprintf("work.%03d", i), Waits: delay.Default()})
	}
	connect := func() *connection.Conn {
		conn, err := connection.Open(t.Context(), connection.Config{URLs: b.AMQPURLs()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	measure := func(what string, conns ...*connection.Conn) {
		t.Helper()
		began := time.Now()
		var wg sync.WaitGroup
		for _, conn := range conns {
			wg.Go(func() {
				if err := topology.Declare(t.Context(), conn, specs...); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			})
		}
		wg.Wait()
		took := time.Since(began).Round(100 * time.Millisecond)
		t.Logf("%s: %v", what, took)
		table.Note("200 work queues, %s: %v", what, took)
	}
	var conns []*connection.Conn
	for range 20 {
		conns = append(conns, connect())
	}
	if *orderly != "" {
		measure("first", conns[0])
		measure("again", conns[0])
		if err := topology.DeleteAll(t.Context(), conns[0], specs...); err != nil {
			t.Error(err)
		}
	}
	measure("first, by 20 clients at a time", conns...)
	measure("again, by 20 clients at a time", conns...)
}
