// Package faults breaks things while messages are on their way and accounts
// for each of them afterwards: consumers are killed at every gap between two
// steps, brokers are killed, frozen and stopped, parts of the topology deleted.
//
// Every message that a Publish call has reported as safe must have been handled
// or be in the dead-letter queue at the end. Duplicates are counted.
package faults

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/child"
	"github.com/rehop/rehop/integration/matrix"
	"github.com/rehop/rehop/integration/nodes"
)

// Rows of the table.
const (
	ruleBurst      = "broker killed in a burst of failures"
	rulePublish    = "broker killed in a burst of publishes"
	ruleEnding     = "broker killed while waits end"
	ruleSilent     = "broker silent for longer than the heartbeat"
	ruleRestarted  = "broker stopped and started under load"
	ruleCrashLoop  = "crash loop in order spares its neighbours"
	ruleCrashApart = "crash loop in a shard spares the others"
	ruleShards     = "processes that share shards killed"
)

var table = matrix.New("faults", rules()...)

func rules() []matrix.Rule {
	var all []matrix.Rule
	for _, g := range gaps {
		all = append(all, matrix.Rule{Name: g.rule()})
	}
	for _, g := range batchGaps {
		all = append(all, matrix.Rule{Name: g.rule()})
	}
	all = append(all,
		matrix.Rule{Name: inBurst.rule()},
		matrix.Rule{Name: ruleBurst},
		matrix.Rule{Name: rulePublish},
		matrix.Rule{Name: ruleEnding},
		matrix.Rule{Name: ruleSilent},
		matrix.Rule{Name: ruleRestarted},
		matrix.Rule{Name: ruleCrashLoop, Except: matrix.OnlyQuorum},
		matrix.Rule{Name: ruleCrashApart, Except: matrix.OnlyQuorum},
		matrix.Rule{Name: ruleShards},
	)
	for _, p := range parts {
		all = append(all, matrix.Rule{Name: p.rule()})
	}
	return all
}

func TestMain(m *testing.M) {
	child.Main(consumeUntilKilled)
	flag.Parse()
	// The parallel tests here wait for brokers most of the time.
	if err := flag.Set("test.parallel", "24"); err != nil {
		panic(err)
	}
	if err := chooseVersions(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if flag.Lookup("test.run").Value.String() == "" {
		pool.StartAll(ownVersions()...)
	}
	code := m.Run()
	for _, err := range pool.Close(context.Background()) {
		fmt.Println(err)
		code = 1
	}
	code = table.Report(os.Stdout, code)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	os.Exit(code)
}

var pool = nodes.NewPool("rehop-faults", killedQueues)

// versions are what to ask for when a broker is started: those that are to be
// had, or "" if there is but one and it is a version between two columns.
var versions []string

// chooseVersions sets versions and says which columns are left out.
func chooseVersions() error {
	var err error
	if versions, err = broker.Available(context.Background()); err != nil {
		return err
	}
	columns := versions
	if len(versions) == 0 {
		n, err := pool.Start("")
		if err != nil {
			return err
		}
		versions, columns = []string{""}, []string{n.Column}
	}
	table.LeaveAllBut(columns, broker.WhyNotAll())
	if nodes.Given() {
		for _, c := range columns {
			table.Leave(c, "AMQP_URL is set: that broker is not ours to stop or to configure")
		}
	}
	return nil
}

// ownVersions are the versions whose brokers these tests may break.
func ownVersions() []string {
	if nodes.Given() {
		return nil
	}
	return versions
}
