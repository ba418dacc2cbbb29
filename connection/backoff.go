package connection

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/rehop/rehop/internal/pause"
)

// pauses are the waits between the rounds of one outage. cheap says that the round
// before has cost no broker anything.
type pauses struct {
	next func(cheap bool) (wait time.Duration, more bool)
}

// newPauses begins a run of pauses: those of Config.Backoff, or the default.
func newPauses(cfg Config) pauses {
	if cfg.Backoff == nil {
		return defaultPauses()
	}
	failures := 0
	return pauses{func(bool) (wait time.Duration, more bool) {
		failures++
		err := protect(cfg.Logger, "Backoff", func() error { wait = cfg.Backoff(failures); return nil })
		if err != nil {
			wait = 10 * time.Second
		}
		return wait, wait >= 0
	}}
}

const (
	// cheapFor is how long an outage lasts in which pauses stay short while nobody
	// answers: a broker that restarts is back by then. Each client that waits is
	// a dial every 0.3 s, which the host refuses by itself.
	cheapFor = time.Minute

	firstPause    = 100 * time.Millisecond
	longestPause  = 10 * time.Second
	longestCheap  = 330 * time.Millisecond // up to half longer
	pauseSpread   = 0.5                    // each pause is up to half shorter or longer
	pauseMultiple = 2
)

// defaultPauses begin with 100 ms and double: up to 10 s after rounds in which a broker
// had work, and up to a third of a second after other rounds in the first minute. They
// never end. Each is up to half shorter or longer, so that the clients
// of a restarted broker do not come back all at once.
func defaultPauses() pauses {
	growing, cheaply, began := growth(longestPause), growth(longestCheap), time.Now()
	return pauses{func(cheap bool) (time.Duration, bool) {
		if cheap && time.Since(began) < cheapFor {
			return cheaply.NextBackOff(), true
		}
		return growing.NextBackOff(), true
	}}
}

func growth(longest time.Duration) *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstPause),
		backoff.WithMultiplier(pauseMultiple),
		backoff.WithMaxInterval(longest),
		backoff.WithRandomizationFactor(pauseSpread),
		backoff.WithMaxElapsedTime(0),
	)
}

// unheardError is a failed try in which no byte came from the other side: the host
// refused the connection, or a proxy took it for a broker that is away.
type unheardError struct{ error }

func (e *unheardError) Unwrap() error { return e.error }

// isCheap reports whether a failed try has cost no broker anything.
func isCheap(err error) bool {
	var unheard *unheardError
	return errors.As(err, &unheard)
}

// sleep returns nil after d, or says why ctx has ended.
func sleep(ctx context.Context, d time.Duration) error {
	if !pause.For(ctx, d) {
		return pause.Ended(ctx)
	}
	return nil
}
