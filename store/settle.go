package store

import (
	"context"
	"time"
)

// settleAll settles what has ended, as much at a time as there is.
func (f *forwarder) settleAll(work context.Context) {
	for batch := range f.endings {
	more:
		for len(batch) < 2000 {
			select {
			case endings, open := <-f.endings:
				if !open {
					break more
				}
				batch = append(batch, endings...)
			default:
				break more
			}
		}
		f.settle(work, batch)
	}
}

// settle tries until it has worked or the leases are over; then the letters
// are somebody else's.
func (f *forwarder) settle(work context.Context, batch []ending) {
	deadline := time.Now().Add(f.cfg.Lease)
	for failures := 1; ; failures++ {
		err := f.store.settle(context.WithoutCancel(work), batch)
		if err == nil {
			if f.cfg.KeepOrder {
				f.store.nudge() // those behind need not wait any more
			}
			return
		}
		f.again.Warn("store: cannot settle letters", err, "letters", len(batch), "failures", failures)
		timer := time.NewTimer(pause(failures, 100*time.Millisecond, 5*time.Second))
		select {
		case <-timer.C:
		case <-work.Done():
			timer.Stop()
			return
		}
		if time.Now().After(deadline) {
			f.store.cfg.Logger.Error("store: letters were published and could not be deleted: they will be published again", "letters", len(batch), "error", err)
			return
		}
	}
}
