package sim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// lanesPlan is a desk with lanes, and a process that has other ones: of another version. Its
// zero value is none.
type lanesPlan struct {
	tickets int
	at      time.Duration
	others  []string // the lanes of the other version; none: as many, and with one dead-letter queue
	lasts   time.Duration
}

const desk = "desk"

// lanesOf are the lanes as a version has them.
func (p plan) lanesOf(names []string) topology.Lanes {
	l := topology.Lanes{Name: desk, Type: p.kind, Waits: p.schedules[0], OneDeadLetterQueue: len(names) == 0}
	if len(names) == 0 {
		names = lanes
	}
	for _, name := range names {
		l.Lanes = append(l.Lanes, topology.Lane{Name: name})
	}
	return l
}

var lanes = []string{"vip", "normal", "bulk"}

// otherLanes returns lanes that have changed.
func (m maker) otherLanes() []string {
	return pick(m, nil, []string{"vip", "normal"}, []string{"vip", "bulk"}, []string{"normal", "vip", "bulk"}, []string{"vip", "normal", "bulk", "rest"})
}

// open opens a desk for a while: the tickets are published while a process of another
// version declares and consumes, which must be refused, and handled afterwards. Every other
// ticket expires before that.
func (w *trial) openDesk(ctx context.Context) {
	plan := w.plan.lanes
	if plan.tickets == 0 || !sleep(ctx, plan.at) {
		return
	}
	conn := w.open(desk, 0, nil)
	if conn == nil {
		return
	}
	defer w.within("Close of the desk's Conn", closing, func() { _ = conn.Close() })
	ours, theirs := w.lanesOf(lanes), w.lanesOf(plan.others)
	for topology.Declare(ctx, conn, ours) != nil {
		if !sleep(ctx, time.Second) {
			return
		}
	}
	if topology.Declare(ctx, conn, theirs) == nil {
		w.violate("lanes that have changed are declared: %+v", theirs)
	}
	if !w.queueUp(ctx, conn, ours) {
		return
	}
	w.serveOthers(ctx, conn, theirs, plan.lasts)
	c, err := consumer.New(conn, ours, func(_ context.Context, d *consumer.Delivery) error {
		w.atDesk(d.ID)
		return nil
	}, consumer.Config{Concurrency: 2, Traces: hooksOf[consumer.Trace](w.plan)})
	if err != nil {
		w.violate("the desk: %v", err)
		return
	}
	for ctx.Err() == nil {
		w.register(desk, c)
		_ = w.runWithin(ctx, desk, 25*time.Second+closing, c)
		w.register(desk, nil)
		if !sleep(ctx, time.Second) {
			return
		}
	}
}

// queueUp publishes the tickets, each until it is safe.
func (w *trial) queueUp(ctx context.Context, conn *connection.Conn, l topology.Lanes) bool {
	p, err := producer.New(conn, producer.Config{Traces: hooksOf[producer.Trace](w.plan)})
	if err != nil {
		w.violate("the desk's Producer: %v", err)
		return false
	}
	defer w.within("Close of the desk's Producer", closingProducer, func() { _ = p.Close() })
	for n := range w.plan.lanes.tickets {
		m := producer.Message{Exchange: l.Exchange(), RoutingKey: "ticket", ID: fmt.Sprintf("ticket/%d", n), Priority: uint8(1 + n%9)} //nolint:gosec // 1 to 9
		if n%2 == 1 {
			m.Expiration = time.Millisecond
		}
		for {
			began := time.Now()
			receipt, err := p.Publish(ctx, m)
			if err != nil || receipt.MaybeDuplicate {
				w.troubled("publish of "+m.ID, began, time.Now())
			}
			if err == nil {
				break
			}
			if !sleep(ctx, time.Second) {
				return false
			}
		}
	}
	return true
}

// serveOthers runs a consumer of lanes that nobody has declared. It may end, or say that it
// does not work, but for the moment before its first look.
func (w *trial) serveOthers(ctx context.Context, conn *connection.Conn, l topology.Lanes, lasts time.Duration) {
	ctx, end := context.WithTimeout(ctx, lasts)
	defer end()
	c, err := consumer.New(conn, l, func(_ context.Context, d *consumer.Delivery) error {
		w.violate("%s is handled by a consumer of other lanes", d.ID)
		return nil
	}, consumer.Config{Traces: hooksOf[consumer.Trace](w.plan)})
	if err != nil {
		w.violate("the other desk: %v", err)
		return
	}
	go func() {
		for sleep(ctx, 5*time.Second) {
			if c.Health() == nil {
				w.violate("a consumer of lanes that have changed is healthy: %+v", l)
				return
			}
		}
	}()
	for ctx.Err() == nil {
		_ = c.Run(ctx)
		sleep(ctx, time.Second)
	}
}

// atDesk notes that a ticket has ended.
func (w *trial) atDesk(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended[id]++
}

// takeTickets takes the letters of the desk.
func (w *trial) takeTickets() {
	for _, q := range w.broker.Queues() {
		if !strings.HasPrefix(q, desk) || !strings.HasSuffix(q, ".dlq") {
			continue
		}
		for _, m := range w.broker.Drain(q) {
			w.atDesk(m.MessageId)
		}
	}
}

// openTickets is how many tickets have not ended.
func (w *trial) openTickets() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.plan.lanes.tickets - len(w.ended)
}

// judgeTickets checks that no ticket is in two places.
func (w *trial) judgeTickets() {
	for id, n := range w.ended {
		if n > 1 && !w.inTrouble(w.began.Add(w.plan.lanes.at), time.Now(), aftermath) {
			w.violate("%s has ended %d times, and there was no fault", id, n)
		}
	}
}
