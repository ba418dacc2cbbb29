package model

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// timeoutGrid is how often a channel looks at its oldest message, before 4.3.
const timeoutGrid = time.Minute

// queueTimeouts tells whether timeouts are of quorum queues, as since 4.3, and
// not of channels.
func (b *Broker) queueTimeouts() bool { return b.atLeast(4, 3) }

// consumerTimeout is how long a consumer may have a message. Its own argument
// comes before all others.
func (q *Queue) consumerTimeout(args amqp.Table) (time.Duration, *Error) {
	if !q.b.queueTimeouts() {
		return 0, nil
	}
	v, asked := args["x-consumer-timeout"]
	if asked && !q.args.quorum {
		return 0, Fail(PreconditionFailed, "invalid arg 'x-consumer-timeout' for %s of queue type rabbit_classic_queue", q.title())
	}
	if !q.args.quorum {
		return 0, nil
	}
	if asked {
		n, ok := integer(v)
		if !ok {
			return 0, Fail(PreconditionFailed, "invalid arg 'x-consumer-timeout' for %s: \"expected integer, got %s\"", q.title(), typeName(v))
		}
		if n < 0 {
			return 0, Fail(PreconditionFailed, "invalid arg 'x-consumer-timeout' for %s: {value_negative,%d}", q.title(), n)
		}
		return time.Duration(n) * time.Millisecond, nil
	}
	if q.args.timeout >= 0 {
		return q.args.timeout, nil
	}
	return q.b.opt.ConsumerTimeout, nil
}

// watch notes that a message was handed out.
func (c *Channel) watch(h *handed) {
	if !c.b.queueTimeouts() {
		if len(c.unacked) == 1 {
			c.schedule()
		}
		return
	}
	if n := h.consumer; n != nil && n.timeout > 0 {
		n.handed = append(n.handed, h)
	}
}

// oldest is the first message that the consumer still has.
func (n *consumer) oldest() *handed {
	for len(n.handed) > 0 {
		if h := n.handed[0]; !h.settled && !h.timedOut {
			return h
		}
		n.handed = n.handed[1:]
	}
	return nil
}

func (q *Queue) nextTimeout() (at time.Time) {
	for _, n := range q.consumers {
		if h := n.oldest(); h != nil {
			at = earlier(at, h.at.Add(n.timeout))
		}
	}
	return at
}

// timeOut takes back what consumers have had too long, and cancels them. They
// stay, without further messages until all of that is settled.
func (q *Queue) timeOut() {
	for _, n := range append([]*consumer(nil), q.consumers...) {
		cancel := false
		for h := n.oldest(); h != nil && !h.at.Add(n.timeout).After(q.b.now); h = n.oldest() {
			h.release()
			q.giveBack(h, returnedByTimeout)
			h.timedOut = true
			cancel = cancel || n.timedOut == 0
			n.timedOut++
		}
		if cancel {
			n.ch.peer.CancelConsumer(n.tag)
		}
	}
}

// settledLate settles a message that has gone back.
func (h *handed) settledLate() {
	h.consumer.timedOut--
	h.q.b.touch(h.q)
}

func (c *Channel) slot() *time.Time {
	if c.closed {
		return nil
	}
	return &c.alarm
}

// schedule sets the alarm to the look at which the oldest message will have
// been out too long.
func (c *Channel) schedule() {
	h := c.unacked[c.lowest]
	if h == nil || c.closed || c.b.queueTimeouts() || h.timeout() <= 0 {
		return
	}
	open := h.at.Add(h.timeout()).Sub(c.opened)
	c.b.wakeAt(c, c.opened.Add((open+timeoutGrid-1)/timeoutGrid*timeoutGrid))
}

func (c *Channel) tick() {
	h := c.unacked[c.lowest]
	if h == nil || h.timeout() <= 0 || h.at.Add(h.timeout()).After(c.b.now) {
		return
	}
	c.peer.Close(Fail(PreconditionFailed, "delivery acknowledgement on channel %d timed out. Timeout value used: %d ms. "+
		"This timeout value can be configured, see consumers doc guide to learn more",
		c.number, h.timeout().Milliseconds()))
}

// timeout is how long a channel may have a message, 0 for ever. Since 3.12 queues
// of both types have an argument for it, which nothing checks.
func (h *handed) timeout() time.Duration {
	b := h.q.b
	v, ok := h.q.arguments["x-consumer-timeout"]
	if !ok || h.q.deleted || !b.atLeast(3, 12) {
		return b.opt.ConsumerTimeout
	}
	n, _ := integer(v)
	return time.Duration(n) * time.Millisecond
}
