// Package carry puts the engine carry to the proof, on every version and both
// types of queue: while messages wait, the broker is stopped and killed, and the
// process that carries them is killed at every gap between two of its steps. None
// may be lost, none may come early, and every attempt counts.
package carry

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/child"
	"github.com/rehop/rehop/topology"
)

var versions []string

var queueTypes = []topology.QueueType{topology.Classic, topology.Quorum}

func TestMain(m *testing.M) {
	child.Main(consumeUntilKilled)
	flag.Parse()
	if os.Getenv("AMQP_URL") != "" {
		fmt.Println("AMQP_URL is set, and that broker is not ours to break: nothing was tested")
		os.Exit(0)
	}
	// The parallel tests here wait for waits and brokers most of the time.
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	var err error
	if versions, err = broker.Available(context.Background()); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if len(versions) == 0 {
		versions = []string{""}
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	os.Exit(code)
}

// onEachVersion runs a test with a broker of its own for each version, side by side.
func onEachVersion(t *testing.T, test func(*testing.T, *broker.Broker)) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			test(t, start(t, version))
		})
	}
}

// start starts a broker for the length of the test.
func start(t *testing.T, version string) *broker.Broker {
	t.Helper()
	b, err := broker.Start(t.Context(), broker.Options{Version: version, Name: "rehop-carry"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// open connects for the length of the test.
func open(t *testing.T, b *broker.Broker) *connection.Conn {
	t.Helper()
	conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{b.AMQPURL()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// declare declares a work queue of the engine carry.
func declare(t *testing.T, conn *connection.Conn, queueType topology.QueueType, waits ...time.Duration) topology.WorkQueue {
	t.Helper()
	name := strings.NewReplacer("/", ".", " ", "-", ",", "").Replace(t.Name())
	w := topology.WorkQueue{Name: name, Type: queueType, Waits: delay.Schedule(waits), Engine: topology.EngineCarry}
	plan, err := topology.DeclarePlan(t.Context(), conn, w)
	if err != nil {
		t.Fatal(err)
	}
	if got := plan.Engines[0].Engine; got != topology.EngineCarry {
		t.Fatalf("the engine is %s, want carry", got)
	}
	return w
}
