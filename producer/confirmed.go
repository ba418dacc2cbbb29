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

// confirmed publishes until there is an answer that another try would not
// change, and reports whether a try before was cut off.
func confirmed(ctx context.Context, p *confirm.Publisher, m confirm.Message) (maybeDuplicate bool, err error) {
	pending, err := p.Send(ctx, m)
	return answer(ctx, p, m, pending, err)
}

// answer waits for the answer to a message that was sent, or was not because
// of err, and publishes it again if it has none.
func answer(ctx context.Context, p *confirm.Publisher, m confirm.Message, pending *confirm.Pending, err error) (maybeDuplicate bool, _ error) {
	if err == nil {
		err = pending.Wait(ctx)
		maybeDuplicate = pending.Repeated
	}
	if !cutOff(err) {
		return maybeDuplicate, err
	}
	maybeDuplicate = maybeDuplicate || errors.Is(err, ErrUnconfirmed)
	if ctx.Err() != nil {
		return maybeDuplicate, err
	}
	return again(ctx, p, m, maybeDuplicate)
}

// cutOff reports whether the connection was lost before there was an answer,
// or before the message was sent.
func cutOff(err error) bool {
	return errors.Is(err, ErrUnconfirmed) || errors.Is(err, connection.ErrSessionLost)
}

// again publishes a message whose last try was cut off until there is an answer.
func again(ctx context.Context, p *confirm.Publisher, m confirm.Message, maybeDuplicate bool) (bool, error) {
	var last error
	try := func() error {
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
	// last says more than what Retry makes of it once ctx has ended.
	_ = backoff.Retry(try, backoff.WithContext(pause, ctx))
	if last != nil && maybeDuplicate && !errors.Is(last, ErrUnconfirmed) {
		// Whatever became of the last try, an earlier one may have arrived.
		last = fmt.Errorf("%w: %w", ErrUnconfirmed, last)
	}
	return maybeDuplicate, last
}
