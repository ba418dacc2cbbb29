package sim

import (
	"testing"
	"time"

	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
)

// once are plans that have shown a violation once, or that newPlan makes too rarely.
// They are written out, because a seed means another plan whenever newPlan changes.
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
	// Each return counts towards the delivery limit, four in an hour.
	"a message is held for a day": {
		seed: 3, version: "4.0", heartbeat: 10 * time.Second, kind: topology.Quorum,
		schedules: []delay.Schedule{{time.Minute}}, away: span{0, 24 * time.Hour},
		producers: []producerPlan{{callers: 1, messages: []messagePlan{{n: 1, at: time.Second}, {n: 2, at: 2 * time.Second}}}},
		consumers: []consumerPlan{{concurrency: 2, lives: []life{{}}}},
	},
	"an exchange is missing when a session is lost": {
		seed: 4, version: "4.0", heartbeat: 10 * time.Second, kind: topology.Quorum,
		schedules: []delay.Schedule{{time.Minute}}, handlers: handlers{fail: 500},
		producers: []producerPlan{{callers: 1, messages: []messagePlan{{n: 1, at: time.Second}, {n: 2, at: 2 * time.Second}}}},
		consumers: []consumerPlan{{concurrency: 2, lives: []life{{}}}},
		faults: []fault{
			{kind: deleteX, at: 5 * time.Second, lasts: time.Second, target: ".rehop.unrouted", ours: true},
			{kind: cut, at: 10 * time.Second},
		},
	},
	"messages of PublishAsync lose their connection before their answers": {
		seed: 6, version: "4.3", heartbeat: 10 * time.Second, kind: topology.Quorum,
		schedules: []delay.Schedule{{time.Minute}},
		producers: []producerPlan{{callers: 1, window: 2, messages: []messagePlan{
			{n: 1, at: time.Second, how: async}, {n: 2, at: time.Second, how: async}, {n: 3, at: time.Second, how: async},
			{n: 4, at: time.Second, how: async}, {n: 5, at: time.Second, how: async}, {n: 6, at: time.Second, how: async},
		}}},
		consumers: []consumerPlan{{concurrency: 2, lives: []life{{}}}},
		faults: []fault{
			{kind: refuse, at: 500 * time.Millisecond, lasts: 20 * time.Second},
			{kind: cut, at: 5 * time.Second, target: " publish"},
		},
	},
	"a window is full for an instant, and again a minute later": {
		seed: 7, version: "4.3", heartbeat: 10 * time.Second, kind: topology.Quorum,
		schedules: []delay.Schedule{{time.Minute}},
		producers: []producerPlan{{callers: 1, window: 1, fallback: true, after: 300 * time.Millisecond, messages: []messagePlan{
			{n: 1, at: time.Second, how: async}, {n: 2, at: time.Second, how: async}, {n: 3, at: time.Second, how: async},
			{n: 4, at: time.Minute, how: async}, {n: 5, at: time.Minute, how: async}, {n: 6, at: time.Minute, how: async},
		}}},
		consumers: []consumerPlan{{concurrency: 2, lives: []life{{}}}},
	},
	"messages fail while the exchange of their waits is missing": {
		seed: 8, version: "4.3", heartbeat: 10 * time.Second, kind: topology.Quorum,
		schedules: []delay.Schedule{{time.Minute, time.Minute}}, handlers: handlers{fail: 900},
		producers: []producerPlan{{callers: 1, messages: []messagePlan{{n: 1, at: 7 * time.Second}, {n: 2, at: 8 * time.Second}, {n: 3, at: 9 * time.Second}}}},
		consumers: []consumerPlan{{concurrency: 2, lives: []life{{}}}},
		faults:    []fault{{kind: deleteX, at: 5 * time.Second, lasts: time.Second, target: ".rehop.delay", ours: true}},
	},
	// Where nothing breaks, a message that was put off comes back in time.
	"messages are put off": {
		seed: 8, version: "4.3", heartbeat: 10 * time.Second, kind: topology.Quorum, calm: true,
		schedules: []delay.Schedule{{time.Second, 10 * time.Second}}, handlers: handlers{snooze: 900},
		producers: []producerPlan{{callers: 1, messages: []messagePlan{
			{n: 1, at: time.Second}, {n: 2, at: 2 * time.Second}, {n: 3, at: 3 * time.Second}, {n: 4, at: 4 * time.Second}, {n: 5, at: 5 * time.Second},
		}}},
		consumers: []consumerPlan{{concurrency: 2, lives: []life{{}}}},
	},
	// The first wait that the broker brings it to is that of the other schedule, and shorter.
	"a nacked message whose wait is missing comes to a process with another schedule": {
		seed: 2, version: "4.3", heartbeat: 10 * time.Second, kind: topology.Quorum,
		schedules: []delay.Schedule{{time.Minute, 20 * time.Minute}, {10 * time.Minute, 11 * time.Minute, time.Minute}}, handlers: handlers{fail: 1000},
		producers: []producerPlan{{callers: 1, messages: []messagePlan{{n: 1, at: time.Second}}}},
		consumers: []consumerPlan{
			{concurrency: 2, lives: []life{{stops: 70 * time.Second}}},
			{concurrency: 2, lives: []life{{schedule: 1, starts: 75 * time.Second}}},
		},
		faults: []fault{{kind: deleteQueue, at: 30 * time.Second, lasts: 5 * time.Minute, target: ".wait.2"}},
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
