package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/consumer/internal/work"
	"github.com/rehop/rehop/internal/transport"
)

// Run consumes until ctx ends. It then stops fetching, lets handlers finish up to
// Config.DrainTimeout, settles their messages, gives back messages that were not
// started, and returns nil. Before it closes the channel it waits for up to 3 s until
// the queue has its acks; if the connection is lost in that time, acks may be missing,
// and their messages are delivered again. A lost connection does not end Run, and
// neither does a queue whose node is down: Run waits for it. It returns an error sooner
// only if the queue cannot be consumed to begin with (it, or a part of its topology such as the
// dead-letter queue, does not exist, so declare before Run; permission is missing, the broker's version refuses the source, channel_max leaves too few channels
// for the consumers of the Conn), if the Conn is closed, or if a handler did not return
// although its ctx had ended. It returns an error at the latest 6 s after DrainTimeout if a
// hook of Config.Traces or the Logger has not returned, or the broker does not answer. A
// Consumer runs once at a time.
func (c *Consumer) Run(ctx context.Context) error {
	if ctx == nil {
		return rehop.WithClass(errors.New("consumer: Run: ctx is nil"), rehop.ClassBug)
	}
	if !c.running.CompareAndSwap(false, true) {
		return rehop.WithClass(errors.New("consumer: Run is running already"), rehop.ClassBug)
	}
	c.warnOfPrefetch()
	return c.run(ctx, func() { c.running.Store(false) })
}

// errSlowStop says that Run returns although something has not ended.
var errSlowStop = errors.New("not stopped in time: a hook of Config.Traces or the Logger has not returned, or the broker does not answer; messages in hand may not be settled, and are delivered again by the broker")

// run consumes every part until ctx ends or one of them cannot be consumed. It calls ended
// when nothing of it is left, which may be later.
func (c *Consumer) run(ctx context.Context, ended func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped, end := endsAfter(ctx, c.cfg.DrainTimeout+durations.StopGrace)
	defer end()
	overdueStop, end := endsAfter(stopped, durations.LastSecond)
	defer end()
	going, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(transport.Inside.Conn(c.conn).Life(), end)()
	all := hand.New(c.cfg.Concurrency, c.from.Strict)
	workers := work.NewPool(all)
	runs := make([]*run, len(c.parts))
	for i, p := range c.parts {
		runs[i] = newRun(p, all, workers, ctx, going, stopped)
		if c.isShared() {
			runs[i].assigned = newAssigned()
		}
		p.health.starts(runs[i])
	}
	c.setRuns(runs)
	over := sync.OnceFunc(func() {
		c.setRuns(nil)
		for _, p := range c.parts {
			p.health.consumesNothing(lasts, errNotRunning, time.Now())
		}
	})
	defer over()
	for _, r := range runs {
		r.pool.Event(r.lane.Opening) // none goes ahead of a higher one at the start
	}
	if c.isShared() {
		runs[0].watches.Go(func() { c.share(going, runs) })
	}
	var consuming sync.WaitGroup
	errs := make([]error, len(runs))
	for i, r := range runs {
		consuming.Go(func() {
			err := r.consume()
			cancel() // it ends before ctx only if it cannot go on
			errs[i] = r.end(err)
		})
	}
	result := make(chan error, 1)
	go func() { // it ends before Run does, unless a hook does not return
		consuming.Wait()
		workers.Close()
		if !slices.ContainsFunc(runs, func(r *run) bool { return r.lane.Unsettled() > 0 }) { // else a handler may never return
			workers.Wait()
		}
		over() // before the next Run, which begins with both anew
		ended()
		result <- errors.Join(errs...)
	}()
	select {
	case err := <-result:
		return err
	case <-overdueStop.Done():
		var running []*hand.Message
		for _, r := range runs {
			running = append(running, r.running()...)
		}
		return fmt.Errorf("consumer: %q: %w%s", c.name, errSlowStop, inBrackets(running))
	}
}

// endsAfter returns a ctx that ends d after ctx has ended. It has the values of ctx.
func endsAfter(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	timer := time.AfterFunc(d, cancel)
	timer.Stop()
	unwatch := context.AfterFunc(ctx, func() { timer.Reset(d) })
	return later, func() {
		unwatch()
		timer.Stop()
		cancel()
	}
}
