package confirm

import (
	"context"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/pause"
)

// ErrStopped is the cause of an end by StopSending.
var ErrStopped error = &ownLimit{outcome{"stopped before it was sent", rehop.ClassTransient}}

type stopKey struct{}

// StopSending returns a ctx for Send, or for what calls it: when stop ends,
// messages that wait to be written fail as not sent and none is sent again, while
// those that are written await their answers until ctx ends.
func StopSending(ctx, stop context.Context) context.Context {
	return context.WithValue(ctx, stopKey{}, stop)
}

// Stopped returns a channel that is closed when sending with ctx has been
// stopped; nil if it never is.
func Stopped(ctx context.Context) <-chan struct{} {
	if stop, ok := ctx.Value(stopKey{}).(context.Context); ok {
		return stop.Done()
	}
	return nil
}

// Pause waits for d, and returns true. It returns false as soon as ctx, the sending by
// StopSending, or the Publisher has ended.
func (p *Publisher) Pause(ctx context.Context, d time.Duration) bool {
	ctx, stop := p.stoppable(ctx)
	defer stop()
	return pause.For(ctx, d)
}

// stoppable returns a ctx that ends with the stop of StopSending and with the
// Publisher too.
func (p *Publisher) stoppable(ctx context.Context) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancelCause(ctx)
	if p.life.Err() != nil {
		cancel(context.Cause(p.life))
	}
	over := context.AfterFunc(p.life, func() { cancel(context.Cause(p.life)) })
	stop, ok := ctx.Value(stopKey{}).(context.Context)
	if !ok {
		return inner, func() { over(); cancel(nil) }
	}
	if stop.Err() != nil { // AfterFunc would tell it a moment later
		cancel(ErrStopped)
	}
	release := context.AfterFunc(stop, func() { cancel(ErrStopped) })
	return inner, func() { over(); release(); cancel(nil) }
}
