package intake

import (
	"context"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A process that is suspended, by a signal or with its machine, may go on when the broker has given its messages
// to another process, and this one has still to read that. So where there is a single active consumer, the session
// looks at the clock again and again. A worker that finds the last look old asks the broker before the handler begins:
// the answer comes behind all that the process has still to read.

// awake is when the process ran for certain.
type awake struct {
	limit time.Duration // how old the last look may be; 0: nobody looks
	last  atomic.Pointer[time.Time]
}

// looks returns a channel that says when to look.
func (a *awake) looks() (looks <-chan time.Time, stop func()) {
	if a.limit == 0 {
		return nil, func() {}
	}
	ticker := time.NewTicker(a.limit / 2)
	return ticker.C, ticker.Stop
}

// look notes that the process runs, unless it may have been suspended.
func (a *awake) look(now time.Time) {
	if !a.isDoubtful(now) {
		a.last.Store(&now)
	}
}

// isDoubtful reports whether the process may have been suspended since the last look. The monotonic clock may
// stand still with the machine, and the other clock may be set back.
func (a *awake) isDoubtful(now time.Time) bool {
	last := *a.last.Load()
	return max(now.Sub(last), now.Round(0).Sub(last.Round(0))) > a.limit
}

// IsDoubtful reports whether Ask is to be called before a handler begins. It may be called by any goroutine.
func (s *Session) IsDoubtful() bool {
	return s.awake.limit > 0 && s.awake.isDoubtful(time.Now())
}

// Ask returns nil if the broker still knows the session. It may be called by any goroutine.
func (s *Session) Ask(ctx context.Context) error {
	now := time.Now()
	err := s.Channel.Do(ctx, func(ch *amqp.Channel) error { return ch.Qos(s.qos, 0, false) }) // which changes nothing
	if err == nil {
		s.awake.last.Store(&now)
	}
	return err
}
