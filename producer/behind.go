package producer

import (
	"context"
	"errors"
	"fmt"

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
