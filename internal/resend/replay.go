package resend

import (
	"context"
	"fmt"
	"time"

	"github.com/rehop/rehop/internal/pause"
)

// Replay is the course of a replay: one letter first if a canary is wanted, then the
// others, a batch at a time and at a rate.
type Replay struct {
	Batch  int           // letters at a time, at most
	Rate   float64       // messages per second; 0: no bound
	Limit  int           // letters to try; 0: no bound
	Canary time.Duration // how long the first letter is watched; 0: not at all

	// Some tries up to n letters, and reports how many it has tried and whether there
	// may be more.
	Some func(ctx context.Context, n int) (tried int, more bool, err error)

	// Sent returns nil once the first letter was confirmed, and else why it was not.
	Sent func() error

	// Back reports whether the letter that was tried last is a letter again.
	Back func(ctx context.Context) (bool, error)

	// Returned is the error of a canary that came back.
	Returned func() error
}

// Run runs the replay until nothing is left, or ctx or an error ends it.
func (r Replay) Run(ctx context.Context) error {
	pace := Pace{Rate: r.Rate}
	batch := r.Batch
	if r.Rate > 0 {
		batch = min(max(int(min(r.Rate/10, 1000)), 1), batch)
	}
	watched := r.Canary == 0
	for tried := 0; ; {
		n := batch
		if !watched {
			n = 1
		}
		if r.Limit > 0 {
			if n = min(n, r.Limit-tried); n <= 0 {
				return nil
			}
		}
		pace.Wait(ctx)
		if ctx.Err() != nil {
			return pause.Ended(ctx)
		}
		some, more, err := r.Some(ctx, n)
		pace.Left(some)
		if tried += some; err != nil {
			return err
		}
		if !watched && tried > 0 { // others may have changed the first ones
			watched = true
			if err := r.watch(ctx); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
	}
}

// watch waits and sees what becomes of the first letter.
func (r Replay) watch(ctx context.Context) error {
	if err := r.Sent(); err != nil {
		return fmt.Errorf("the canary could not be published: %w", err)
	}
	back, err := Watch(ctx, r.Canary, r.Back)
	if err == nil && back {
		err = r.Returned()
	}
	return err
}

// Watch asks again and again, until long has passed, whether a canary is back.
func Watch(ctx context.Context, long time.Duration, back func(ctx context.Context) (bool, error)) (bool, error) {
	over := time.NewTimer(long)
	defer over.Stop()
	look := time.NewTicker(min(max(long/10, 10*time.Millisecond), time.Second))
	defer look.Stop()
	for last := false; ; {
		if is, err := back(ctx); err != nil || is || last {
			return is, err
		}
		select {
		case <-look.C:
		case <-over.C:
			last = true
		case <-ctx.Done():
			return false, pause.Ended(ctx)
		}
	}
}
