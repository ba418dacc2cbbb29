package consumer

import (
	"context"
	"time"
)

// A broker's channel passes acks on to a quorum queue, and keeps those back that
// come while unsentAcks of them are not yet stored. What it keeps back is dropped
// when the channel is closed meanwhile, and the messages are delivered again:
// measured on 3.10, 4.0 and 4.3, with 267 of 300 acks.
const unsentAcks = 32

// arriveLimit bounds the waiting for acks, of which nobody knows that they are
// missing.
const arriveLimit = 3 * time.Second

// arrive returns when what the acker has written has reached the queue, so that the
// channel may be closed.
func (s *session) arrive() {
	if s.from.acks.frames <= unsentAcks || s.channel.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), arriveLimit)
	defer cancel()
	_ = visit(ctx, s.channel, s.queue, s.tag+"-end") // the channel is closed in any case
}
