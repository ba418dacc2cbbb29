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
	"a Producer is shut down while its messages have no answer": {
		seed: 9, version: "4.3", heartbeat: 10 * time.Second, kind: topology.Quorum,
		schedules: []delay.Schedule{{time.Minute}},
		producers: []producerPlan{{callers: 1, shutdowns: []span{{2 * time.Second, time.Second}}, messages: []messagePlan{
			{n: 1, at: time.Second, how: async}, {n: 2, at: time.Second, how: async},
		}}},
		consumers: []consumerPlan{{concurrency: 2, lives: []life{{}}}},
		faults:    []fault{{kind: refuse, at: 500 * time.Millisecond, lasts: 20 * time.Second}},
	},
	"callers with deadlines have a fallback, and their messages no answer": {
		seed: 10, version: "4.3", heartbeat: 10 * time.Second, kind: topology.Quorum,
		schedules: []delay.Schedule{{time.Minute}},
		producers: []producerPlan{{callers: 2, fallback: true, reliable: true, messages: []messagePlan{
			{n: 1, at: time.Second, deadline: 300 * time.Millisecond}, {n: 2, at: time.Second, deadline: 300 * time.Millisecond},
		}}},
		consumers: []consumerPlan{{concurrency: 2, lives: []life{{}}}},
		faults:    []fault{{kind: refuse, at: 500 * time.Millisecond, lasts: 20 * time.Second}},
	},
	"a clock is days behind that of the process before": {
		seed: 11, version: "4.3", heartbeat: 10 * time.Second, kind: topology.Quorum, engine: topology.EngineRepublish,
		schedules: []delay.Schedule{{10 * time.Second, 20 * time.Second}}, handlers: handlers{fail: 900},
		producers: []producerPlan{{callers: 1, messages: inARow(1, 8, time.Second)}},
		consumers: []consumerPlan{{concurrency: 1, lives: []life{{stops: 10 * time.Second, ahead: 40 * 24 * time.Hour}, {starts: 12 * time.Second}}}},
	},
	"a carrier's clock is days behind that of the process before": {
		seed: 12, version: "3.10", heartbeat: 10 * time.Second, kind: topology.Quorum, engine: topology.EngineCarry,
		schedules: []delay.Schedule{{10 * time.Second, 20 * time.Second}}, handlers: handlers{fail: 900},
		producers: []producerPlan{{callers: 1, messages: inARow(1, 8, time.Second)}},
		consumers: []consumerPlan{{concurrency: 1, lives: []life{{stops: 10 * time.Second, ahead: 40 * 24 * time.Hour}, {starts: 12 * time.Second}}}},
	},
	// Each time that a message comes to the other process its date must not move.
	"clocks are seconds apart, and messages come back after longer than all waits": {
		seed: 13, version: "4.3", heartbeat: 10 * time.Second, kind: topology.Quorum, engine: topology.EngineRepublish,
		schedules: []delay.Schedule{{time.Second, 2 * time.Second}}, handlers: handlers{later: 1000},
		producers: []producerPlan{{callers: 1, messages: inARow(1, 100, 100*time.Millisecond)}},
		consumers: []consumerPlan{
			{concurrency: 1, lives: []life{{ahead: 16 * time.Second}}},
			{concurrency: 1, lives: []life{{}}},
		},
	},
	"messages have a key of a wait beside their own": {
		seed: 14, version: "4.3", heartbeat: 10 * time.Second, kind: topology.Quorum, calm: true,
		schedules: []delay.Schedule{{3 * time.Second, 300 * time.Millisecond}}, handlers: handlers{fail: 900},
		producers: []producerPlan{{callers: 1, also: alsoPlan{"BCC", "orders@1"}, messages: inARow(1, 8, time.Second)}},
		consumers: []consumerPlan{{concurrency: 2, lives: []life{{}}}},
	},
	// It is the latency that leaves copies without an answer, and no fault.
	"processes stop while copies are on their way": {
		seed: 15, version: "4.0", heartbeat: 10 * time.Second, kind: topology.Classic, latency: 100 * time.Millisecond, pointers: true,
		schedules: []delay.Schedule{{time.Minute}}, handlers: handlers{fail: 1000},
		producers: []producerPlan{{callers: 20, messages: inARow(1, 40, 25*time.Millisecond)}},
		consumers: []consumerPlan{{concurrency: 20, lives: []life{{stops: 1500 * time.Millisecond}, {starts: 2 * time.Second}}}},
	},
	"handlers that do not heed a stop return when it is over": {
		seed: 16, version: "4.3", heartbeat: 10 * time.Second, kind: topology.Quorum, engine: topology.EngineRepublish,
		schedules: []delay.Schedule{{time.Second}}, handlers: handlers{fail: 1000, deaf: 1000, slowness: time.Minute},
		producers: []producerPlan{{callers: 20, messages: inARow(1, 40, 25*time.Millisecond)}},
		consumers: []consumerPlan{{concurrency: 20, drain: time.Second, lives: []life{{stops: 2 * time.Second}, {starts: 3 * time.Minute}}}},
	},
	"callers with short deadlines find no broker": {
		seed: 17, version: "4.3", heartbeat: 10 * time.Second, kind: topology.Quorum,
		schedules: []delay.Schedule{{time.Minute}},
		producers: []producerPlan{{callers: 20, declares: true, awaits: true, messages: inARow(1, 40, time.Second)}},
		consumers: []consumerPlan{{concurrency: 2, lives: []life{{starts: time.Minute}}}},
		faults:    []fault{{kind: stop, at: 0, lasts: 40 * time.Second}},
	},
	"a process has fewer lanes than those that are declared": {
		seed: 18, version: "4.0", heartbeat: 10 * time.Second, kind: topology.Quorum, calm: true,
		schedules: []delay.Schedule{{time.Minute}},
		producers: []producerPlan{{callers: 1, messages: inARow(1, 1, time.Second)}},
		consumers: []consumerPlan{{concurrency: 2, lives: []life{{}}}},
		lanes:     lanesPlan{tickets: 9, at: time.Second, others: []string{"vip", "bulk"}, lasts: time.Minute},
	},
	"a process has one dead-letter queue for lanes that have three": {
		seed: 19, version: "4.0", heartbeat: 10 * time.Second, kind: topology.Quorum, calm: true,
		schedules: []delay.Schedule{{time.Minute}},
		producers: []producerPlan{{callers: 1, messages: inARow(1, 1, time.Second)}},
		consumers: []consumerPlan{{concurrency: 2, lives: []life{{}}}},
		lanes:     lanesPlan{tickets: 9, at: time.Second, lasts: time.Minute},
	},
	"a message ends each process whose handler gets it": {
		seed: 20, version: "4.3", heartbeat: 10 * time.Second, kind: topology.Quorum, calm: true, crasher: 4,
		schedules: []delay.Schedule{{time.Second}}, handlers: handlers{slow: 1000, slowness: time.Minute},
		producers: []producerPlan{{callers: 1, messages: inARow(1, 10, 0)}},
		consumers: []consumerPlan{{concurrency: 10, lives: []life{{}}}},
	},
	"many messages of a key come at once": {
		seed: 21, version: "4.3", heartbeat: 10 * time.Second, kind: topology.Quorum, calm: true, keys: 2,
		schedules: []delay.Schedule{{time.Second}}, handlers: handlers{slow: 1000, slowness: time.Minute},
		producers: []producerPlan{{callers: 1, messages: inARow(1, 20, 0)}},
		consumers: []consumerPlan{{concurrency: 10, perKey: 3, lives: []life{{}}}},
	},
	"messages fail whose keys keep their order": {
		seed: 22, version: "4.3", heartbeat: 10 * time.Second, kind: topology.Quorum, calm: true, ordered: true, keys: 2,
		schedules: []delay.Schedule{{time.Second, time.Minute, 5 * time.Minute}}, handlers: handlers{fail: 700},
		producers: []producerPlan{{callers: 1, messages: inARow(1, 20, 0)}},
		consumers: []consumerPlan{{concurrency: 4, perKey: 1, inPlace: true, lives: []life{{}}}},
	},
}

// inARow are messages from one number on, at equal intervals.
func inARow(from, messages int, every time.Duration) (all []messagePlan) {
	for i := range messages {
		all = append(all, messagePlan{n: from + i, at: time.Second + time.Duration(i)*every})
	}
	return all
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
