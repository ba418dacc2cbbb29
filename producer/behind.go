package producer

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
		p.behind.note(err, ctx.Err())
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

// behindFor is how long it counts for Health that a message was kept behind others. After that
// the sink may have none any more.
const behindFor = 15 * time.Second

// behind is what is known of messages that were not sent because of earlier ones in a sink.
type behind struct {
	since time.Time // when the first one was not sent, of such as came less than behindFor apart
	last  time.Time // when the last one was not sent
	err   error     // ErrBehind, or why a sink could not tell whether it has earlier ones
}

// after is behind once a message was not sent: a sink kept it, or failed with err. ended is the
// error of the caller's ctx. If that has ended, or the message is at fault, the failure says nothing of the sink.
func (b behind) after(now time.Time, err, ended error) behind {
	switch {
	case err != nil && (ended != nil || rehop.ClassOf(err) == rehop.ClassBug):
		return b
	case err == nil:
		err = ErrBehind
	}
	if now.Sub(b.last) >= behindFor {
		b.since = now
	}
	return behind{b.since, now, err}
}

// health is nil if nothing is known any more.
func (b behind) health(now time.Time) *rehop.HealthError {
	if now.Sub(b.last) >= behindFor {
		return nil
	}
	return &rehop.HealthError{Degraded: true, Since: b.since, Cause: fmt.Errorf("producer: a message was not sent in the last %v: %w", behindFor, b.err)}
}

// behinds is the behind of a Producer.
type behinds struct {
	mu sync.Mutex
	of behind
}

func (b *behinds) note(err, ended error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of = b.of.after(time.Now(), err, ended)
}

func (b *behinds) health() *rehop.HealthError {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of.health(time.Now())
}
