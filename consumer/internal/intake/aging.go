package intake

import (
	"time"

	"github.com/rehop/rehop/consumer/internal/durations"
)

// A message that waits too long for a worker would leave its handler too little time before
// the broker takes it away, and in the end none. So before that all messages that no worker
// has go back to the queue and come again. A return may count towards the delivery limit,
// and if there are many, fewer messages are sent ahead.

// oldest returns how long the message has waited that has waited longest.
func (s *Session) oldest(now time.Time) time.Duration {
	oldest, _ := s.Hand.Oldest()
	if oldest == nil {
		return 0
	}
	return now.Sub(oldest.Received)
}

// giveBackOld is age for a session that keeps no order.
func (s *Session) giveBackOld(now time.Time) (again time.Duration, err error) {
	limit, age := s.BeginLimit(), s.oldest(now)
	again = max(limit-age, limit/16)
	if s.Bound.most > 0 {
		again = min(again, durations.BoundRises)
	}
	switch {
	case age >= limit:
		return again, s.consumeAgain(now)
	case s.Lane.State(now).Open && s.Bound.mayRise(s.Handled.Load(), age, limit, now):
		s.Bound.rise(s.Prefetch.Base, s.Handled.Load(), now)
		return again, s.adapt(now)
	}
	return again, nil
}

// consumeAgain gives back the messages that no worker has, to consume them again.
//
// Where none waits for a worker, they wait for their keys, and a bound would keep other keys away.
// Before 4.3 it is set all the same, because each return counts.
func (s *Session) consumeAgain(now time.Time) error {
	base := s.base()
	if in := s.Hand.Room(base); !s.version.AtLeast(4, 3) || s.Prefetch.Fixed || in.Waiting == 0 || !in.Oldest.IsZero() {
		s.Bound.halve(base, len(s.Hand.Taken()), s.Handled.Load(), now)
	}
	if err := s.suspend(); err != nil {
		return err
	}
	return s.heed(now)
}
