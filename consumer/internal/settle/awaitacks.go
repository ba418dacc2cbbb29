package settle

import (
	"context"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/ask"
)

// A broker's channel passes acks on to a quorum queue, and keeps acks back that come
// while unsentAcks of them are not yet stored. If the channel is closed meanwhile, the
// broker drops the acks that it has kept back, and delivers the messages again:
// measured on 3.10, 4.0 and 4.3, with 267 of 300 acks.
const unsentAcks = 32

// arrivalLimit bounds the waiting for acks, of which nobody knows that they are
// missing.
const arrivalLimit = 3 * time.Second

// AwaitAcks returns when the acks that were written before Close have reached the
// queue, so that the channel may be closed.
func (a *Acker) AwaitAcks(ctx context.Context, channel *connection.Session, queue, tag string) {
	if a.frames <= unsentAcks || channel.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, arrivalLimit)
	defer cancel()
	_ = ask.Visit(ctx, channel, queue, tag) // the channel is closed in any case
}
