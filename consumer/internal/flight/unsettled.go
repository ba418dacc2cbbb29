package flight

import (
	"context"
	"sync/atomic"
)

// Unsettled counts the unsettled messages of all sessions of one Run.
type Unsettled struct {
	n    atomic.Int64
	none chan struct{} // an element: there may be none
}

// NewUnsettled returns the count of none.
func NewUnsettled() *Unsettled { return &Unsettled{none: make(chan struct{}, 1)} }

func (u *Unsettled) add(n int64) {
	if u.n.Add(n) == 0 {
		select {
		case u.none <- struct{}{}:
		default:
		}
	}
}

// Count returns how many messages are unsettled.
func (u *Unsettled) Count() int { return int(u.n.Load()) }

// Wait returns true when no message is unsettled, and false when some are still
// unsettled at the end of ctx. No message may arrive meanwhile, and only one
// goroutine may wait.
func (u *Unsettled) Wait(ctx context.Context) bool {
	for u.n.Load() > 0 {
		select {
		case <-u.none:
		case <-ctx.Done():
			return u.n.Load() == 0
		}
	}
	return true
}
