package confirm

import (
	"context"

	"github.com/rehop/rehop/connection"
)

// ErrStopped is the cause of an end by StopSending.
var ErrStopped error = &outcome{"stopped before it was sent", connection.Transient}

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

// stoppable returns a ctx that ends with the stop of StopSending too.
func stoppable(ctx context.Context) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancelCause(ctx)
	stop, ok := ctx.Value(stopKey{}).(context.Context)
	if !ok {
		return inner, func() { cancel(nil) }
	}
	release := context.AfterFunc(stop, func() { cancel(ErrStopped) })
	return inner, func() { release(); cancel(nil) }
}
