package producer

import (
	"context"
	"fmt"

	"github.com/rehop/rehop/connection"
)

// AwaitConnection returns nil when the Producer is connected and the broker has
// not reported that it blocks publishers. It dials if necessary, and returns at
// once if such a connection is there. It returns an error when ctx ends, when the
// Producer or its Conn is closed, when connection.Config.Backoff gives up, and when the
// socket has no channel left. A login that the broker refuses is tried until ctx ends.
//
// It is for a program that has messages of its own to keep while the broker is
// away. Publish needs no such call.
func (p *Producer) AwaitConnection(ctx context.Context) error {
	if _, closed := p.window.closedSince(); closed {
		return fmt.Errorf("producer: %w", errClosed)
	}
	if p.conn.State(connection.Publish).Status == connection.Up {
		return nil
	}
	session, err := p.conn.Session(ctx, connection.Publish) // which waits for the end of an alarm too
	if err != nil {
		return fmt.Errorf("producer: %w", err)
	}
	_ = session.Close() // it was opened for the connection beneath it
	return nil
}
