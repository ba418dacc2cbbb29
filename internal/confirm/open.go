package confirm

import (
	"context"
	"errors"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/internal/transport"
)

// opening is a channel that is being opened. It belongs to the Publisher: callers
// leave when their ctx ends, and it goes on until there is a connection.
type opening struct {
	began time.Time
	done  chan struct{}
	err   error
}

// live returns the channel for the target of m, when there is one.
func (p *Publisher) live(ctx context.Context, m *Message, since time.Time) (*channel, error) {
	for {
		if c := p.channelFor(m); c != nil {
			return c, nil
		}
		p.exchanges.Prepare(m.Exchange) // while the channel is being opened
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, context.Cause(p.life)
		}
		o := p.opening
		if o == nil {
			o = &opening{began: p.unansweredSince(time.Now()), done: make(chan struct{})}
			p.opening = o
			p.running.Go(func() { p.openMain(o) })
		}
		p.mu.Unlock()
		if err := p.awaitOpening(ctx, m, since, o); err != nil {
			return nil, err
		}
	}
}

// awaitOpening waits for a channel that is being opened. The outage is as old as the
// first message that wanted the channel, or as the dialling for anybody else.
func (p *Publisher) awaitOpening(ctx context.Context, m *Message, since time.Time, o *opening) error {
	since = earlier(earlier(since, o.began), transport.Inside.Conn(p.conn).Outage())
	ctx, cancel := m.Patient(ctx, since)
	defer cancel()
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
		return Unsent(ctx, p.notOpen(ctx))
	}
}

// notOpen says why there is no channel yet; ctx has ended.
func (p *Publisher) notOpen(ctx context.Context) error {
	if p.conn.State(connection.Publish).Status == connection.Up {
		return errors.New("the channel is still being opened")
	}
	return transport.Inside.Conn(p.conn).NotConnected(ctx)
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
		o.err = context.Cause(p.life)
		p.running.Go(func() { _ = c.session.Close() })
		return
	}
	p.channels[c] = struct{}{}
	p.suspect.Store(0) // the broker has answered the opening
	p.main.Store(c)
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
		if !pause.For(ctx, shortPause) {
			return nil, pause.Ended(ctx)
		}
	}
}
