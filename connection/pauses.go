package connection

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// pauses are the waits between tries: 100 ms at first, doubling up to 10 s,
// each up to half shorter or longer, so that the clients of a restarted broker
// do not come back all at once. They never end by themselves.
type pauses struct{ backoff *backoff.ExponentialBackOff }

func newPauses() pauses {
	return pauses{backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval(10*time.Second),
		backoff.WithRandomizationFactor(0.5),
		backoff.WithMaxElapsedTime(0),
	)}
}

// next waits for the next pause, or says why ctx has ended.
func (p pauses) next(ctx context.Context) error {
	timer := time.NewTimer(p.backoff.NextBackOff())
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ended(ctx)
	}
}
