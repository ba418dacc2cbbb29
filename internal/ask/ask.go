// Package ask asks a queue something on the broker.
package ask

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
)

// visitPriority is below that of every consumer which wants messages.
const visitPriority = -1000

// Visit starts a consumer and cancels it. Every type of queue answers that itself,
// and only when it can deliver; a quorum queue answers after it has done all that it
// was told on the channel before. A passive declare does neither: on 4.3, a leader
// that is cut off from all its followers answers it (measured). It needs permission
// to read only. The low priority leaves the messages to the real consumer, if that has
// room. Else Visit may take one and give it back, and reports that it has.
func Visit(ctx context.Context, channel *connection.Session, queue, tag string) (took bool, err error) {
	var strays <-chan amqp.Delivery // a call that is left may still write to it
	err = channel.Do(ctx, func(ch *amqp.Channel) (err error) {
		if err = ch.Qos(1, 0, false); err != nil {
			return err
		}
		// Without waiting: the answer to the cancel comes after the consume, and
		// in the time of a round trip messages could come.
		strays, err = ch.Consume(queue, tag, false, false, false, true, amqp.Table{"x-priority": int32(visitPriority)})
		if err != nil {
			return err
		}
		return ch.Cancel(tag, false)
	})
	if err != nil {
		return false, err
	}
	for raw := range strays {
		took = true
		// Not left to the closing of the channel, which counts towards the delivery
		// limit of a 4.3 broker.
		_ = channel.Channel().Nack(raw.DeliveryTag, false, true)
	}
	return took, nil
}

// Join starts a consumer that ends with the channel. It returns when a queue has done all that it was told on the
// channel before. Unlike Visit it gives no message back: that message would come again before those
// of other consumers of the channel. The low priority leaves the messages to those, if they have room. At the end of
// the channel all messages go back in order, if the tag sorts behind theirs (3.10).
func Join(ctx context.Context, channel *connection.Session, queue, tag string) error {
	return channel.Do(ctx, func(ch *amqp.Channel) error {
		if err := ch.Qos(1, 0, false); err != nil {
			return err
		}
		_, err := ch.Consume(queue, tag, false, false, false, false, amqp.Table{"x-priority": int32(visitPriority)})
		return err
	})
}

// Depth is what a broker answers to a look at a queue.
type Depth struct {
	Ready     int // messages that no consumer has
	Consumers int
	Unknown   bool // the zeros stand for no answer
}

// silence is how long a broker waits for the leader of a quorum queue. Then it answers that
// the queue holds nothing and has no consumers (3.10 to 4.3, rabbit_quorum_queue:stat/2;
// measured with a leader that is suspended). A node under load is as slow.
//
// A leader that is down, or that has just started, is not told from an empty queue by the
// time that it takes: it gives the zeros at once. After a [Visit] it does not.
const silence = 250 * time.Millisecond

// looks is how often a broker is asked that gives no answer: about 2 s.
const looks = 8

// ways is how often the way to a broker is measured.
const ways = 4

// DepthOf asks the broker for the depth of a queue, and once more while it is unknown and ctx leaves time for
// an answer.
func DepthOf(ctx context.Context, channel *connection.Session, queue string) (d Depth, err error) {
	for i := range looks {
		if end, ok := ctx.Deadline(); ok && i > 0 && time.Until(end) < 2*silence {
			break
		}
		var q amqp.Queue // a call that is left may still write to it
		asked := time.Now()
		err = channel.Do(ctx, func(ch *amqp.Channel) (err error) {
			q, err = ch.QueueDeclarePassive(queue, true, false, false, false, nil)
			return err
		})
		if err != nil {
			return Depth{Unknown: true}, err
		}
		took := time.Since(asked)
		if d = (Depth{q.Messages, q.Consumers, false}); d != (Depth{}) || took < silence {
			return d, nil
		}
		// The way to a broker that is far away takes as long. A channel.flow asks no queue. The
		// fastest of several is the way alone: one may be slow where the broker is.
		way := took
		for range ways {
			asked = time.Now()
			if err = channel.Do(ctx, func(ch *amqp.Channel) error { return ch.Flow(true) }); err != nil {
				return Depth{Unknown: true}, err
			}
			way = min(way, time.Since(asked))
		}
		if took-way < silence/2 {
			return d, nil
		}
	}
	return Depth{Unknown: true}, nil
}

// Aside asks queues on a channel of its own, which a refusal closes. One goroutine at a time uses it.
type Aside struct {
	Conn    *connection.Conn
	channel *connection.Session // nil before the first question, and after an error
}

// DepthOf is DepthOf on that channel.
func (a *Aside) DepthOf(ctx context.Context, queue string) (d Depth, err error) {
	if a.channel != nil && a.channel.Err() != nil { // it was lost since the question before
		a.Close()
	}
	if a.channel == nil {
		if a.channel, err = a.Conn.Session(ctx, connection.Consume); err != nil {
			return Depth{Unknown: true}, err
		}
	}
	if d, err = DepthOf(ctx, a.channel, queue); err != nil {
		a.Close()
	}
	return d, err
}

// Close closes the channel. Nothing is in flight on it.
func (a *Aside) Close() {
	if a.channel != nil {
		_ = a.channel.Close()
		a.channel = nil
	}
}

// IsGone reports whether a broker has said that there is no such queue or exchange. Of a queue whose node is
// down it says so as well, in other words: see [IsAway].
func IsGone(err error) bool {
	reason, ok := notFound(err)
	return ok && rehop.ClassOf(reason) != rehop.ClassTransient
}

// IsAway reports whether a broker has said that a queue is not there now: its node, or its process, is down.
func IsAway(err error) bool {
	reason, ok := notFound(err)
	return ok && rehop.ClassOf(reason) == rehop.ClassTransient
}

func notFound(err error) (reason *amqp.Error, ok bool) {
	ok = errors.As(err, &reason) && reason != nil && reason.Code == amqp.NotFound
	return reason, ok
}

// Refused says why a queue cannot be consumed.
func Refused(queue string, err error) error {
	var reason *amqp.Error
	switch {
	case err == nil:
		return nil
	case IsGone(err):
		return fmt.Errorf("consumer: queue %q does not exist: declare it first: %w", queue, err)
	case errors.As(err, &reason) && reason.Code == amqp.PreconditionFailed && strings.Contains(reason.Reason, "rabbit_stream_queue"):
		return fmt.Errorf("consumer: queue %q is a stream: read it with a client that keeps its offset, want a quorum or a classic queue: %w", queue, err)
	case errors.As(err, &reason) && reason.Code == amqp.AccessRefused:
		return fmt.Errorf("consumer: consume from queue %q: the user needs permission to read it: %w", queue, err)
	}
	return fmt.Errorf("consumer: consume from queue %q: %w", queue, err)
}
