package main

import (
	"testing"

	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/topology"
)

func TestJudge(t *testing.T) {
	const n = 10_000
	w := topology.WorkQueue{Name: "orders"}
	depths := func(work, wait, dead int) map[string]int {
		return map[string]int{w.Name: work, route.WaitQueue(w.Name, 1): wait, w.DeadLetterQueue().Name: dead}
	}
	for _, tt := range []struct {
		rule   string
		at     end
		depths map[string]int
		ok     bool
		back   int
	}{
		{"all published", inWorkQueue, depths(n, 0, 0), true, 0},
		{"one published message is missing", inWorkQueue, depths(n-1, 0, 0), false, 0},
		{"one was published twice", inWorkQueue, depths(n+1, 0, 0), false, 0},
		{"all consumed", consumed, depths(0, 0, 0), true, 0},
		{"a few came back although acked", consumed, depths(16, 0, 0), true, 16},
		{"more than a prefetch was not acked", consumed, depths(maxBack+1, 0, 0), false, 0},
		{"a consumed message is in the wait", consumed, depths(0, 1, 0), false, 0},
		{"all failed", inFirstWait, depths(0, n, 0), true, 0},
		{"a nack was lost", inFirstWait, depths(1, n-1, 0), true, 1},
		{"the ack after a copy was lost", inFirstWait, depths(1, n, 0), true, 1},
		{"one is missing", inFirstWait, depths(0, n-1, 0), false, 0},
		{"one is a dead letter", inFirstWait, depths(0, n-1, 1), false, 0},
	} {
		back, err := judge(w, tt.at, n, tt.depths)
		if (err == nil) != tt.ok || back != tt.back {
			t.Errorf("%s: judge = %d, %v, want %d and an error: %t", tt.rule, back, err, tt.back, !tt.ok)
		}
	}
}
