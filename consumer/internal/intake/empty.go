package intake

import (
	"context"
	"time"

	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/consumer/internal/hand"
)

// ask asks the queue of a lane how many messages it has that are not sent to anybody. On broker
// 4.3.0 the user needs permission to configure for that, and a refusal costs only the channel of counting.
func (s *Session) ask() {
	s.tasks.Go(func() {
		began := time.Now()
		ctx, cancel := context.WithTimeout(s.Hand.Copying, durations.LaneAsk)
		defer cancel()
		depth, err := s.counting.DepthOf(ctx, s.Queue)
		var out hand.Out
		s.Lane.Answered(depth.Ready, time.Since(began), err, time.Now(), &out)
		s.Consumer.Do(&out)
	})
}
