package rehoptest_test

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/rehoptest"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// openShop connects to a broker. A call of stop ends ctx and closes both.
func openShop(broker *rehoptest.Broker) (ctx context.Context, conn *connection.Conn, stop func()) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	conn, err := connection.Open(ctx, connection.Config{
		URLs: []string{"amqp://guest:guest@broker"}, Dial: broker.Dial, Name: "shop",
		Backoff: func(int) time.Duration { return time.Millisecond },
	})
	check(err)
	return ctx, conn, func() {
		cancel()
		check(conn.Close())
		check(broker.Close())
	}
}

// run runs a test inside an example, which prints nothing but its own lines.
func run(test func(t *testing.T)) {
	verbose := flag.Lookup("test.v").Value.String()
	check(flag.Set("test.v", "false"))
	defer flag.Set("test.v", verbose)
	all := func(_, _ string) (bool, error) { return true, nil }
	if !testing.RunTests(all, []testing.InternalTest{{Name: "TestOrders", F: test}}) {
		panic("the test has failed")
	}
}
