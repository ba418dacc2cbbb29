// Package cluster breaks nodes of a cluster of three while messages fail, wait
// and come back, and accounts for each message afterwards: every id whose
// Publish call returned nil must have been handled or be in the dead-letter
// queue, and no wait may have ended early. Duplicates are counted.
package cluster

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/matrix"
	"github.com/rehop/rehop/topology"
)

// The faults, rows of the table.
const (
	ruleActive      = "node of the active consumer killed"
	ruleLeaders     = "leaders of shards on one node"
	ruleShards      = "shards while nodes are killed, cut off and restarted"
	ruleUpgraded    = "shards while 4.0 becomes 4.3, and nodes are drained and restarted"
	ruleKilled      = "leader of the work queue killed"
	rulePartitioned = "leader of a wait queue cut off and healed"
	ruleCutLeader   = "consumer on the cut-off leader of its queue"
	ruleCutFollower = "consumer on a node cut off from its leader"
	ruleRolling     = "nodes restarted one after the other"
	ruleMany        = "200 work queues declared by 20 clients at once"
	ruleLetters     = "node of the dead-letter queue stopped for longer than CopyTimeout"
	ruleWaiting     = "node of the work queue stopped while messages wait elsewhere"
	ruleStuck       = "node of a wait queue stopped: what does not go there goes on"
)

// version is the one on which all rules are tested: what is at stake is how the
// SDK gets along with several nodes.
const version = "4.3"

var orderly = flag.String("orderly", "", "stop nodes in an orderly way on these versions, with commas between them, with queues of both types in all rules, and many work queues by one client too")

func orderlyVersions() []string { return strings.Split(cmp.Or(*orderly, version), ",") }

// orderlyTypes are the types of the queues whose letters or waiting messages lose
// a node; without -orderly only the one that cannot move to another node.
func orderlyTypes() []topology.QueueType {
	if *orderly == "" {
		return []topology.QueueType{topology.Classic}
	}
	return []topology.QueueType{topology.Classic, topology.Quorum}
}

func ofOrderlyTypes(_, queueType string) string {
	if !slices.Contains(orderlyTypes(), topology.QueueType(queueType)) {
		return "with -orderly only"
	}
	return ""
}

var table = matrix.New("cluster of three",
	matrix.Rule{Name: ruleActive, Except: but("quorum", version)},
	matrix.Rule{Name: ruleLeaders, Except: but("quorum", version)},
	matrix.Rule{Name: ruleShards, Except: but("quorum", version)},
	matrix.Rule{Name: ruleUpgraded, Except: but("quorum", version)},
	matrix.Rule{Name: ruleKilled, Except: but("quorum", version)},
	matrix.Rule{Name: rulePartitioned, Except: but("quorum", version)},
	matrix.Rule{Name: ruleCutLeader, Except: but("quorum", version)},
	matrix.Rule{Name: ruleCutFollower, Except: but("quorum", version)},
	matrix.Rule{Name: ruleMany, Except: but("quorum", version)},
	matrix.Rule{Name: ruleStuck, Except: but("quorum", version)},
	matrix.Rule{Name: ruleRolling},
	matrix.Rule{Name: ruleLetters, Except: ofOrderlyTypes},
	matrix.Rule{Name: ruleWaiting, Except: ofOrderlyTypes},
)

// but excepts all columns but one.
func but(queueType, version string) func(v, t string) string {
	return func(v, t string) string {
		if v != version || t != queueType {
			return "one column will do"
		}
		return ""
	}
}

// absent is why there is no cluster here, "" if there is one. It is asked for in
// a test: go test remembers a result together with those variables of the
// environment that tests have read, and what TestMain read does not count.
var absent = sync.OnceValue(func() string { return broker.WhyNoCluster(context.Background()) })

func TestMain(m *testing.M) {
	flag.Parse()
	table.LeaveAllBut(orderlyVersions(), "-orderly does not name it")
	code := m.Run()
	if shared.Broker != nil {
		if err := shared.Close(context.Background()); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	if why := absent(); why != "" {
		fmt.Println("NOT RUN:", why)
		table.Leave(version, why)
	}
	code = table.Report(os.Stdout, code)
	if err := goleak.Find(); err != nil && code == 0 { // after a failure it would only add noise
		fmt.Println(err)
		code = 1
	}
	os.Exit(code)
}
