package confirm

import (
	"context"
	"sync"
)

type aloneKey struct{}

// Alone returns a ctx for Send, or for what calls it: each message is sent on a channel
// of its own. It is for messages that the broker has refused before: it closes the
// channel of such a message, and with that all others in flight on it.
func Alone(ctx context.Context) context.Context {
	return context.WithValue(ctx, aloneKey{}, true)
}

// IsAlone reports whether ctx is one of Alone.
func IsAlone(ctx context.Context) bool { return ctx.Value(aloneKey{}) != nil }

// sendApart sends each message on a channel of its own, and returns when all have their
// outcome.
func (p *Publisher) sendApart(ctx context.Context, messages []*Message) {
	ctx, cancel := p.stoppable(ctx)
	defer cancel()
	var all sync.WaitGroup
	for _, m := range messages {
		m.begin(ctx, &p.waiters)
		all.Go(func() {
			m.Err = p.publishAlone(ctx, m, true)
			if m.Report != nil {
				m.Report.Answered([]*Message{m})
			}
		})
	}
	all.Wait()
}
