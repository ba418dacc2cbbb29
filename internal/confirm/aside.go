package confirm

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
)

// enter waits until another channel may be opened beside the pipe.
func (p *Publisher) enter(ctx context.Context) (leave func(), err error) {
	select {
	case p.aside <- struct{}{}:
		return func() { <-p.aside }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// look finds out, before the first message to an exchange, whether it exists:
// the broker would answer the message by closing the channel under all that is
// in flight on it. The question outlives ctx: giving it up would cost the
// socket, and with it what others have in flight.
func (p *Publisher) look(ctx context.Context, pipe *pipe, exchange string) error {
	if pipe.knows(exchange) {
		return nil
	}
	answer := make(chan error, 1)
	p.rest.Go(func() {
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), lookLimit, ErrLate)
		defer cancel()
		p.rest.Go(func() {
			select {
			case <-p.over:
				cancel()
			case <-ctx.Done():
			}
		})
		answer <- p.ask(ctx, pipe, exchange)
	})
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("looking for exchange %q: %w", exchange, context.Cause(ctx))
	}
}

// lookLimit bounds the question after an exchange.
const lookLimit = 10 * time.Second

// ask asks the broker whether an exchange exists.
func (p *Publisher) ask(ctx context.Context, pipe *pipe, exchange string) error {
	leave, err := p.enter(ctx)
	if err != nil {
		return err
	}
	session, err := p.conn.Session(ctx, connection.Publish)
	if err != nil {
		leave()
		return err
	}
	defer p.part(session, leave)
	err = session.Do(ctx, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(exchange, amqp.ExchangeTopic, true, false, false, false, nil)
	})
	var refused *amqp.Error
	if errors.As(err, &refused) && refused.Code == amqp.NotFound {
		return &RefusedError{Exchange: exchange, Cause: refused}
	}
	if err == nil || channelException(err) {
		// Without permission to look, the first message will tell.
		pipe.exchanges.Store(exchange, true)
		return nil
	}
	return err
}

// alone publishes m on a channel of its own.
func (p *Publisher) alone(ctx context.Context, m Message) error {
	ctx, cancel := m.Bound(ctx)
	defer cancel()
	leave, err := p.enter(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnconfirmed, err)
	}
	pipe, err := p.open(ctx, 1)
	if err != nil {
		leave()
		return fmt.Errorf("%w: %w", ErrUnconfirmed, err)
	}
	defer p.part(pipe.session, leave)
	pipe.window <- struct{}{}
	pending, err := pipe.send(p, m)
	if err == nil {
		pending.Flush()
		err = pending.outcome(ctx)
	}
	var reason *amqp.Error
	if channelException(err) && errors.As(err, &reason) {
		return &RefusedError{Exchange: m.Exchange, Key: m.Key, Cause: reason}
	}
	if errors.Is(err, errUnsent) {
		return fmt.Errorf("%w: %w", ErrUnconfirmed, err) // the first try was cut off
	}
	return err
}

// part closes a session that has its answer, or has none to come, and then
// leaves. Nobody waits for it: a broker that does not read takes its time.
func (p *Publisher) part(session *connection.Session, leave func()) {
	p.rest.Go(func() {
		_ = session.Close()
		leave()
	})
}

// channelException reports whether the broker closed the channel because of
// something that was sent on it.
func channelException(err error) bool {
	if err == nil {
		return false // nearly always, and As would allocate
	}
	var reason *amqp.Error
	return errors.As(err, &reason) && reason.Server && reason.Recover
}
