package examples

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
)

// The numbers of queues and exchanges in docs/broker.md, section Limits.
func TestNumbersOfQueues(t *testing.T) {
	old, middle, now := connection.Version{Major: 3, Minor: 10}, connection.Version{Major: 4}, connection.Version{Major: 4, Minor: 3}
	queue := topology.WorkQueue{Name: "orders", Waits: delay.Default()}
	for _, tt := range []struct {
		rule    string
		version connection.Version
		spec    topology.Spec
		want    string
	}{
		{"a work queue with W waits has W + 2 queues", now, queue, "queues: 6, exchanges: 7"},
		{"a work queue on 3.x has five exchanges", old, queue, "queues: 6, exchanges: 5"},
		{"a lane is a work queue", now, topology.Lanes{Name: "sms", Waits: delay.Default(), Lanes: []topology.Lane{{Name: "vip"}, {Name: "bulk"}}}, "queues: 12, "},
		{"C shards have C x (W + 1) + 1 queues", now, topology.Shards{Name: "bills", Count: 8, Waits: delay.Default()}, "queues: 41, exchanges: 56"},
		{"exact delays", now, topology.Delays{}, "queues: 29, "},
		{"exact delays on 4.0", middle, topology.Delays{}, "queues: 57, "},
	} {
		plan, err := topology.NewPlan(tt.version, tt.spec)
		check(err)
		if head, _, _ := strings.Cut(fmt.Sprint(plan), "\n"); !strings.Contains(head, "("+tt.want) {
			t.Errorf("%s: %s, want %s", tt.rule, head, tt.want)
		}
	}
}
