package intake

import (
	"time"

	"github.com/rehop/rehop/consumer/internal/hand"
)

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
