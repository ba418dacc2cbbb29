package sim

import (
	"context"
	"time"
)

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
	w.kill(name)
	<-ctx.Done()
	return context.Cause(ctx)
}

// kill ends the process of a service, if there is one.
func (w *trial) kill(name string) {
	w.mu.Lock()
	n, die := w.networks[name], w.mortals[name]
	delete(w.mortals, name)
	if die != nil {
		delete(w.networks, name) // the next process has its own
	}
	w.mu.Unlock()
	if die == nil {
		return
	}
	now := time.Now()
	w.troubled("crash of "+name, now, now)
	if n != nil {
		n.die()
	}
	die()
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
