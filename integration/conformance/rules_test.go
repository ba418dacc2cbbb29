package conformance

import (
	"testing"

	"github.com/rehop/rehop/integration/matrix"
	"github.com/rehop/rehop/topology"
)

// table lists every rule; each is tested in every column that does not except it.
var table = matrix.New("conformance",
	matrix.Rule{Name: "success"},
	matrix.Rule{Name: "fails k times, then succeeds"},
	matrix.Rule{Name: "attempts are 1, 2, 3, ..."},
	matrix.Rule{Name: "waits are never early"},
	matrix.Rule{Name: "exhausted"},
	matrix.Rule{Name: "no waits: one attempt"},
	matrix.Rule{Name: "permanent"},
	matrix.Rule{Name: "panic"},
	matrix.Rule{Name: "an error that cannot be read is a failure"},
	matrix.Rule{Name: "handler timeout"},
	matrix.Rule{Name: "discard"},
	matrix.Rule{Name: "requeue holds"},
	matrix.Rule{Name: "RetryAfter, then a failure"},
	matrix.Rule{Name: "RetryAfter beyond the longest wait"},
	matrix.Rule{Name: "republish asked for", Except: matrix.OnlyQuorum4},
	matrix.Rule{Name: "ladder refused", Except: exceptLadder},

	matrix.Rule{Name: "crashes are not attempts"},
	matrix.Rule{Name: "crash loop ends in the DLQ", Except: matrix.OnlyQuorum},
	matrix.Rule{Name: "crash loop is unbounded", Except: onlyClassic},
	matrix.Rule{Name: "crash loop spares its neighbours", Except: matrix.OnlyQuorum},

	matrix.Rule{Name: "routing key is the producer's"},
	matrix.Rule{Name: "CC and BCC receivers get it once"},
	matrix.Rule{Name: "properties and headers unchanged"},
	matrix.Rule{Name: "expiration does not shorten waits"},
	matrix.Rule{Name: "expired in the work queue"},
	matrix.Rule{Name: "long wait does not block a short one"},
	matrix.Rule{Name: "forged counts do not count"},
	matrix.Rule{Name: "letter moved back by hand starts anew"},

	matrix.Rule{Name: "changed wait is a conflict"},
	matrix.Rule{Name: "added wait, messages waiting"},
	matrix.Rule{Name: "removed wait, messages waiting"},
	matrix.Rule{Name: "two schedules declared at once", Except: matrix.OnlyQuorum4},
	matrix.Rule{Name: "engine changed, messages in flight", Except: matrix.OnlyQuorum4},
	matrix.Rule{Name: "3.x form is accepted on 4.x", Except: matrix.OnlyQuorum4},
	matrix.Rule{Name: "3.x form: the advised policy works", Except: exceptExec},

	matrix.Rule{Name: "consumer of the DLQ"},
	matrix.Rule{Name: "letter moved by the broker says why"},
	matrix.Rule{Name: "RetryAfter where nothing waits is held so long"},
	matrix.Rule{Name: "a queue that others declared is refused"},
	matrix.Rule{Name: "foreign queue, nothing known"},
	matrix.Rule{Name: "foreign queue with a DLQ"},
	matrix.Rule{Name: "foreign queue with waits"},
	matrix.Rule{Name: "copies that the wait nacks are sent again"},
	matrix.Rule{Name: "a wait that does not answer holds no other up", Except: exceptRabbitmqctl},

	matrix.Rule{Name: "priority: highest first", Except: exceptPriority},
	matrix.Rule{Name: "priority: refused with a reason", Except: onlyWithoutPriority},
	matrix.Rule{Name: "priority: kept on every path"},

	matrix.Rule{Name: "publish: confirmed"},
	matrix.Rule{Name: "publish: returned"},
	matrix.Rule{Name: "publish: nacked"},
	matrix.Rule{Name: "publish: refused harms no other"},
	matrix.Rule{Name: "publish: missing exchange harms no other"},
	matrix.Rule{Name: "publish: ctx ends a write nobody reads"},
	matrix.Rule{Name: "publish: fallback takes it"},
	matrix.Rule{Name: "publish: both fail"},
	matrix.Rule{Name: "publish: 64 goroutines"},
	matrix.Rule{Name: "batch: confirmed, in order, larger than the window"},
	matrix.Rule{Name: "batch: each message has its own outcome"},
	matrix.Rule{Name: "batch: a faulty message stops all"},
	matrix.Rule{Name: "batch: fallback takes what failed"},
	matrix.Rule{Name: "batch: ctx ends it where nobody reads"},

	matrix.Rule{Name: "drain"},
	matrix.Rule{Name: "drain timeout spends no attempt"},
	matrix.Rule{Name: "drain: a handler that ignores its ctx is named"},
	matrix.Rule{Name: "late settle after a cut"},
	matrix.Rule{Name: "late settle after a close by the broker", Except: exceptManagement},
	matrix.Rule{Name: "health: not running, starting, stopping"},
	matrix.Rule{Name: "health: idle, busy and waiting are healthy"},
	matrix.Rule{Name: "health: asking draws no message"},
	matrix.Rule{Name: "health: permission to read is enough", Except: exceptRabbitmqctl},
	matrix.Rule{Name: "health: queue deleted and declared again"},
	matrix.Rule{Name: "errors say what to do"},
)

func onlyClassic(_, queueType string) string {
	if queueType != "classic" {
		return "classic queues only"
	}
	return ""
}

func exceptLadder(version, queueType string) string {
	if matrix.OnlyQuorum4(version, queueType) == "" {
		return "the ladder is the default here"
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
// one of them.
func everywhere(t *testing.T, test func(e *env), rules ...string) {
	t.Helper()
	t.Parallel()
	for _, version := range matrix.Versions {
		for _, queueType := range matrix.Types {
			var expected []string
			for _, rule := range rules {
				if table.Expects(rule, version, queueType) {
					expected = append(expected, rule)
				}
			}
			if len(expected) == 0 {
				continue
			}
			t.Run(version+" "+queueType, func(t *testing.T) {
				t.Parallel()
				for _, rule := range expected {
					table.Cell(t, rule, version, queueType)
				}
				test(newEnv(t, nodes[version], version, topology.QueueType(queueType)))
			})
		}
	}
}
