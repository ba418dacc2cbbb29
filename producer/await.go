package producer

import (
	"context"
	"fmt"

	"github.com/rehop/rehop/connection"
)

// AwaitConnection returns nil when the Producer is connected and the broker does
// not block publishers, as far as it has said so. It dials if need be. With such a
// connection it returns at once. It returns an error when ctx ends, when the
// Producer or its Conn is closed, and for a faulty configuration.
//
// It is for a program that has messages of its own to keep while the broker is
// away. Publish needs no such call.
func (p *Producer) AwaitConnection(ctx context.Context) error {
	for {
		if !p.enter() {
			return fmt.Errorf("producer: %w", errClosed)
		}
		p.calls.Done() // Close need not wait for this
		switch status := p.conn.State(connection.Publish).Status; status {
		case connection.Up:
			return nil
		case connection.Blocked:
			if err := p.awaitUnblocked(ctx); err != nil {
				return err
			}
		default:
			session, err := p.conn.Session(ctx, connection.Publish)
			if err != nil {
				return fmt.Errorf("producer: %w", err)
			}
			_ = session.Close() // it was opened for the connection beneath it
		}
	}
}

// awaitUnblocked waits until the socket is not blocked, or lost.
func (p *Producer) awaitUnblocked(ctx context.Context) error {
	for s := range p.conn.States(ctx) {
		if s.Use == connection.Publish && s.Status != connection.Blocked {
			return nil
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("producer: %w", context.Cause(ctx))
	}
	return fmt.Errorf("producer: %w", connection.ErrClosed)
}
