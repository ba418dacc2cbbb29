package intake

import (
	"time"

	"github.com/rehop/rehop/consumer/internal/hand"
)

// heed gives the session the number of messages that the lane wants: in an outage, or
// while it is paused, none or one.
func (s *Session) heed(now time.Time) error {
	base := s.base()
	in := s.Hand.Room(base)
	// A consumer of one message that is held by now gets no other one.
	spent := in.Wants == 1 && in.Waiting == 0
	if in.Wants < base && (in.Wants < s.prefetch || spent && s.prefetch > 0) {
		if err := s.suspend(); err != nil {
			return err
		}
	}
	switch {
	case s.prefetch > 0:
		return s.adapt(now)
	case in.Wants == 0:
		return nil
	case in.Wants == base:
		return s.begin(s.suspicion.first(base))
	}
	return s.begin(in.Wants)
}

// suspend ends the fetching for a while, and gives back the messages that no worker has.
func (s *Session) suspend() error {
	now := time.Now()
	s.Lane.Closed(now, &s.out)
	if err := s.endFetching((*hand.Session).Delivered); err != nil {
		return err
	}
	s.Timeout.GivenBack(s.Lane.TakeBack(0, true, now, &s.out))
	s.deliveries, s.prefetch = nil, 0
	s.Consumer.Do(&s.out) // before the hook, which may take its time
	s.Consumer.Fetching(0)
	return nil
}
