package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
)

// setup is everything that the ticket office has on the broker.
type setup struct {
	exchange topology.Exchange
	sms      orderQueue
	queues   []topology.WorkQueue // that sms consists of
	letters  topology.DeadLetterQueue
	waits    delay.Schedule
	vips     string // how VIPs come first

	// unsent takes the orders that the producer cannot get into any queue.
	unsent topology.DeadLetterQueue
}

// orderQueue is declared for the orders and read by the office: a
// topology.WorkQueue or topology.Lanes.
type orderQueue interface {
	topology.Spec
	topology.Source
}

// newSetup chooses what fits a broker of version v. Another scale is another
// setup, because a queue keeps its arguments, and so its waits, while it lives.
func newSetup(v connection.Version, scale int) setup {
	name := "tickets"
	if scale != defaultScale {
		name = fmt.Sprintf("tickets-%d", scale)
	}
	d := setup{
		exchange: topology.Exchange{Name: name},
		waits:    scaled(scale),
		unsent:   topology.DeadLetterQueue{Name: name + ".unsent", Exchange: name + ".unsent"},
	}
	bindings := []topology.Binding{{Exchange: name, RoutingKey: "order.#"}}
	if v.AtLeast(4, 3) {
		one := topology.WorkQueue{Name: name + ".sms", Bindings: bindings, Waits: d.waits, NativePriority: true}
		d.sms, d.queues = one, []topology.WorkQueue{one}
		d.vips = "native: the quorum queues of this broker have strict levels"
	} else {
		lanes := topology.Lanes{
			Name:               name + ".sms",
			Lanes:              []topology.Lane{{Name: "vip"}, {Name: "normal"}},
			Bindings:           bindings,
			Waits:              d.waits,
			OneDeadLetterQueue: true,
		}
		d.sms, d.queues = lanes, lanes.WorkQueues()
		d.vips = "lanes: quorum queues with waits have native priorities from broker 4.3 on"
	}
	d.letters = d.queues[0].DeadLetterQueue()
	return d
}

func (d setup) specs() []topology.Spec {
	return []topology.Spec{d.exchange, d.sms, d.unsent}
}

// open declares the setup and prints the chosen engines, and why.
func (d setup) open(ctx context.Context, conn *connection.Conn, out io.Writer) error {
	plan, err := topology.DeclarePlan(ctx, conn, d.specs()...)
	if err != nil {
		return err
	}
	lines := [][2]string{
		{"broker", "RabbitMQ " + plan.Version.String()},
		{"waits", fmt.Sprint([]time.Duration(d.waits))},
	}
	for _, e := range plan.Engines {
		lines = append(lines, [2]string{"engine", fmt.Sprintf("%s, %s: %s", e.Queue, e.Engine, e.Why)})
	}
	lines = append(lines, [2]string{"VIPs first", d.vips})
	for _, note := range plan.Notes {
		lines = append(lines, [2]string{"note", note})
	}
	for _, line := range lines {
		if _, err := fmt.Fprintf(out, "%-14s%s\n", line[0], line[1]); err != nil {
			return err
		}
	}
	return nil
}

// defaultScale makes the five attempts of an order take some 15 seconds.
const defaultScale = 150

// scaled returns the waits 1m, 5m, 10m and 20m divided by scale.
func scaled(scale int) delay.Schedule {
	waits := delay.Default()
	for i := range waits {
		waits[i] = (waits[i] / time.Duration(scale)).Round(time.Millisecond)
	}
	return waits
}
