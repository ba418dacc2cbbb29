// Package order has the messages of the example, and what is on the broker.
package order

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
)

// Order is the body of a message.
type Order struct {
	ID       string
	Customer string
	Number   int  // of the customer's orders
	VIP      bool // goes first
}

// Exchange has the types Placed and Billed, which are the routing keys too.
const (
	Exchange       = "service.shop"
	Placed, Billed = "order.placed", "order.billed"
)

// Billing has a lane for VIPs, and Archive takes what was billed.
var (
	Billing = topology.Lanes{
		Name:               "service.billing",
		Lanes:              []topology.Lane{{Name: "vip"}, {Name: "normal"}},
		Bindings:           []topology.Binding{{Exchange: Exchange, RoutingKey: Placed}},
		Waits:              delay.Schedule{time.Second, 5 * time.Second},
		OneDeadLetterQueue: true,
	}
	Archive = topology.WorkQueue{
		Name:     "service.archive",
		Bindings: []topology.Binding{{Exchange: Exchange, RoutingKey: Billed}},
		Waits:    delay.Schedule{time.Second, 5 * time.Second},
	}
)

// Declared is what both programs declare.
var Declared = []topology.Spec{topology.Exchange{Name: Exchange}, Billing, Archive}

// Main runs a program until SIGTERM or Ctrl-C. With the flag -topology it writes a file for
// rehop topology, and ends.
func Main(run func(ctx context.Context) error) {
	review := flag.Bool("topology", false, "write what the program declares as JSON, and end")
	flag.Parse()
	if *review {
		run = func(context.Context) error {
			file, err := topology.MarshalSpecs(Declared...)
			if err == nil {
				_, err = os.Stdout.Write(file)
			}
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

// Connect opens a connection to the broker of the environment. Whichever program is
// there first declares what both need. Neither has to wait for the broker. Producers,
// consumers and stores of the connection log to its Logger.
func Connect(ctx context.Context) (*connection.Conn, error) {
	cfg, err := connection.FromEnv("AMQP")
	if err != nil {
		return nil, err
	}
	cfg.Lazy, cfg.Logger = true, slog.Default()
	cfg.OnConnect = func(ctx context.Context, conn *connection.Conn) error {
		return topology.Declare(ctx, conn, Declared...)
	}
	return connection.Open(ctx, cfg)
}
