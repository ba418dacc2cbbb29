package intake

import (
	"time"

	"github.com/rehop/rehop/consumer/internal/hand"
)

// fetching is how a session fetches.
type fetching uint8

const (
	follows   fetching = iota // the prefetch follows the handlers
	keeps                     // the lane wants fewer messages, and the prefetch stays
	suspended                 // there is no consumer
)

// heed gives the session the number of messages that the lane wants: in an outage, or
// while it is paused, none or one.
func (s *Session) heed(now time.Time) error {
	wants := s.Lane.Wants(s.Prefetch.Base)
	next := follows
	if wants < s.Prefetch.Base {
		next = keeps
	}
	// A consumer of one message that is held by now gets no other one.
	spent := wants == 1 && s.Lane.Waiting() == 0
	if next == keeps && (wants < s.prefetch || spent) && s.fetching != suspended {
		if err := s.suspend(); err != nil {
			return err
		}
	}
	switch {
	case s.fetching != suspended:
		s.fetching = next
		return s.adapt(now)
	case wants == 0:
		return nil
	}
	s.fetching = next
	if next == follows {
		wants = s.suspicion.first(wants)
	}
	return s.begin(wants)
}

// suspend ends the fetching for a while, and gives back the messages that no worker has.
func (s *Session) suspend() error {
	now := time.Now()
	s.Lane.Closed(now, &s.out)
	if err := s.endFetching((*hand.Session).Delivered); err != nil {
		return err
	}
	s.Timeout.GivenBack(s.Lane.TakeBack(0, true, now, &s.out))
	s.fetching, s.deliveries, s.prefetch = suspended, nil, 0
	s.Consumer.Do(&s.out) // before the hook, which may take its time
	s.Consumer.Fetching(0)
	return nil
}
