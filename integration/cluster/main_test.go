// Package cluster breaks nodes of a cluster of three while messages fail, wait
// and come back, and accounts for each message afterwards: every id whose
// Publish call returned nil must have been handled or be in the dead-letter
// queue, and no wait may have ended early. Duplicates are counted.
package cluster

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/matrix"
)

// The faults, rows of the table.
const (
	ruleKilled      = "leader of the work queue killed"
	rulePartitioned = "leader of a wait queue cut off and healed"
	ruleCutLeader   = "consumer on the cut-off leader of its queue"
	ruleCutFollower = "consumer on a node cut off from its leader"
	ruleRolling     = "nodes restarted one after the other"
)

// The one column that is tested: what is at stake here is how the SDK gets along
// with several nodes, and for that one version and the ladder will do.
const version, queueType = "4.3", "quorum"

var table = matrix.New("cluster of three",
	matrix.Rule{Name: ruleKilled, Except: otherColumn},
	matrix.Rule{Name: ruleRolling, Except: otherColumn},
	matrix.Rule{Name: rulePartitioned, Except: otherColumn},
	matrix.Rule{Name: ruleCutLeader, Except: otherColumn},
	matrix.Rule{Name: ruleCutFollower, Except: otherColumn},
)

func otherColumn(v, t string) string {
	if v != version || t != queueType {
		return "one column will do"
	}
	return ""
}

// absent is why there is no cluster here, "" if there is one. It is asked for in
// a test: go test remembers a result together with those variables of the
// environment that tests have read, and what TestMain read does not count.
var absent = sync.OnceValue(func() string {
	here, err := broker.Available(context.Background())
	switch {
	case os.Getenv("AMQP_URL") != "":
		return "AMQP_URL is set: that broker is not ours to break"
	case err != nil || len(here) < len(broker.Series):
		return "a cluster needs Docker"
	}
	return ""
})

func TestMain(m *testing.M) {
	code := m.Run()
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
