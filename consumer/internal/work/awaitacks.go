package work

import (
	"context"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/durations"
)

// A broker's channel passes acks on to a quorum queue, and keeps acks back that come
// while unsentAcks of them are not yet stored. If the channel is closed meanwhile, the
// broker drops the acks that it has kept back, and delivers the messages again:
// measured on 3.10, 4.0 and 4.3, with 267 of 300 acks.
const unsentAcks = 32

// AwaitAcks waits until the queue has the acks that were written before Close, so that the
// channel may be closed. The queue answers ask only when it has them.
func (w *Writer) AwaitAcks(ctx context.Context, channel *connection.Session, ask func(context.Context) error) {
	if w.frames <= unsentAcks || channel.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, durations.AcksLimit)
	defer cancel()
	_ = ask(ctx) // the channel is closed in any case
}
