package connection

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// pauses are the waits between the rounds of one outage.
type pauses struct {
	next func() (wait time.Duration, more bool)
}

// newPauses starts those of Config.Pause, or the default.
func newPauses(cfg Config) pauses {
	if cfg.Pause == nil {
		return defaultPauses()
	}
	failures := 0
	return pauses{func() (wait time.Duration, more bool) {
		failures++
		err := protect(cfg.Logger, "Pause", func() error { wait = cfg.Pause(failures); return nil })
		if err != nil {
			wait = 10 * time.Second
		}
		return wait, wait >= 0
	}}
}

// defaultPauses are 100 ms at first, doubling up to 10 s, each up to half
// shorter or longer, so that the clients of a restarted broker do not come back
// all at once. They never end.
func defaultPauses() pauses {
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval(10*time.Second),
		backoff.WithRandomizationFactor(0.5),
		backoff.WithMaxElapsedTime(0),
	)
	return pauses{func() (time.Duration, bool) { return b.NextBackOff(), true }}
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
