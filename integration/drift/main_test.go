package drift

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/nodes"
)

var (
	pool     = nodes.NewPool("rehop-drift", nil)
	versions []string
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The versions side by side, and some tests of each: they wait for their brokers.
	if err := flag.Set("test.parallel", "9"); err != nil {
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
	for _, err := range pool.Close(context.Background()) {
		fmt.Println(err)
		code = 1
	}
	calls.CloseIdleConnections()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	os.Exit(code)
}

// eachOwn runs a test on a broker of its own of each version, which tries again after 2 s to deliver a dead letter that no queue took.
func eachOwn(t *testing.T, name string, test func(t *testing.T, n *nodes.Node)) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			b, err := broker.Start(t.Context(), broker.Options{Version: version, Name: "rehop-drift-" + name, LetterTimeout: 2 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := b.Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
			test(t, &nodes.Node{Broker: b})
		})
	}
}

// onEachVersion runs a test on a broker of each version, side by side.
func onEachVersion(t *testing.T, test func(t *testing.T, n *nodes.Node)) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			test(t, pool.Of(t, version))
		})
	}
}
