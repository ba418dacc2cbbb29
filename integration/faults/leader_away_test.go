package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/internal/ask"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// leaderFault is what happens to the leader of a quorum queue. The broker answers a look at the queue then that it
// holds nothing and has no consumers.
type leaderFault struct {
	name       string
	begin, end string // Erlang, of the process's registered name
	silent     bool   // the broker waits for the leader, which the time of its answer tells
}

var leaderFaults = []leaderFault{
	{"it does not answer", "sys:suspend(whereis(%[1]s))", "sys:resume(whereis(%[1]s))", true},
	{"it is down", "ra:stop_server(quorum_queues, {%[1]s, node()})", "ra:restart_server(quorum_queues, {%[1]s, node()})", false},
}

func (f leaderFault) of(t *testing.T, n *nodes.Node, queue string) (heal func()) {
	t.Helper()
	eval := func(format string) {
		t.Helper()
		if _, err := n.Exec(context.Background(), "rabbitmqctl", "eval", fmt.Sprintf(format+".", fmt.Sprintf("list_to_atom(%q)", "%2F_"+queue))); err != nil {
			t.Fatal(err)
		}
	}
	eval(f.begin)
	return func() { eval(f.end) }
}

// A queue whose leader is away is not empty, and nobody's tool deletes it.
func TestNothingIsDeletedWhileALeaderIsAway(t *testing.T) {
	for _, tt := range []struct {
		what   string
		full   func(w topology.WorkQueue) string // the queue with messages
		delete func(ctx context.Context, conn *connection.Conn, w topology.WorkQueue) error
	}{
		{
			"Delete",
			func(w topology.WorkQueue) string { return w.Name },
			func(ctx context.Context, conn *connection.Conn, w topology.WorkQueue) error {
				return topology.Delete(ctx, conn, w)
			},
		},
		{
			"DeleteWaits",
			func(w topology.WorkQueue) string { return route.WaitQueue(w.Name, 1) },
			func(ctx context.Context, conn *connection.Conn, w topology.WorkQueue) error {
				shorter := w
				shorter.Waits = nil
				return topology.DeleteWaits(ctx, conn, w, shorter)
			},
		},
	} {
		for _, version := range versions {
			for _, fault := range leaderFaults {
				t.Run(tt.what+"/"+version+"/"+fault.name, func(t *testing.T) {
					t.Parallel()
					n := pool.Of(t, version)
					conn := open(t, n, connection.Config{})
					w := topology.WorkQueue{Name: fmt.Sprintf("leader.%d", time.Now().UnixNano()), Type: topology.Quorum, Waits: []time.Duration{time.Hour}}
					plan, err := topology.DeclarePlan(t.Context(), conn, w)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { deleteAll(t, conn, plan) })
					if tt.what == "DeleteWaits" {
						bare := w
						bare.Waits = nil
						if err := topology.Declare(t.Context(), conn, bare); err != nil {
							t.Fatal(err)
						}
					}
					out, err := producer.New(conn, producer.Config{})
					if err != nil {
						t.Fatal(err)
					}
					defer out.Close()
					for i := range 20 {
						if _, err := out.Publish(t.Context(), producer.Message{RoutingKey: tt.full(w), ID: fmt.Sprint(i)}); err != nil {
							t.Fatal(err)
						}
					}
					depth := func() ask.Depth {
						s, err := conn.Session(t.Context(), connection.Consume)
						if err != nil {
							t.Fatal(err)
						}
						defer s.Close()
						d, err := ask.DepthOf(t.Context(), s, tt.full(w))
						if err != nil {
							t.Fatal(err)
						}
						return d
					}
					heal := fault.of(t, n, tt.full(w))
					if d := depth(); d.Ready != 0 {
						t.Fatalf("the broker answers %+v: without the zeros this test shows nothing", d)
					} else if !d.Unknown && fault.silent {
						t.Errorf("the answer %+v stands for a silence, and is taken for a depth", d)
					}
					beside, err := conn.Session(t.Context(), connection.Consume)
					if err != nil {
						t.Fatal(err)
					}
					if err = tt.delete(t.Context(), conn, w); err == nil || !strings.Contains(err.Error(), "nobody knows what it holds") {
						t.Errorf("%s: %v", tt.what, err)
					}
					if err := beside.Err(); err != nil {
						t.Errorf("%s has ended the sessions of others: %v", tt.what, err)
					}
					_ = beside.Close()
					heal()
					poll.Until(t, time.Minute, "the messages are seen again", func() bool { return depth().Ready == 20 })
					n.DeadLetterWorkers(t)
				})
			}
		}
	}
}
