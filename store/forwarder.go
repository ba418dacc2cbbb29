package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/repeats"
	"github.com/rehop/rehop/internal/resend"
)

// maxLeases is how many leases one Forwarder has at a time.
const maxLeases = 8

// forwarder is one run of a Forwarder.
type forwarder struct {
	store     *Store
	publisher Publisher
	cfg       ForwardConfig
	hooks     forwardHooks
	health    *forwardHealth
	results   chan []result
	again     *repeats.Log
	own       sync.Once     // says that the Publisher falls back into the Store
	slots     chan struct{} // one element for each lease that gets answers
	pace      resend.Pace

	silentLetters atomic.Int64 // that wait for their answers without a slot

	mu        sync.Mutex
	addresses map[group]*addressState
	trusted   map[string]bool // user ids that the broker has taken
	fruitless int             // groups in a row of which the broker has answered to no message
	fatal     error
	stop      context.CancelCauseFunc
}

// run stops in this order: lease nothing more, finish what is being published,
// settle it.
func (f *forwarder) run(ctx context.Context) error {
	ctx, f.stop = context.WithCancelCause(ctx)
	defer f.stop(nil)
	work, end := context.WithCancelCause(resend.OfService(context.WithoutCancel(ctx)))
	defer end(nil)
	var settling, groups sync.WaitGroup
	settling.Go(func() { f.settleAll(work) })
	// A stop does not wait for what is not written yet.
	f.leaseAll(ctx, confirm.StopSending(work, ctx), &groups)
	late := time.AfterFunc(f.cfg.DrainTimeout, func() {
		end(pause.Own(fmt.Errorf("store: the Forwarder was stopped, and no answer came within ForwardConfig.DrainTimeout, %v", f.cfg.DrainTimeout)))
	})
	defer late.Stop()
	groups.Wait()
	close(f.results)
	settling.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fatal
}

