package connection

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// pauses are the waits between tries.
type pauses struct{ backoff backoff.BackOff }

// newPauses starts those that the user has configured, or the default: 100 ms
// at first, doubling up to 10 s, each up to half shorter or longer, so that the
// clients of a restarted broker do not come back all at once. They never end by
// themselves.
func newPauses(configured func() backoff.BackOff) pauses {
	if configured != nil {
		return pauses{configured()}
	}
	return pauses{backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval(10*time.Second),
		backoff.WithRandomizationFactor(0.5),
		backoff.WithMaxElapsedTime(0),
	)}
}

// next returns the next pause, or false if there are to be no more tries.
func (p pauses) next() (time.Duration, bool) {
	d := p.backoff.NextBackOff()
	return d, d != backoff.Stop
}

// sleep returns nil after d, or says why ctx has ended.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ended(ctx)
	}
}
