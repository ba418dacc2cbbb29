package sim

import (
	"testing"
	"time"

	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
)

// once are plans that have shown a violation once. They are written out, because a
// seed means another plan whenever newPlan changes.
var once = map[string]plan{
	"waits expire in a queue that does not answer": {
		seed: 1015, version: "4.0", heartbeat: 10 * time.Second, kind: topology.Quorum,
		schedules: []delay.Schedule{{2 * time.Second, 3 * time.Second}}, handlers: handlers{fail: 900},
		producers: []producerPlan{{callers: 1, messages: []messagePlan{
			{n: 1, at: time.Second}, {n: 2, at: 2 * time.Second}, {n: 3, at: 3 * time.Second}, {n: 4, at: 4 * time.Second}, {n: 5, at: 5 * time.Second},
		}}},
		consumers: []consumerPlan{{concurrency: 2, lives: []life{{}}}},
		faults: []fault{
			{kind: refuse, at: 5500 * time.Millisecond, lasts: time.Minute, target: ".wait.1"},
			{kind: stop, at: 20 * time.Second, lasts: 20 * time.Second},
		},
	},
}

func TestOnceFailed(t *testing.T) {
	for name, p := range once {
		t.Run(name, func(t *testing.T) {
			if r := runPlan(t, p); len(r.violations) > 0 {
				t.Errorf("%v\n%s\n%s", p, r.text(), r.stories)
			}
		})
	}
}
