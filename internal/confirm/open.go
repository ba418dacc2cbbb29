package confirm

import (
	"context"
	"errors"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
)

// opening is a channel that is being opened. It belongs to the Publisher: callers
// leave when their ctx ends, and it goes on until there is a connection.
type opening struct {
	done chan struct{}
	err  error
}

// live returns the channel for the target of m, when there is one.
func (p *Publisher) live(ctx context.Context, m *Message) (*channel, error) {
	for {
		if c := p.channelFor(m); c != nil {
			return c, nil
		}
		p.exchanges.Prepare(m.Exchange) // while the channel is being opened
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, connection.ErrClosed
		}
		o := p.opening
		if o == nil {
			o = &opening{done: make(chan struct{})}
			p.opening = o
			p.running.Go(func() { p.openMain(o) })
		}
		p.mu.Unlock()
		select {
		case <-o.done:
			if o.err != nil {
				return nil, o.err
			}
		case <-ctx.Done():
			return nil, p.notOpen(ctx)
		}
	}
}

// notOpen says why there is no channel yet; ctx has ended.
func (p *Publisher) notOpen(ctx context.Context) error {
	if p.conn.State(connection.Publish).Status == connection.Up {
		return errors.New("the channel is still being opened")
	}
	// A Conn that is asked with a ctx that has ended tells at once.
	session, err := p.conn.Session(ctx, connection.Publish)
	if err == nil { // there is one at this moment
		p.running.Go(func() { _ = session.Close() })
		return errors.New("there was no connection")
	}
	return err
}

func (p *Publisher) openMain(o *opening) {
	c, err := p.open(p.life, p.limits)
	p.mu.Lock()
	defer p.mu.Unlock()
	defer close(o.done)
	p.opening, o.err = nil, err
	if err != nil {
		return
	}
	if p.closed {
		o.err = connection.ErrClosed
		p.running.Go(func() { _ = c.session.Close() })
		return
	}
	p.channels[c] = struct{}{}
	p.main.Store(c)
	p.waiting.Store(0)
}

// open opens a channel in confirm mode. A connection that is lost meanwhile is
// waited for again.
func (p *Publisher) open(ctx context.Context, limits Limits) (*channel, error) {
	for {
		session, err := p.conn.Session(ctx, connection.Publish)
		if err != nil {
			return nil, err
		}
		c := newChannel(p, session, limits)
		// Not with nowait: the library would wait for a reply all the same.
		if err = session.Do(ctx, func(ch *amqp.Channel) error { return ch.Confirm(false) }); err == nil {
			return c, nil
		}
		_ = session.Close() // nothing is in flight on it
		if !errors.Is(err, connection.ErrSessionLost) || ctx.Err() != nil {
			return nil, err
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}
