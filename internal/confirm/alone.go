package confirm

import (
	"context"
	"errors"
	"fmt"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/pause"
)

// maxAside bounds the messages that are sent alone at a time. A socket has 2047
// channels by default, and other users.
const maxAside = 16

type aloneKey struct{}

// Alone returns a ctx for Send, or for what calls it: each message is sent on a channel
// of its own. It is for messages that the broker has refused before: it closes the
// channel of such a message, and with that all others in flight on it.
func Alone(ctx context.Context) context.Context {
	return context.WithValue(ctx, aloneKey{}, true)
}

// IsAlone reports whether ctx is one of Alone.
func IsAlone(ctx context.Context) bool { return ctx.Value(aloneKey{}) != nil }

// sendAlone sends each message on a channel of its own, and returns when all have their
// outcome.
func (p *Publisher) sendAlone(ctx context.Context, messages []*Message) {
	sending, stop := p.stoppable(ctx)
	defer stop()
	var all sync.WaitGroup
	for _, m := range messages {
		m.begin(ctx, &p.waiters)
		all.Go(func() {
			m.Err = ofMessage(ctx, p.publishAlone(ctx, sending, m, true))
			if m.Report != nil {
				m.Report.Answered([]*Message{m})
			}
		})
	}
	all.Wait()
}

// repeatAlone publishes m on a channel of its own, so that it gets its own answer. It is
// for a message in flight on a channel that the broker has closed because of one
// of its messages: the broker does not say which.
func (p *Publisher) repeatAlone(ctx context.Context, m *Message) error {
	err := p.publishAlone(ctx, ctx, m, false)
	var refused *RefusedError
	if errors.As(err, &refused) { // it was this one, both times
		if refused.missing() {
			p.exchanges.Forget(m.Exchange)
		}
		return err
	}
	m.Repeated = true
	return err
}

// publishAlone publishes m on a channel of its own. sending bounds the time until it is
// written, and ctx the waiting for its answer. Unless it is the first time, a message that is
// not written may be in its queue already.
func (p *Publisher) publishAlone(ctx, sending context.Context, m *Message, first bool) error {
	if limit, cause := m.answerLimit(); !limit.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, limit, cause)
		defer cancel()
		sending, cancel = context.WithDeadlineCause(sending, limit, cause)
		defer cancel()
	}
	unwritten := func(why, cause error) error {
		if first {
			return &UnsentError{Why: why, Cause: cause}
		}
		return fmt.Errorf("%w: %w", ErrUnconfirmed, cause)
	}
	if sending.Err() != nil { // with a place free, the select might take it
		return unwritten(errNoTime, pause.Ended(sending))
	}
	select {
	case p.aside <- struct{}{}:
	case <-sending.Done():
		return unwritten(errNoTime, pause.Ended(sending))
	case <-p.life.Done():
		return unwritten(context.Cause(p.life), context.Cause(p.life))
	}
	c, err := p.open(sending, Limits{Messages: 1, Bytes: 1})
	if err != nil {
		<-p.aside
		return unwritten(err, err)
	}
	answered := false
	defer func() {
		p.running.Go(func() { // a broker that does not read takes its time
			_ = p.closeChannel(c, answered)
			<-p.aside
		})
	}()
	if first {
		if err := c.fit(m); err != nil {
			answered = true
			return err
		}
	}
	confirm, err := c.session.Channel().PublishWithDeferredConfirm(m.Exchange, m.RoutingKey, true, false, m.Publishing)
	if err != nil { // the first try was cut off
		return fmt.Errorf("%w: %w", ErrUnconfirmed, err)
	}
	select {
	case <-confirm.Done():
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnconfirmed, pause.Ended(ctx))
	case <-p.life.Done():
		return fmt.Errorf("%w: %w", ErrUnconfirmed, context.Cause(p.life))
	}
	answered = true
	solo := &Message{Exchange: m.Exchange, RoutingKey: m.RoutingKey, Publishing: m.Publishing, confirm: confirm}
	c.mu.Lock()
	c.add(solo)
	c.mu.Unlock()
	err = c.answer(solo)
	var reason *amqp.Error
	if channelException(err) && errors.As(err, &reason) {
		return &RefusedError{Exchange: m.Exchange, RoutingKey: m.RoutingKey, Cause: reason}
	}
	return err
}

// channelException reports whether the broker closed the channel because of
// something that was sent on it.
func channelException(err error) bool {
	if err == nil {
		return false // nearly always, and As would allocate
	}
	var refused *RefusedError
	if errors.As(err, &refused) {
		return false // already told apart
	}
	var reason *amqp.Error
	return errors.As(err, &reason) && reason.Server && reason.Recover
}
