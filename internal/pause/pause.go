// Package pause waits between tries, and says why a wait has ended.
package pause

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Growing is a series of pauses, each about one and a half times as long as the one
// before, with jitter. It has no end.
type Growing struct{ pauses *backoff.ExponentialBackOff }

// Grow returns the series from first to longest.
func Grow(first, longest time.Duration) *Growing {
	return &Growing{backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(first),
		backoff.WithMaxInterval(longest),
		backoff.WithMaxElapsedTime(0))}
}

// Next returns the next pause.
func (g *Growing) Next() time.Duration { return g.pauses.NextBackOff() }

// Reset starts the series again.
func (g *Growing) Reset() { g.pauses.Reset() }

// For waits for d, and returns true. It returns false as soon as ctx has ended.
func For(ctx context.Context, d time.Duration) bool { return While(ctx, ctx, d) }

// While is For with two contexts, either of which ends the wait.
func While(one, other context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-one.Done():
		return false
	case <-other.Done():
		return false
	}
}
