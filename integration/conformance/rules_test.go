package conformance

import (
	"slices"
	"testing"

	"github.com/rehop/rehop/integration/matrix"
	"github.com/rehop/rehop/topology"
)

// rules are all there are; each is tested in every column that does not except it.
var rules = append(slices.Concat(serviceRules, batchRules, argumentRules, shardRules), []matrix.Rule{
	{Name: "success"},
	{Name: "fails k times, then succeeds"},
	{Name: "attempts are 1, 2, 3, ..."},
	{Name: "waits are never early"},
	{Name: "exhausted"},
	{Name: "no waits: one attempt"},
	{Name: "permanent"},
	{Name: "panic", Except: matrix.OncePerEngine},
	{Name: "an error that cannot be read is a failure", Except: matrix.OncePerEngine},
	{Name: "handler timeout", Except: matrix.OncePerEngine},
	{Name: "discard", Except: matrix.OncePerEngine},
	{Name: "Hold holds"},
	{Name: "HoldFor: in its place, the same attempt, never early"},
	{Name: "a message held through lost connections stops nobody"},
	{Name: "RetryAfter, then a failure"},
	{Name: "RetryAfter beyond the longest wait"},
	{Name: "delay: exact, to a queue and to an exchange"},
	{Name: "delay: RetryAfter is exact", Except: exact4},
	{Name: "delay: what finds no target is stranded"},
	{Name: "delay: refused before the network", Except: matrix.OnlyNewest},
	{Name: "delay: by any key, or refused", Except: matrix.OncePerEngine},
	{Name: "delay: a target with a limit is refused"},
	{Name: "republish asked for", Except: matrix.OnlyQuorum4},
	{Name: "nack refused", Except: exceptNack},

	{Name: "crashes are not attempts"},
	{Name: "crash loop ends in the DLQ", Except: matrix.OnlyQuorum},
	{Name: "crash loop is unbounded", Except: onlyClassic},
	{Name: "crash loop spares its neighbours", Except: matrix.OnlyQuorum},
	{Name: "suspects that stay in hand bring one untried at a time", Except: matrix.OnlyQuorum},
	{Name: "a message that cannot be handed over stops its queue alone", Except: matrix.Only4},
	{Name: "a message that cannot be handed over takes no neighbour along", Except: matrix.OnlyQuorum4},
	{Name: "consumer timeout: counted and bounded, no socket lost", Except: only43Quorum},
	{Name: "consumer timeout: counted for each of two copies", Except: only43Quorum},

	{Name: "routing key is the producer's"},
	{Name: "CC and BCC receivers get it once"},
	{Name: "properties and headers unchanged"},
	{Name: "expiration does not shorten waits"},
	{Name: "expired in the work queue"},
	{Name: "long wait does not block a short one"},
	{Name: "forged counts do not count"},
	{Name: "letter moved back by hand starts anew"},

	{Name: "changed schedule, both alive"},
	{Name: "added wait, messages waiting"},
	{Name: "removed wait, messages waiting"},
	{Name: "settler: after a changed wait"},
	{Name: "two schedules declared at once", Except: matrix.OnlyQuorum4},
	{Name: "engine changed, messages in flight", Except: matrix.OnlyQuorum4},
	{Name: "declare again: a repair makes no letters"},
	{Name: "3.x form is accepted on 4.x", Except: matrix.OnlyQuorum4},
	{Name: "3.x form: the advised policy works", Except: exceptExec},

	{Name: "consumer of the DLQ"},
	{Name: "letter moved by the broker says why"},
	{Name: "RetryAfter where nothing waits is held so long"},
	{Name: "a queue that others declared is refused"},
	{Name: "a stream is refused", Except: onlyClassic},
	{Name: "foreign queue, nothing known"},
	{Name: ruleByHand},
	{Name: ruleByPolicy, Except: exceptRabbitmqctl},
	{Name: "foreign queue with a DLQ"},
	{Name: "foreign queue with waits"},
	{Name: "copies that the wait nacks are sent again"},
	{Name: "letters that the DLQ refuses are held"},
	{Name: "repeated warnings are said once and counted"},
	{Name: "a copy that fits in no frame is held", Except: matrix.OncePerEngine},
	{Name: "small frames: refused before they are sent, letters cut to them", Except: matrix.OncePerEngine},
	{Name: "a wait that does not answer holds no other up", Except: exceptRabbitmqctl},

	{Name: "priority: highest first", Except: exceptPriority},
	{Name: "priority: refused with a reason", Except: onlyWithoutPriority},
	{Name: "priority: kept on every path"},
	{Name: "priority: the order of 1,000, before and after waits and dead letters", Except: exceptPriority},
	{Name: "lanes: the order of 1,000, before and after waits and dead letters", Except: matrix.OncePerEngine},
	{Name: "lanes: one that arrives goes ahead of all that wait", Except: matrix.OncePerEngine},

	{Name: "publish: confirmed"},
	{Name: "publish: returned"},
	{Name: "publish: nacked"},
	{Name: "publish: refused harms no other"},
	{Name: "session: acks beside its close harm no other", Except: matrix.OncePerEngine},
	{Name: "publish: missing exchange harms no other"},
	{Name: "publish: ctx ends a write nobody reads", Except: matrix.OnlyNewest},
	{Name: "publish: fallback takes it"},
	{Name: "publish: a letter with the user-id of another login", Except: matrix.OncePerEngine},
	{Name: "publish: both fail"},
	{Name: "publish: 64 goroutines"},
	{Name: "publish: a queue that does not answer holds no other up", Except: exceptRabbitmqctl},
	{Name: "publish: a queue that refused is published to again", Except: exceptRabbitmqctl},
	{Name: "batch: confirmed, in order, larger than the window"},
	{Name: "batch: each message has its own outcome"},
	{Name: "batch: a faulty message stops all", Except: matrix.OnlyNewest},
	{Name: "batch: fallback takes what failed"},
	{Name: "batch: ctx ends it where nobody reads", Except: matrix.OnlyNewest},

	{Name: "drain"},
	{Name: "stop: what was acked does not come back", Except: exceptRabbitmqctl},
	{Name: "drain timeout spends no attempt"},
	{Name: "drain: a handler that ignores its ctx is named", Except: matrix.OnlyNewest},
	{Name: "late settle after a cut"},
	{Name: "late settle after a close by the broker", Except: exceptManagement},
	{Name: "health: not running, starting, stopping", Except: matrix.OnlyNewest},
	{Name: "health: idle, busy and waiting are healthy"},
	{Name: "health: asking draws no message"},
	{Name: "health: permission to read is enough", Except: exceptRabbitmqctl},
	{Name: "health: queue deleted and declared again"},
	{Name: "permissions: declaring", Except: exceptRabbitmqctlOncePerEngine},
	{Name: "permissions: publishing", Except: exceptRabbitmqctlOncePerEngine},
	{Name: "permissions: consuming", Except: exceptRabbitmqctl},
	{Name: "permissions: consuming by republish in place of nack", Except: exceptRabbitmqctlByNack},
	{Name: "permissions: consuming lanes and shards", Except: exceptRabbitmqctlOncePerEngine},
	{Name: "permissions: RetryAfter by exact delays", Except: exceptRabbitmqctlOncePerEngine},
	{Name: "permissions: a service with all roles", Except: exceptRabbitmqctlOncePerEngine},
	{Name: "permissions: of any name", Except: exceptRabbitmqctlOncePerEngine},
	{Name: "permissions: waits that nobody carries", Except: exceptRabbitmqctl},
	{Name: "policies that break a promise are named", Except: exceptRabbitmqctl},
	{Name: "errors say what to do"},
}...)

