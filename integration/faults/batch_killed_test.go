package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/account"
	"github.com/rehop/rehop/integration/child"
	"github.com/rehop/rehop/topology"
)

// Gaps of a batch of which one half is done and the other fails. In the first no handler
// has run; in the second it has run on all, and nothing is settled; in the third some
// messages are acked or have a confirmed copy, and some have not.
const (
	batchBeforeHandler gap = "with a batch, before the handler"
	batchAfterHandler  gap = "with a batch, between handler and acks"
	batchBetweenAcks   gap = "with a batch, between some copies and acks"
)

var batchGaps = []gap{batchBeforeHandler, batchAfterHandler, batchBetweenAcks}

// batchUntilKilled is consumeUntilKilled for a task with batches.
func batchUntilKilled(ctx context.Context, conn *connection.Conn, t task) error {
	stop := func(batch ...*consumer.Delivery) {
		for _, d := range batch {
			child.Say(event{What: "gap", ID: d.ID, Attempt: d.Attempt})
		}
		select {}
	}
	w := t.Queues[0]
	var confirmed atomic.Int64
	trace := consumer.Trace{
		Batched: func(ctx context.Context, b consumer.Batched) context.Context {
			if t.Gap == batchBeforeHandler && len(b.Deliveries) == t.Batch {
				stop(b.Deliveries...)
			}
			return ctx
		},
		BatchHandled: func(_ context.Context, b consumer.BatchHandled) {
			if t.Gap == batchAfterHandler && len(b.Deliveries) == t.Batch {
				stop(b.Deliveries...)
			}
		},
		Confirmed: func(_ context.Context, c consumer.Copied) {
			if t.Gap == batchBetweenAcks && confirmed.Add(1) == int64(t.Batch/4) {
				stop(c.Delivery)
			}
		},
	}
	c, err := consumer.NewBatch(conn, w, func(_ context.Context, batch []*consumer.Delivery) error {
		var all sync.WaitGroup
		for _, d := range batch {
			all.Go(func() {
				child.Say(event{"begin", d.ID, d.Attempt, d.Redelivered, time.Now(), time.Time{}})
				d.Fail(outcome(d.Type, d.Attempt))
				due, _ := account.Due(w.Waits, d.Attempt, d.Err(), time.Now())
				child.Say(event{"end", d.ID, d.Attempt, d.Redelivered, time.Now(), due})
			})
		}
		all.Wait()
		return nil
	}, consumer.Batch{Size: t.Batch, Linger: 20 * time.Second}, consumer.Config{Traces: []consumer.Trace{trace}})
	if err != nil {
		return err
	}
	return fmt.Errorf("the consumer ended: %w", c.Run(ctx))
}

// A consumer of batches is killed: no message is lost, no attempt is spent but by a
// handler that has failed, and a message is doubled only where its copy was confirmed.
func TestConsumerOfBatchesKilled(t *testing.T) {
	for _, g := range batchGaps {
		for _, version := range versions {
			for _, queueType := range queueTypes {
				t.Run(fmt.Sprintf("%s/%s %s", strings.ReplaceAll(string(g), ",", ""), version, queueType), func(t *testing.T) {
					t.Parallel()
					n := pool.Of(t, version)
					table.Cell(t, g.rule(), n.Column, string(queueType))
					const half = 10
					conn := open(t, n, connection.Config{})
					w := topology.WorkQueue{Name: fmt.Sprintf("batch.%d.%s.%s", len(g), n.Column, queueType), Type: queueType,
						Waits: delay.Schedule{3 * time.Second, 150 * time.Millisecond}}
					if g == batchBetweenAcks {
						w.Engine = topology.EngineRepublish // there is a copy
					}
					plan, err := topology.DeclarePlan(t.Context(), conn, w)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { deleteAll(t, conn, plan) })
					a := account.New(w.Name, w.Waits, 0)
					types := map[string]string{}
					for _, messageType := range []string{typeOf(done, 1), typeOf(done, 2)} { // the second fails once
						for _, id := range publish(t, conn, w, a, messageType, half) {
							types[id] = messageType
						}
					}
					atGap := 2 * half
					if g == batchBetweenAcks {
						atGap = 1
					}
					job := task{URL: n.AMQPURL(), Queues: []topology.WorkQueue{w}, Gap: g, Batch: 2 * half}
					if _, err := runChildToGap(t, job, map[string]*account.Account{w.Name: a}, atGap); err != nil {
						t.Fatal(err)
					}
					s := startWork(t, conn, w, a, 20, true)
					if err := s.settle(t.Context(), a, 20*time.Second); err != nil {
						t.Error(err)
					}
					if err := s.stop(); err != nil {
						t.Error(err)
					}
					if err := a.Verdict(); err != nil {
						t.Error(err)
					}
					var errs []error
					for id, messageType := range types {
						if err := afterBatchKill(a.Of(id), messageType, g); err != nil {
							errs = append(errs, fmt.Errorf("message %s (%s): %w\n\t%s", id, messageType, err, a.Of(id)))
						}
					}
					if err := errors.Join(errs...); err != nil {
						t.Error(err)
					}
					t.Log(a)
				})
			}
		}
	}
}

// afterBatchKill returns what is wrong with the end of a message whose batch was at a
// gap.
func afterBatchKill(s account.Story, messageType string, g gap) error {
	var inTheChild, after, second int
	for _, r := range s.Runs {
		switch {
		case r.Attempt == 1 && r.By == inChild:
			inTheChild++
		case r.Attempt == 1:
			after++
		default:
			second++
		}
	}
	var errs []error
	child, least, most := 1, 1, 1 // runs of attempt 1 after the kill
	switch g {
	case batchBeforeHandler:
		child = 0
	case batchBetweenAcks:
		least = 0
	}
	if inTheChild != child {
		errs = append(errs, fmt.Errorf("attempt 1 ran %d times in the child, want %d", inTheChild, child))
	}
	if after < least || after > most {
		errs = append(errs, fmt.Errorf("attempt 1 ran %d times after the kill, want %d to %d", after, least, most))
	}
	if ended(s, account.Letter) {
		errs = append(errs, errors.New("it is a dead letter"))
	}
	fails := messageType != typeOf(done, 1)
	wantSecond := 0
	if fails {
		wantSecond = 1
	}
	// A copy that was confirmed comes beside the message itself.
	if second < wantSecond || second > wantSecond+1 || second > 1 && (g != batchBetweenAcks || after == 0) {
		errs = append(errs, fmt.Errorf("attempt 2 ran %d times, want %d", second, wantSecond))
	}
	return errors.Join(errs...)
}
