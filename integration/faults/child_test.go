package faults

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/account"
	"github.com/rehop/rehop/integration/child"
	"github.com/rehop/rehop/topology"
)

// inChild is who runs a handler there.
const inChild = "the child"

// task is what the child does: consume the queues, and stop for ever with each
// message that has reached the gap in its trigger attempt, or with none.
type task struct {
	URL         string
	Queues      []topology.WorkQueue
	Gap         gap
	Concurrency int // more than there are messages: each blocks a place
	Batch       int // size of the batches that the child handles; 0: none
	InOrder     bool
	Shards      *topology.Shards // consumed in place of the queues
	Prefetch    int              // of them
	Slow        time.Duration    // that handlers of shards take which end with a guilty message; 0: there is none
}

// event is what the child reports, one line of JSON each.
type event struct {
	What        string // begin, end, gap
	ID          string
	Attempt     int
	Redelivered bool
	At, Due     time.Time
}

// consumeUntilKilled is what the child does.
func consumeUntilKilled(t task) error {
	ctx := context.Background()
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{t.URL}})
	if err != nil {
		return err
	}
	say := func(what string, d *consumer.Delivery, due time.Time) {
		child.Say(event{what, d.ID, d.Attempt, d.Redelivered, time.Now(), due})
	}
	hooks := func(g gap) func(*consumer.Delivery) {
		return func(d *consumer.Delivery) {
			if g == t.Gap && d.Attempt == trigger(d.Type) {
				say("gap", d, time.Time{})
				select {}
			}
		}
	}
	if t.InOrder || t.Slow > 0 {
		return consumeUntilGuilty(ctx, conn, t)
	}
	if t.Shards != nil {
		return consumeShards(ctx, conn, t)
	}
	if t.Batch > 0 {
		return batchUntilKilled(ctx, conn, t)
	}
	ended := make(chan error)
	for _, w := range t.Queues {
		handler := func(_ context.Context, d *consumer.Delivery) error {
			say("begin", d, time.Time{})
			hooks(inHandler)(d)
			err := outcome(d.Type, d.Attempt)
			due, _ := account.Due(w.Waits, d.Attempt, err, time.Now())
			say("end", d, due)
			return err
		}
		received, handled, copied, confirmed := hooks(beforeHandler), hooks(afterHandler), hooks(beforeConfirm), hooks(beforeAck)
		trace := consumer.Trace{
			Received: func(ctx context.Context, d *consumer.Delivery) context.Context {
				if d.Attempt > trigger(d.Type) {
					select {} // a copy that came back before the kill: for the parent
				}
				received(d)
				return ctx
			},
			Handled:   func(_ context.Context, h consumer.Handled) { handled(h.Delivery) },
			Copied:    func(_ context.Context, c consumer.Copied) { copied(c.Delivery) },
			Confirmed: func(_ context.Context, c consumer.Copied) { confirmed(c.Delivery) },
		}
		consumers, each := 1, t.Concurrency
		switch t.Gap {
		case beforeAck: // what stops there stops all that is confirmed after it
			consumers, each = each, 1
		case inBurst:
			trace = consumer.Trace{}
		}
		for range consumers {
			c, err := consumer.New(conn, w, handler, consumer.Config{Concurrency: each, Traces: []consumer.Trace{trace}})
			if err != nil {
				return err
			}
			go func() { ended <- c.Run(ctx) }()
		}
	}
	return fmt.Errorf("a consumer ended: %w", <-ended)
}

// runChildToGap starts a child, writes what it reports into the account of each
// queue, waits until so many messages are at the gap, and kills it. In a burst
// they are those that a handler has ended with.
func runChildToGap(t *testing.T, job task, accounts map[string]*account.Account, messages int) (ids map[string]bool, err error) {
	t.Helper()
	ids = map[string]bool{}
	open := map[string]func(bool, time.Time){} // the ends of runs
	enough := false
	p := child.Start(t, job, func(p *child.Process, e event) {
		a := accounts[queueOf(e.ID)]
		switch e.What {
		case "begin":
			open[e.ID] = a.Begin(e.ID, account.Run{Attempt: e.Attempt, Redelivered: e.Redelivered, Call: 1, By: inChild})
		case "end":
			open[e.ID](!e.Due.IsZero(), e.Due)
			delete(open, e.ID)
		}
		if e.What == "gap" || e.What == "end" && job.Gap == inBurst {
			ids[e.ID] = true
		}
		if len(ids) >= messages && !enough {
			enough = true
			p.Kill()
		}
	})
	late := time.AfterFunc(60*time.Second, p.Kill)
	defer late.Stop()
	err = p.Wait()
	for _, end := range open { // the process ended in the handler
		end(true, time.Time{})
	}
	if !enough {
		err = errors.Join(err, fmt.Errorf("%d of %d messages are at the gap", len(ids), messages))
	}
	return ids, err
}
