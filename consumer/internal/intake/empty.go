package intake

import (
	"context"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/internal/ask"
)

// ask asks the queue of a lane whether it has messages. Its channel is one that a
// refusal may close: on broker 4.3.0 the user needs permission to configure.
func (s *Session) ask() {
	s.tasks.Go(func() {
		began := time.Now()
		ctx, cancel := context.WithTimeout(s.Hand.Copying, durations.LaneAsk)
		defer cancel()
		ready, err := s.ready(ctx)
		var out hand.Out
		s.Lane.Answered(ready, time.Since(began), err, time.Now(), &out)
		s.Consumer.Do(&out)
	})
}

// ready returns how many messages of the queue are not sent to anybody.
func (s *Session) ready(ctx context.Context) (n int, err error) {
	if s.counting == nil || s.counting.Err() != nil {
		if s.counting, err = s.Conn.Session(ctx, connection.Consume); err != nil {
			return 0, err
		}
	}
	depth, err := ask.DepthOf(ctx, s.counting, s.Queue)
	return depth.Ready, err
}
