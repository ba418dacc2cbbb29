package sim

import (
	"context"
	"time"
)

// inOrderSparesInnocents says that a message which ends its processes takes none along of a
// consumer with a KeyLimit of 1. With a larger limit it does.
const inOrderSparesInnocents = false

// isCrasher reports whether a message ends each process whose handler gets it.
func (w *trial) isCrasher(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.crasher > 0 && w.planned[id].n == w.crasher
}

// crash ends a process at once: its connections, and all that it could still say to the
// broker. What goes on of it in the bubble does so for nobody.
func (w *trial) crash(ctx context.Context, name string, after time.Duration) error {
	if !sleep(ctx, after) {
		return context.Cause(ctx)
	}
	w.mu.Lock()
	n, die := w.networks[name], w.mortals[name]
	delete(w.mortals, name)
	if die != nil {
		delete(w.networks, name) // the next process has its own
	}
	w.mu.Unlock()
	if die != nil {
		now := time.Now()
		w.troubled("crash of "+name, now, now)
		n.die()
		die()
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// workMortally runs one process, and reports whether it crashed.
func (w *trial) workMortally(ctx context.Context, i int, l life) (crashed bool) {
	mortal, die := context.WithCancel(ctx)
	defer die()
	w.mu.Lock()
	w.mortals[consumerName(i)] = die
	w.mu.Unlock()
	w.work(mortal, i, l)
	return mortal.Err() != nil && ctx.Err() == nil
}

// spares reports whether a message that ends its processes takes none along: the broker then
// sends one message at a time to those that are left.
func (p plan) spares() bool {
	for _, c := range p.consumers {
		if c.perKey > 1 || c.perKey == 1 && !inOrderSparesInnocents {
			return false
		}
	}
	return true
}
