package intake

import (
	"time"

	"github.com/rehop/rehop/consumer/internal/hand"
)

// heed gives the session the number of messages that the lane wants: in an outage, or
// while it is paused, none or one.
func (s *Session) heed(now time.Time) error {
	wants := s.Lane.Wants(s.Prefetch.Base)
	s.gated = wants < s.Prefetch.Base
	// A consumer of one message that is held by now gets no other one.
	spent := wants == 1 && s.Lane.Waiting() == 0
	if s.gated && (wants < s.prefetch || spent) && !s.suspended {
		if err := s.suspend(); err != nil {
			return err
		}
	}
	if wants > 0 && s.suspended {
		s.suspended = false
		if !s.gated {
			wants = s.suspicion.first(wants)
		}
		return s.begin(wants)
	}
	return s.adapt(now)
}

// suspend ends the fetching for a while, and gives back the messages that no worker has.
func (s *Session) suspend() error {
	now := time.Now()
	s.Lane.Closed(now, &s.out)
	if err := s.endFetching((*hand.Session).Delivered); err != nil {
		return err
	}
	s.Timeout.GivenBack(s.Lane.TakeBack(0, true, now, &s.out))
	s.suspended, s.deliveries, s.prefetch = true, nil, 0
	s.Consumer.Do(&s.out) // before the hook, which may take its time
	s.Consumer.Fetching(0)
	return nil
}
