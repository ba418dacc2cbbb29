package rehoptest_test

import (
	"context"
	"flag"
	"sync"
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
	ctx, cancel := context.WithCancel(context.Background())
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

// run runs a test inside an example, which prints nothing but its own lines. The flags of go
// test are for the tests around it: an example runs once, whatever -count and -cpu are.
func run(test func(t *testing.T)) {
	for name, value := range map[string]string{"test.v": "false", "test.skip": ""} {
		before := flag.Lookup(name).Value.String()
		check(flag.Set(name, value))
		defer flag.Set(name, before)
	}
	var once sync.Once
	all := func(_, _ string) (bool, error) { return true, nil }
	orders := testing.InternalTest{Name: "TestOrders", F: func(t *testing.T) { once.Do(func() { test(t) }) }}
	if !testing.RunTests(all, []testing.InternalTest{orders}) {
		panic("the test has failed")
	}
}
