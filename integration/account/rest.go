package account

import (
	"context"
	"fmt"
	"time"
)

const (
	restEvery = 100 * time.Millisecond
	restFor   = time.Second // of silence, when all has ended
)

// Rest returns when all is at rest, or when nothing has moved for silence:
// then what is missing will not come, and Lost says what that is. ready returns
// how many messages lie in the queues; its errors count as some. What the broker
// moves just then is in no count, so they have to stay empty for restFor. The
// error is that of ctx, with what still moves.
func (a *Account) Rest(ctx context.Context, silence time.Duration, ready func(context.Context) (int, error)) error {
	tick := time.NewTicker(restEvery)
	defer tick.Stop()
	var empty time.Time // since when the queues have been; zero if they were not
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("account: the messages of %s are not at rest: %+v: %w", a.queue, a.Counts(), context.Cause(ctx))
		}
		c, quiet := a.Counts(), a.Quiet()
		moves := c.Running+c.InFlight > 0 || quiet < restFor
		if !moves && quiet >= silence {
			return nil
		}
		if moves || c.Open+c.Unsettled > 0 {
			empty = time.Time{}
			continue
		}
		n, err := ready(ctx)
		switch {
		case err != nil || n > 0 || a.Quiet() < quiet:
			empty = time.Time{}
		case empty.IsZero():
			empty = time.Now()
		case time.Since(empty) >= restFor:
			return nil
		}
	}
}
