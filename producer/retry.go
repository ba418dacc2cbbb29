package producer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/pause"
)

// again sends a message whose last try was cut off, until the broker has answered
// or the time has run out. It reports whether the message may have arrived twice.
func (p *Producer) again(ctx context.Context, m *Message, sending *confirm.Message, last error) (maybeDuplicate bool, _ error) {
	another := func(ctx context.Context, err error) bool { return p.worthAnother(ctx, sending, err) }
	return again(ctx, p.publisher, sending, last, another, func(err error) { p.trace.retrying(ctx, m, err) })
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
	sending.Patience, sending.WriteUntil, sending.AnswerUntil = 0, time.Time{}, time.Time{}
	return true
}

func again(ctx context.Context, p *confirm.Publisher, sending *confirm.Message, last error, another func(context.Context, error) bool, retrying func(error)) (maybeDuplicate bool, _ error) {
	sending.Report = nil
	maybeDuplicate = sending.Repeated || errors.Is(last, ErrUnconfirmed)
	pauses := pause.Grow(50*time.Millisecond, 5*time.Second)
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
		if last = err; !another(ctx, last) {
			break
		}
		wait, limit := pauses.Next(), sending.WriteLimit()
		if !limit.IsZero() && time.Until(limit) < wait {
			break
		}
		if !p.Pause(ctx, wait) {
			last = withEnd(ctx, last)
			break
		}
	}
	if last != nil && maybeDuplicate {
		last = orArrived(last)
	}
	return maybeDuplicate, last
}

// withEnd adds to an error why nothing more was tried, if that is ctx.
func withEnd(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	end := pause.Ended(ctx)
	if errors.Is(err, context.Cause(ctx)) && (errors.Is(err, ctx.Err()) || !errors.Is(end, ctx.Err())) {
		return err // which says it already
	}
	return fmt.Errorf("%w; nothing more was tried: %w", err, end)
}

// orArrived returns the error of the last try of a message that may have arrived
// by an earlier one.
func orArrived(last error) error {
	if errors.Is(last, ErrUnconfirmed) {
		return last
	}
	return fmt.Errorf("%w: by an earlier try; the last one: %w", ErrUnconfirmed, last)
}
