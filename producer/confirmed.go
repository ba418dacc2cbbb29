package producer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/confirm"
)

// answer waits for the answer to a message that was sent, or was not because
// of err, and publishes it again until there is one that another try would not
// change. It reports whether the message may be there twice.
func answer(ctx context.Context, p *confirm.Publisher, m confirm.Message, pending *confirm.Pending, err error) (maybeDuplicate bool, _ error) {
	if err == nil {
		err = pending.Wait(ctx)
		maybeDuplicate = pending.Repeated
	}
	if !cutOff(err) {
		return maybeDuplicate, err
	}
	return again(ctx, p, m, maybeDuplicate || errors.Is(err, ErrUnconfirmed), err)
}

// cutOff reports whether the connection was lost before there was an answer,
// or before the message was sent.
func cutOff(err error) bool {
	return errors.Is(err, ErrUnconfirmed) || errors.Is(err, connection.ErrSessionLost)
}

// again publishes a message whose last try was cut off.
func again(ctx context.Context, p *confirm.Publisher, m confirm.Message, maybeDuplicate bool, last error) (bool, error) {
	ctx, cancel := m.Bound(ctx)
	defer cancel()
	try := func() error {
		if ctx.Err() != nil {
			return backoff.Permanent(last) // which says more than the end of ctx
		}
		var pending *confirm.Pending
		if pending, last = p.Send(ctx, m); last == nil {
			last = pending.Wait(ctx)
			maybeDuplicate = maybeDuplicate || pending.Repeated
		}
		maybeDuplicate = maybeDuplicate || errors.Is(last, ErrUnconfirmed)
		if cutOff(last) {
			return last
		}
		return backoff.Permanent(last)
	}
	pause := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond),
		backoff.WithMaxInterval(5*time.Second),
		backoff.WithMaxElapsedTime(0))
	_ = backoff.Retry(try, backoff.WithContext(pause, ctx)) // last says more here too
	if last != nil && maybeDuplicate && !errors.Is(last, ErrUnconfirmed) {
		// Whatever became of the last try, an earlier one may have arrived.
		last = fmt.Errorf("%w: %w", ErrUnconfirmed, last)
	}
	return maybeDuplicate, last
}
