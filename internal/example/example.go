// Package example is the beginning of the examples on pkg.go.dev: a broker in the process,
// and a connection to it. An example calls it by a variable of another file, so that its page
// has the lines of the example alone.
package example

import (
	"context"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/rehoptest"
)

// Connect starts a broker and connects to it. A call of stop ends ctx and closes both. If an
// example hangs, the time limit of go test ends it.
func Connect() (ctx context.Context, conn *connection.Conn, stop func()) {
	broker, err := rehoptest.NewBroker(rehoptest.Config{})
	Check(err)
	ctx, cancel := context.WithCancel(context.Background())
	conn, err = connection.Open(ctx, connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: broker.Dial})
	Check(err)
	return ctx, conn, func() {
		cancel()
		Check(conn.Close())
		Check(broker.Close())
	}
}

// Check panics if err is not nil.
func Check(err error) {
	if err != nil {
		panic(err)
	}
}
