package producer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/pause"
)

// closeTimeout bounds Close. It is short, because a container has to stop more than its producers: the page
// kubernetes.md of the documentation adds them up.
const closeTimeout = 5 * time.Second

// The Fallback has a quarter of the time of a Shutdown for itself, at most
// maxFallbackShare.
const (
	fallbackShare    = 4
	maxFallbackShare = 2 * time.Second
)

// errShutdown is why messages end that a Shutdown could not wait for.
var errShutdown = pause.Own(rehop.WithClass(errors.New("the Producer was shut down before the broker had answered"), rehop.ClassTransient))

// Shutdown takes no more messages, waits until all messages on their way have receipts,
// and closes the channels and the sinks of the Fallback. The Conn stays open.
//
// ctx bounds the whole of it. If there is a Fallback, the last quarter of the time
// until ctx's deadline, at most 2 s, is for the Fallback: messages that have no answer
// by then go there, as not sent or as unconfirmed. When ctx ends, the remaining
// messages are given up. Shutdown then returns at once, with an error that says how
// many messages are not known to be safe, and wraps the error and cause of ctx; their
// receipts, with an error each, and the end of the sinks come soon after.
//
// Shutdown may be called more than once, also at the same time: each call waits for the
// same end. After it, all calls that publish return an error. As [Producer.Flush], Shutdown
// returns an error too if messages of PublishAsync without a function are not known to be
// safe.
func (p *Producer) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return errNoContext
	}
	return errors.Join(p.shutdown(ctx), p.untold.tell())
}

func (p *Producer) shutdown(ctx context.Context) error {
	p.stopping.Do(func() {
		receipts := p.window.close()
		go p.end(receipts) // ends with the last receipt, and closes ended
	})
	giveUp := p.giveUpAt(ctx)
	defer giveUp()
	select {
	case <-p.ended:
		return p.endErr
	case <-ctx.Done():
	}
	select {
	case <-p.ended:
		return p.endErr
	default:
	}
	p.publisher.GiveUp(errShutdown)
	p.endSinks(errShutdown)
	messages, others := p.window.unknown()
	switch {
	case messages > 0:
		return fmt.Errorf("producer: shut down with %d messages that are not known to be safe: %w", messages, pause.Ended(ctx))
	case others > 0:
		return fmt.Errorf("producer: shut down, all messages are safe, but hooks, or functions given to PublishAsync, of %d messages have not returned: %w", others, pause.Ended(ctx))
	case len(p.closers()) > 0 && !p.settled.Load():
		return fmt.Errorf("producer: shut down, but the sinks of the Fallback are not closed yet: %w", pause.Ended(ctx))
	}
	return nil // a channel that the broker does not close ends with its socket
}

// closers returns the sinks that are to be closed.
func (p *Producer) closers() (all []io.Closer) {
	for _, sink := range p.cfg.Fallback {
		if c, ok := as[io.Closer](sink); ok {
			all = append(all, c)
		}
	}
	return all
}

// Close is Shutdown with a ctx that ends after 5 s.
func (p *Producer) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return p.Shutdown(ctx)
}

// giveUpAt gives the Fallback its share of the time until ctx's deadline.
func (p *Producer) giveUpAt(ctx context.Context) (stop func()) {
	deadline, bounded := ctx.Deadline()
	if !bounded || len(p.cfg.Fallback) == 0 {
		return func() {}
	}
	left := time.Until(deadline)
	timer := time.AfterFunc(left-min(left/fallbackShare, maxFallbackShare), func() { p.publisher.GiveUp(errShutdown) })
	return func() { timer.Stop() }
}

// end waits for the receipts, and closes the channels and the sinks.
func (p *Producer) end(receipts <-chan struct{}) {
	defer close(p.ended)
	<-receipts
	var errs []error
	for _, c := range p.closers() {
		errs = append(errs, c.Close())
	}
	p.settled.Store(true)
	p.endSinks(nil)
	p.endErr = errors.Join(append(errs, p.publisher.Close())...)
}
