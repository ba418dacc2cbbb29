package producer

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop/internal/confirm"
)

// A message whose ctx has a deadline leaves the Fallback time before that: several times
// the time that a sink has needed lately, and at least leastReserve, but never
// more than a quarter of the time there is. It is that quarter while nothing is known
// of the sinks: the first messages of an outage come to them all at once.
const (
	leastReserve   = 25 * time.Millisecond
	sinkTimes      = 4
	reserveDivisor = 4
)

// sinkTime remembers how long the sinks need for a message.
type sinkTime struct{ lately atomic.Int64 }

// note takes a slow call at its word, and forgets it over some tens of quick ones.
func (s *sinkTime) note(took time.Duration) {
	lately := s.lately.Load()
	s.lately.Store(max(int64(took), lately-(lately-int64(took))/16)) // a race loses one of two notes
}

// reserve returns how much of the time left belongs to the Fallback.
func (s *sinkTime) reserve(left time.Duration) time.Duration {
	most, lately := left/reserveDivisor, time.Duration(s.lately.Load())
	if lately == 0 {
		return most
	}
	return min(most, max(leastReserve, sinkTimes*lately))
}

// reserve makes the waiting of a message end before ctx does, where a sink takes it
// then.
func (p *Producer) reserve(ctx context.Context, m *confirm.Message) {
	if p.patience == 0 && !p.unconfirmed {
		return
	}
	deadline, bounded := ctx.Deadline()
	if !bounded {
		return
	}
	until := deadline.Add(-p.sinkTime.reserve(time.Until(deadline)))
	if p.patience > 0 {
		m.WriteUntil = until
	}
	if p.unconfirmed {
		m.AnswerUntil = until
	}
}