// leaseAll leases entries and hands them on, until ctx ends.
func (f *forwarder) leaseAll(ctx, work context.Context, groups *sync.WaitGroup) {
	var failures int // of the database, in a row
	var recovered time.Time
	var behind int64 // the line that the next look begins behind
	for ctx.Err() == nil {
		if f.store.now().Sub(recovered).Abs() > time.Minute {
			recovered = f.store.now()
			f.tidy(ctx)
		}
		if f.pace.Wait(ctx); !f.connected(ctx) {
			continue
		}
		n, one := f.wanted()
		f.giveWay(ctx)
		select {
		case f.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		brief := f.hooks.forwarded == nil && f.hooks.failed == nil
		// A lease that the stop cut off would keep the entries from everybody until its end.
		l, err := f.store.lease(context.WithoutCancel(ctx), n, f.cfg.Lease, brief, behind)
		f.health.becomes(&f.health.database, err, time.Now())
		if err != nil && ctx.Err() == nil {
			failures++
			f.again.Warn("store: cannot lease entries", err, "failures", failures)
			<-f.slots
			f.idle(ctx, pauseAfter(failures, 100*time.Millisecond, 5*time.Second))
			continue
		}
		failures = 0
		behind = l.lines.last
		if len(l.entries)+len(l.broken) == 0 {
			<-f.slots
			if !l.lines.more {
				f.idle(ctx, f.cfg.Poll)
			}
			continue
		}
		f.pace.Left(len(l.entries))
		ended := f.dispatch(work, l, groups)
		if one { // at a time, until one arrives
			answered := make(chan struct{})
			groups.Go(func() {
				ended.Wait()
				close(answered)
			})
			select {
			case <-answered:
			case <-ctx.Done():
			}
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
	f.health.becomes(&f.health.broker, errAwaiting, time.Now())
	err := p.AwaitConnection(ctx)
	switch {
	case err == nil:
		f.health.becomes(&f.health.broker, nil, time.Now())
		return true
	case ctx.Err() != nil:
	case rehop.ClassOf(err) == rehop.ClassBug || errors.Is(err, connection.ErrClosed):
		f.failed(err)
	default:
		f.again.Warn("store: no connection to forward entries", err)
		f.idle(ctx, longestAway)
	}
	return false
}

// wanted is how many entries to lease next. one says that no other may be leased before it has
// its answer.
func (f *forwarder) wanted() (n int, one bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, knows := f.publisher.(awaiter); !knows && f.fruitless >= 4 {
		return 1, true // its broker may be away
	}
	if f.cfg.Rate > 0 {
		return min(max(int(min(f.cfg.Rate/10, 1000)), 1), f.cfg.Batch), false
	}
	return f.cfg.Batch, false
}

// idle waits for something to become ready, or for a time.
func (f *forwarder) idle(ctx context.Context, long time.Duration) {
	timer := time.NewTimer(long)
	defer timer.Stop()
	look := time.NewTimer(firstLook)
	defer look.Stop()
	for pause := firstLook; ; pause = min(2*pause, longestLook) {
		select {
		case <-f.store.wake:
			return
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		case <-f.store.uncommitted.added:
			pause = firstLook
		case <-look.C:
			committed, left := f.store.look(ctx)
			if committed {
				return
			}
			if !left {
				continue
			}
		}
		look.Reset(pause)
	}
}

// tidy does what is due once a minute.
func (f *forwarder) tidy(ctx context.Context) {
	n, err := f.store.recover(ctx)
	if n > 0 {
		f.store.cfg.Logger.Warn("store: entries waited for a time that a clock set back had put far ahead; they are due now", "entries", n)
	}
	if keep := f.store.cfg.KeepArchived; err == nil && keep > 0 {
		_, err = f.store.Delete(ctx, Query{All: true, States: []State{Archived}, Before: f.store.now().Add(-keep)})
	}
	if err != nil && ctx.Err() == nil {
		f.store.cfg.Logger.Warn("store: cannot tidy up", "error", err)
	}
}

// failed ends the Forwarder, because nothing can be published any more.
func (f *forwarder) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fatal == nil {
		f.fatal = fmt.Errorf("store: the Forwarder: %w", err)
	}
	f.stop(err)
}

// giveWay pauses before the Forwarder writes. SQLite has one writer at a time and no queue for
// it: requests that write to the same file must find it free most of the time. While no
// transaction of the service has been seen for a second there is no pause.
func (f *forwarder) giveWay(ctx context.Context) {
	if !f.store.servesWriters() {
		return
	}
	timer := time.NewTimer(20 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// servesWriters reports whether requests of the service write to the same SQLite file.
func (s *Store) servesWriters() bool {
	return s.dialect == SQLite && s.now().Sub(time.Unix(0, s.lastTx.Load())).Abs() <= time.Second
}

// settleAll settles what has ended, as much at a time as there is.
func (f *forwarder) settleAll(work context.Context) {
	for batch := range f.results {
		f.giveWay(work)
	more:
		for len(batch) < 2000 {
			select {
			case results, open := <-f.results:
				if !open {
					break more
				}
				batch = append(batch, results...)
			default:
				break more
			}
		}
		f.settle(work, batch)
	}
}

// settle tries until it has worked or the leases are over; then the entries
// are somebody else's.
func (f *forwarder) settle(work context.Context, batch []result) {
	deadline := time.Now().Add(f.cfg.Lease)
	for failures := 1; ; failures++ {
		err := f.store.settle(context.WithoutCancel(work), batch)
		if err == nil {
			if f.store.cfg.KeepOrder {
				f.store.nudge() // those behind need not wait any more
			}
			return
		}
		f.again.Warn("store: cannot settle entries", err, "entries", len(batch), "failures", failures)
		timer := time.NewTimer(pauseAfter(failures, 100*time.Millisecond, 5*time.Second))
		select {
		case <-timer.C:
		case <-work.Done():
			timer.Stop()
			return
		}
		if time.Now().After(deadline) {
			f.store.cfg.Logger.Error("store: entries were published and could not be deleted: they will be published again", "entries", len(batch), "error", err)
			return
		}
	}
}
