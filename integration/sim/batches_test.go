package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/topology"
)

// batches returns a consumer of batches. Its handler is a transaction: it handles each
// message with an outcome of its own, or fails before it has handled any.
func (w *trial) batches(conn *connection.Conn, source topology.Source, cfg consumer.Config, c consumerPlan, p process) (*consumer.Consumer, error) {
	var mu sync.Mutex
	noted := map[*consumer.Delivery]bool{} // handled, and noted, in their last run
	cfg.Traces = append(cfg.Traces, consumer.Trace{
		Handled: func(ctx context.Context, h consumer.Handled) {
			d := h.Delivery
			mu.Lock()
			own := noted[d]
			delete(noted, d)
			mu.Unlock()
			if !own && h.Err == nil {
				w.violate("%s: message %s was said to be handled, and was not", p.name, d.ID)
			}
			if !own { // no run has told it from the others
				_ = w.noted(ctx, d, p, func(maker, int) error { return h.Err })
			}
		},
	})
	return consumer.NewBatch(conn, source, func(ctx context.Context, batch []*consumer.Delivery) error {
		if len(batch) > c.batch {
			w.violate("%s: a batch of %d, want %d at most", p.name, len(batch), c.batch)
		}
		for _, d := range batch {
			if len(batch) > 1 && d.LastAttempt && d.Attempt > 1 {
				w.violate("%s: message %s has its last attempt in a batch of %d", p.name, d.ID, len(batch))
			}
			if w.isVague(d, c.vague) {
				return errHandler // whichever it is, and however large the batch is
			}
		}
		var all sync.WaitGroup
		for _, d := range batch {
			all.Go(func() { d.Fail(w.handleOf(ctx, d, p)) })
			mu.Lock()
			noted[d] = true
			mu.Unlock()
		}
		all.Wait()
		return nil
	}, consumer.Batch{Size: c.batch, Linger: c.linger}, cfg)
}

// isVague reports whether a message has every batch fail in this attempt.
func (w *trial) isVague(d *consumer.Delivery, chance int) bool {
	w.mu.Lock()
	n, probe := w.planned[d.ID].n, w.probes[d.ID]
	w.mu.Unlock()
	return !probe && rand.New(rand.NewPCG(w.seed+1, uint64(n)<<16|uint64(d.Attempt))).IntN(1000) < chance
}

// handleOf is handle in a batch, which outlives a panic.
func (w *trial) handleOf(ctx context.Context, d *consumer.Delivery, p process) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = errors.Join(errHandler, fmt.Errorf("panic: %v", v))
		}
	}()
	return w.handle(ctx, d, p)
}
