package confirm

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Pending is a message on its way to the broker, which has not answered yet.
type Pending struct {
	// Repeated is set by Wait when the message was written a second time, so
	// that it may be in its queue twice.
	Repeated bool

	publisher *Publisher
	pipe      *pipe
	message   Message
	confirm   *amqp.DeferredConfirmation
	corked    bool // the socket, and is to uncork it

	// Guarded by pipe.mu.
	prev, next *Pending
	returned   *amqp.Return
}

// Publishing returns what was sent.
func (p *Pending) Publishing() amqp.Publishing { return p.message.Publishing }

// Wait returns the outcome of the message. When ctx, or the message's Deadline,
// ends first, the outcome is unconfirmed.
func (p *Pending) Wait(ctx context.Context) error {
	err := p.outcome(ctx)
	if !channelException(err) {
		return err
	}
	// The broker closed the channel because of one of the messages in flight
	// on it, and does not say which. Alone on a channel each gets its own answer.
	err = p.publisher.alone(ctx, p.message)
	var refused *RefusedError
	p.Repeated = !errors.As(err, &refused) // it was this one, both times
	return err
}

// Flush lets the message leave, with those that others are about to write. It is
// for the goroutine that wrote it; a second call does nothing.
func (p *Pending) Flush() {
	if !p.corked {
		return
	}
	p.corked = false
	if len(p.pipe.window) > 1 {
		runtime.Gosched() // those others
	}
	p.pipe.session.Uncork()
}

// Done is closed when the broker has answered, or the channel that the message
// was sent on is lost.
func (p *Pending) Done() <-chan struct{} { return p.confirm.Done() }

// Answered reports whether the broker has answered on the channel that the
// message was sent on: then Wait waits for nothing more, unless the channel is
// lost before it is called and the answer was a refusal.
func (p *Pending) Answered() bool {
	select {
	case <-p.confirm.Done():
		return p.confirm.Acked() || !p.pipe.session.Channel().IsClosed()
	default:
		return false
	}
}

// outcome waits for the broker's answer on this channel.
func (p *Pending) outcome(ctx context.Context) error {
	select {
	case <-p.confirm.Done(): // most of a batch, once the first has its answer
	default:
		if cause := p.await(ctx); cause != nil {
			return p.abandon(cause)
		}
	}
	// The channel is marked closed before its confirms are released, so a
	// confirm that is released by an open channel is the broker's own.
	lost := p.pipe.session.Channel().IsClosed()
	returned := p.leave()
	switch {
	case p.confirm.Acked() && returned != nil:
		return &ReturnedError{Exchange: p.message.Exchange, Key: p.message.Key, Code: returned.ReplyCode, Text: returned.ReplyText}
	case p.confirm.Acked():
		return nil
	case !lost:
		return ErrNacked
	}
	<-p.pipe.session.Done()
	return fmt.Errorf("%w: %w", ErrUnconfirmed, p.pipe.session.Err())
}

// await waits for the answer, and returns why there is none if ctx or the
// message's Deadline ends first.
func (p *Pending) await(ctx context.Context) (cause error) {
	var late <-chan time.Time
	if deadline := p.message.Deadline; !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-p.confirm.Done():
		return nil
	case <-late:
		return ErrLate
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// abandon gives up waiting. The place in the window stays taken until the
// broker answers: letting more messages in would hide that it does not.
func (p *Pending) abandon(cause error) error {
	p.publisher.rest.Go(func() {
		select {
		case <-p.confirm.Done():
			p.leave()
		case <-p.publisher.over: // nobody wants the place any more
		}
	})
	return fmt.Errorf("%w: %w", ErrUnconfirmed, cause)
}

// leave gives the place in the window back and returns what the broker
// returned for the message, if it did.
func (p *Pending) leave() *amqp.Return {
	p.pipe.mu.Lock()
	p.pipe.drainReturns()
	p.pipe.remove(p)
	returned := p.returned
	p.pipe.mu.Unlock()
	<-p.pipe.window
	return returned
}
