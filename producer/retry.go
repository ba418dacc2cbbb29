package producer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/rehop/rehop/internal/confirm"
)

// again sends a message whose last try was cut off, until the broker has answered
// or the time has run out. It reports whether the message may have arrived twice.
func (p *Producer) again(ctx context.Context, m *Message, sending *confirm.Message, last error) (maybeDuplicate bool, _ error) {
	another := func(ctx context.Context, err error) bool { return p.worthAnother(ctx, sending, err) }
	return again(ctx, p.publisher, sending, last, another, func(err error) { p.hooks.retrying(ctx, m, err) })
}

// worthAnother reports whether a message is to be sent again whose last try ended
// with err: it was cut off, or given up for a sink that there is not.
func (p *Producer) worthAnother(ctx context.Context, sending *confirm.Message, err error) bool {
	if cutOff(ctx, err) {
		return true
	}
	if err == nil || ctx.Err() != nil || !errors.Is(err, confirm.ErrImpatient) || p.taken(CauseOf(err)) {
		return false
	}
	sending.Patience = 0
	return true
}

func again(ctx context.Context, p *confirm.Publisher, sending *confirm.Message, last error, another func(context.Context, error) bool, retrying func(error)) (maybeDuplicate bool, _ error) {
	sending.Report = nil
	maybeDuplicate = sending.Repeated || errors.Is(last, ErrUnconfirmed)
	pauses := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond),
		backoff.WithMaxInterval(5*time.Second),
		backoff.WithMaxElapsedTime(0))
	for another(ctx, last) {
		if retrying != nil {
			retrying(last)
		}
		p.Send(ctx, sending)
		err := sending.Wait(ctx)
		maybeDuplicate = maybeDuplicate || sending.Repeated || errors.Is(err, ErrUnconfirmed)
		if maybeDuplicate && errors.Is(err, confirm.ErrImpatient) {
			err = orArrived(err) // which decides whether a sink takes it
		}
		if last = err; another(ctx, last) && !pause(ctx, pauses.NextBackOff(), sending.Deadline()) {
			break
		}
	}
	if last != nil && maybeDuplicate {
		last = orArrived(last)
	}
	return maybeDuplicate, last
}

// orArrived returns the error of the last try of a message that may have arrived
// by an earlier one.
func orArrived(last error) error {
	if errors.Is(last, ErrUnconfirmed) {
		return last
	}
	return fmt.Errorf("%w: by an earlier try; the last one: %w", ErrUnconfirmed, last)
}

// pause waits for d. It returns false if ctx or the deadline, if any, ends first.
func pause(ctx context.Context, d time.Duration, deadline time.Time) bool {
	if !deadline.IsZero() && time.Until(deadline) < d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	case <-confirm.Stopped(ctx):
		return false
	}
}