func onlyClassic(_, queueType string) string {
	if queueType != "classic" {
		return "classic queues only"
	}
	return ""
}

func exceptNack(version, queueType string) string {
	if matrix.OnlyQuorum4(version, queueType) == "" {
		return "the engine nack is the default here"
	}
	return ""
}

func exceptPriority(version, queueType string) string {
	if queueType == "quorum" && version != "4.3" {
		return "quorum queues have strict priorities from 4.3 on"
	}
	return ""
}

func onlyWithoutPriority(version, queueType string) string {
	if exceptPriority(version, queueType) == "" {
		return "not refused here"
	}
	return ""
}

// everywhere runs a test of one or more rules in every column that expects
// one of them: version and queue type may both matter.
func everywhere(t *testing.T, test func(e *env), rules ...string) {
	t.Helper()
	inColumns(t, func(_, _ string) string { return "" }, test, rules)
}

// onEveryEngine runs a test of what the SDK decides, and the broker only carries out: once
// with each engine, and so once on each version.
func onEveryEngine(t *testing.T, test func(e *env), rules ...string) {
	t.Helper()
	inColumns(t, matrix.OncePerEngine, test, rules)
}

// onNewest runs a test in one column: neither version nor queue type can matter, as what it
// tests acts before the broker, or beside it.
func onNewest(t *testing.T, test func(e *env), rules ...string) {
	t.Helper()
	inColumns(t, matrix.OnlyNewest, test, rules)
}

// inColumns runs a test in every column that except leaves, and that expects one of the rules.
func inColumns(t *testing.T, except func(version, queueType string) string, test func(e *env), rules []string) {
	t.Helper()
	t.Parallel()
	for _, s := range suites {
		for _, version := range matrix.Versions {
			for _, queueType := range matrix.Types {
				if except(version, queueType) == "" {
					s.run(t, version, queueType, test, rules)
				}
			}
		}
	}
}

func (s suite) run(t *testing.T, version, queueType string, test func(e *env), rules []string) {
	t.Helper()
	var expected []string
	for _, rule := range rules {
		if s.table.Expects(rule, version, queueType) {
			expected = append(expected, rule)
		}
	}
	if len(expected) == 0 {
		return
	}
	t.Run(s.prefix+version+" "+queueType, func(t *testing.T) {
		t.Parallel()
		for _, rule := range expected {
			s.table.Cell(t, rule, version, queueType)
		}
		s.nodes[version].gate.enter(t)
		test(newEnv(t, s, version, topology.QueueType(queueType)))
	})
}
