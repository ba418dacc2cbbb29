// Package connection_test breaks brokers, and the network before them, under
// package connection and under a producer and a consumer above it. It measures
// how long it takes until a fault is noticed, and from its end until messages
// flow again, and accounts for every message. See [ofNetwork] and [ofBroker]
// for the list of faults.
//
// go test hides the table of results when packages are named on its command
// line: see it with -v, or with "go test" in the directory.
package connection_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	os.Unsetenv("AMQP_URL") // a broker that is killed must be ours
	flag.Parse()
	// The parallel tests here wait most of the time; but their beginnings, all at
	// once, would keep each other from their deadlines.
	if err := flag.Set("test.parallel", "24"); err != nil {
		panic(err)
	}
	code := m.Run()
	for _, err := range pool.Close(context.Background()) {
		fmt.Println(err)
		code = 1
	}
	results.print(os.Stdout)
	if err := goleak.Find(); err != nil && code == 0 { // after a failure it would only add noise
		fmt.Println(err)
		code = 1
	}
	os.Exit(code)
}
