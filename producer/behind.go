package producer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rehop/rehop"
)

// putBehind gives a message to a sink that has messages of its line which are to be
// published first, and reports whether there is such a sink.
func (p *Producer) putBehind(ctx context.Context, m *Message) (r Receipt, kept bool) {
	if m.Replays > 0 {
		return Receipt{}, false
	}
	for _, sink := range p.ordered {
		stored := false
		err := p.guarded(ctx, sink, func(ctx context.Context) (err error) {
			stored, err = sink.PutBehind(ctx, *m)
			return err
		})
		if err == nil && !stored {
			continue
		}
		p.behind.CompareAndSwap(0, time.Now().UnixNano())
		r = Receipt{ID: m.ID, Cause: rehop.CauseUnreachable, Err: fmt.Errorf("producer: message %q: %w", m.ID, ErrBehind)}
		if err != nil {
			r.Err, r.MaybeDuplicate = errors.Join(r.Err, err), errors.Is(err, ErrUnconfirmed)
		} else {
			r.Place, r.Sink = PlaceFallback, nameOf(sink)
		}
		return r, true
	}
	return Receipt{}, false
}

// reached notes that a message has reached its queues.
func (p *Producer) reached() {
	if p.behind.Load() != 0 { // or each message would write it
		p.behind.Store(0)
	}
}
