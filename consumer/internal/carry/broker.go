package carry

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/consumertimeout"
	"github.com/rehop/rehop/internal/ask"
	"github.com/rehop/rehop/internal/confirm"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/internal/transport"
)

// outlet is where the messages of one wait go.
type outlet struct {
	to     route.Target
	wait   route.CarriedWait
	within time.Duration
	Hooks
	open func() *confirm.Publisher

	publisher *confirm.Publisher // nil before the first message, and after a failure
}

// publish publishes messages, together, and hands over their answers, those that
// are found together at a time.
func (b *outlet) publish(ctx context.Context, messages []*waiting, user string, answered func([]answer)) {
	if b.publisher == nil {
		b.publisher = b.open()
	}
	batches := make(answers, len(messages))
	copies := make([]*confirm.Message, len(messages))
	for i, w := range messages {
		p := w.publishing(user)
		copies[i] = &confirm.Message{
			Exchange: b.to.Exchange, RoutingKey: b.to.RoutingKey, Publishing: p,
			Header: header.Size(p), Timeout: b.within, Report: batches, Number: i,
		}
		b.Due(b.carried(w))
	}
	b.publisher.Send(ctx, copies...)
	sound := true
	for left := len(messages); left > 0; {
		batch := <-batches
		left -= len(batch)
		for _, a := range batch {
			if a.err == nil {
				b.Carried(b.carried(messages[a.index]))
			} else {
				sound = false
			}
		}
		answered(batch)
	}
	if !sound {
		b.close() // a channel that was refused by a queue can go on being refused (3.10)
	}
}

// answers has room for as many as there are messages.
type answers chan []answer

// answer is that to the message with this index.
type answer struct {
	index int
	err   error
}

// Answered implements confirm.Reporter.
func (as answers) Answered(messages []*confirm.Message) {
	batch := make([]answer, len(messages))
	for i, m := range messages {
		batch[i] = answer{index: m.Number, err: m.Err}
	}
	as <- batch
}

// close gives up what is not confirmed.
func (b *outlet) close() {
	if b.publisher != nil {
		_ = b.publisher.Close()
		b.publisher = nil
	}
}

func (b *outlet) carried(w *waiting) Message {
	c := Message{Queue: b.wait.Queue, WaitNumber: b.wait.Number, ID: w.raw.MessageId}
	if !w.due.IsZero() {
		c.Late = time.Since(w.due)
	}
	return c
}

// brokerSession is a session at the broker.
type brokerSession struct {
	channel   *connection.Session
	queue     string
	messages  chan amqp.Delivery
	cancelled <-chan string
	limits    *consumertimeout.ConsumerTimeout
}

// consumeWait starts to consume a wait queue. Nothing waits for the broker's
// answer, which a queue without a leader does not give: that would end the socket
// under all others. A queue that does not exist ends the channel.
func consumeWait(ctx context.Context, conn *connection.Conn, queue, tag string, prefetch int, limits *consumertimeout.ConsumerTimeout) (session, error) {
	channel, err := conn.Session(ctx, connection.Consume)
	if err != nil {
		return nil, err
	}
	b := &brokerSession{channel: channel, messages: make(chan amqp.Delivery, prefetch), queue: queue, limits: limits, cancelled: channel.Channel().NotifyCancel(make(chan string, 1))}
	var arriving <-chan amqp.Delivery
	err = channel.Do(ctx, func(ch *amqp.Channel) (err error) {
		if err = ch.Qos(prefetch, 0, false); err != nil {
			return err
		}
		arriving, err = ch.Consume(queue, tag, false, false, false, true, nil)
		return err
	})
	if err != nil {
		b.close()
		return nil, ask.Refused(queue, err)
	}
	go func() { // ends with the channel
		defer close(b.messages)
		for raw := range arriving {
			b.messages <- raw // there is room for all that can be unacked
		}
	}()
	return b, nil
}

func (b *brokerSession) deliveries() <-chan amqp.Delivery { return b.messages }
func (b *brokerSession) done() <-chan struct{}            { return b.channel.Done() }
func (b *brokerSession) ack(tag uint64, multiple bool) error {
	return b.channel.Channel().Ack(tag, multiple)
}
func (b *brokerSession) user() string { return transport.Inside.Session(b.channel).User() }

// close gives back the messages that are not acked, in their order and to the head of the
// queue. A nack would put them at the tail of a quorum queue without a delivery limit
// before 4.3, and the broker would deliver them here again.
func (b *brokerSession) close() { _ = b.channel.Close() }

var errWaitCancelled = errors.New("it was deleted, is not available, or a message was held longer than its consumer timeout")

// mayBeGone reports whether an error may say that a wait queue was deleted.
func mayBeGone(err error) bool {
	var reason *amqp.Error
	return errors.Is(err, errWaitCancelled) || errors.As(err, &reason) && reason.Code == amqp.NotFound
}

// reason returns why the deliveries ended while the oldest message in hand had
// been there for held.
func (b *brokerSession) reason(held time.Duration) error {
	// The library puts the cancel in before it ends the deliveries, and closes
	// both when the channel is lost.
	select {
	case _, ok := <-b.cancelled:
		if ok && b.channel.Server().Version.AtLeast(4, 3) && b.limits.Cancelled(held) {
			return b.timeoutError()
		} else if ok {
			return fmt.Errorf("consumer: the broker cancelled the consuming of wait queue %q: %w", b.queue, errWaitCancelled)
		}
	case <-b.channel.Done():
	}
	<-b.channel.Done()
	err := b.channel.Err()
	var reason *amqp.Error
	switch {
	case !errors.As(err, &reason):
		return fmt.Errorf("consumer: wait queue %q: %w", b.queue, err)
	case b.limits.Closed(reason):
		return b.timeoutError()
	}
	return ask.Refused(b.queue, err)
}

func (b *brokerSession) timeoutError() error {
	return fmt.Errorf("consumer: a message of wait queue %q was held longer than the broker's consumer timeout of %v: messages are given back sooner from now on",
		b.queue, b.limits.Limit().Round(time.Millisecond))
}
