package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/repeats"
)

// maxLeases is how many leases one Forward has at a time.
const maxLeases = 8

// forwarder is one call of Forward.
type forwarder struct {
	store     *Store
	publisher Publisher
	cfg       ForwardConfig
	brief     bool // nobody wants to see whole letters
	endings   chan []ending
	again     *repeats.Log
	slots     chan struct{} // one element for each lease
	pace      pace

	mu        sync.Mutex
	targets   map[target]*targetState
	fruitless int // groups in a row of which the broker has answered to no message
	fatal     error
	stop      context.CancelCauseFunc
}

// run stops in this order: lease nothing more, finish what is being published,
// settle it.
func (f *forwarder) run(ctx context.Context) error {
	ctx, f.stop = context.WithCancelCause(ctx)
	defer f.stop(nil)
	work, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	var settling, groups sync.WaitGroup
	settling.Go(func() { f.settleAll(work) })
	// A stop does not wait for what is not written yet.
	f.leaseAll(ctx, confirm.StopSending(work, ctx), &groups)
	late := time.AfterFunc(f.cfg.DrainTimeout, func() {
		end(fmt.Errorf("store: Forward was stopped, and no answer came within ForwardConfig.DrainTimeout, %v", f.cfg.DrainTimeout))
	})
	defer late.Stop()
	groups.Wait()
	close(f.endings)
	settling.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fatal
}

// leaseAll leases letters and hands them on, until ctx ends.
func (f *forwarder) leaseAll(ctx, work context.Context, groups *sync.WaitGroup) {
	var failures int // of the database, in a row
	var recovered time.Time
	for ctx.Err() == nil {
		if f.store.now().Sub(recovered).Abs() > time.Minute {
			recovered = f.store.now()
			f.tidy(ctx)
		}
		if !f.connected(ctx) {
			continue
		}
		n := f.wanted()
		select {
		case f.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		// A lease that the stop cut off would keep the letters from everybody until its end.
		l, err := f.lease(context.WithoutCancel(ctx), n)
		if err != nil && ctx.Err() == nil {
			failures++
			f.again.Warn("store: cannot lease letters", err, "failures", failures)
			<-f.slots
			f.idle(ctx, pause(failures, 100*time.Millisecond, 5*time.Second))
			continue
		}
		failures = 0
		if len(l.letters)+len(l.broken) == 0 {
			<-f.slots
			f.idle(ctx, f.cfg.Poll)
			continue
		}
		f.pace.wait(ctx, len(l.letters))
		f.dispatch(work, l, groups)
		if n == 1 { // one at a time until one arrives
			groups.Wait()
		}
	}
}

// connected waits until the broker is there, if the Publisher can tell. It
// returns false if it is to be asked again, unless ctx has ended.
func (f *forwarder) connected(ctx context.Context) bool {
	p, ok := f.publisher.(awaiter)
	if !ok {
		return true
	}
	err := p.AwaitConnection(ctx)
	switch {
	case err == nil:
		return true
	case ctx.Err() != nil:
	case connection.ClassOf(err) == connection.Bug || errors.Is(err, connection.ErrClosed):
		f.failed(err)
	default:
		f.again.Warn("store: no connection to forward letters", err)
		f.idle(ctx, longestAway)
	}
	return false
}

// wanted is how many letters to lease next.
func (f *forwarder) wanted() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fruitless >= 4 {
		return 1
	}
	if f.cfg.Rate > 0 {
		return min(max(f.cfg.Rate/10, 1), f.cfg.Batch)
	}
	return f.cfg.Batch
}

func (f *forwarder) lease(ctx context.Context, n int) (leased, error) {
	if f.cfg.KeepOrder {
		return f.store.leaseHeads(ctx, n, f.cfg.Lease, f.brief)
	}
	return f.store.lease(ctx, n, f.cfg.Lease, f.brief)
}

// idle waits for something to become ready, or for a time.
func (f *forwarder) idle(ctx context.Context, long time.Duration) {
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-f.store.wake:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// tidy does what is due once a minute.
func (f *forwarder) tidy(ctx context.Context) {
	n, err := f.store.recover(ctx)
	if n > 0 {
		f.store.cfg.Logger.Warn("store: letters waited for a time that a clock set back had put far ahead; they are due now", "letters", n)
	}
	if keep := f.store.cfg.KeepArchived; err == nil && keep > 0 {
		_, err = f.store.Prune(ctx, f.store.now().Add(-keep))
	}
	if err == nil {
		err = f.store.forgetTails(ctx)
	}
	if err != nil && ctx.Err() == nil {
		f.store.cfg.Logger.Warn("store: cannot tidy up", "error", err)
	}
}

// failed ends Forward, because nothing can be published any more.
func (f *forwarder) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fatal == nil {
		f.fatal = fmt.Errorf("store: Forward: %w", err)
	}
	f.stop(err)
}
