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

// desk is everything that the ticket office has on the broker.
type desk struct {
	exchange topology.Exchange
	sms      topology.WorkQueue

	// unsent takes what the producer cannot get into any queue.
	unsent topology.DeadLetterQueue

	// vipPriority is the priority of a VIP's order, 0 for none.
	vipPriority uint8
	vipReason   string
}

// newDesk chooses what fits a broker of version v. Another scale is another
// desk, because a queue keeps its arguments, and so its waits, while it lives.
func newDesk(v connection.Version, scale int) desk {
	name := "tickets"
	if scale != defaultScale {
		name = fmt.Sprintf("tickets-%d", scale)
	}
	d := desk{
		exchange: topology.Exchange{Name: name},
		sms: topology.WorkQueue{
			Name:     name + ".sms",
			Bindings: []topology.Binding{{Exchange: name, Key: "order.#"}},
			Waits:    scaled(scale),
		},
		unsent: topology.DeadLetterQueue{Name: name + ".unsent", Exchange: name + ".unsent"},
	}
	if v.AtLeast(4, 3) {
		d.sms.Priority = topology.PriorityNative
		d.vipPriority = topology.MaxPriority
		d.vipReason = "the quorum queues of this broker have strict levels"
		return d
	}
	// No priority on the messages either: from 4.0 to 4.2 a quorum queue looks
	// at it unasked, and a VIP who waits long would hold back the others.
	d.vipReason = "quorum queues with waits honour it from broker 4.3 on"
	return d
}

func (d desk) specs() []topology.Spec {
	return []topology.Spec{d.exchange, d.sms, d.unsent}
}

// open declares the desk and prints what was chosen, and why.
func (d desk) open(ctx context.Context, conn *connection.Conn, out io.Writer) error {
	plan, err := topology.DeclarePlan(ctx, conn, d.specs()...)
	if err != nil {
		return err
	}
	lines := [][2]string{
		{"broker", "RabbitMQ " + plan.Version.String()},
		{"waits", fmt.Sprint([]time.Duration(d.sms.Waits))},
	}
	for _, e := range plan.Engines {
		lines = append(lines, [2]string{"engine", fmt.Sprintf("%s: %s", e.Engine, e.Why)})
	}
	vip := "none"
	if d.vipPriority > 0 {
		vip = fmt.Sprint(d.vipPriority)
	}
	lines = append(lines, [2]string{"VIP priority", vip + ": " + d.vipReason})
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
