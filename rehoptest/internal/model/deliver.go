package model

import (
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/rehoptest/internal/wire"
)

// pump hands out what is ready, and removes what has expired. A message may be
// taken at the instant at which it expires, not later.
func (q *Queue) pump() {
	if q.refusing || q.deleted {
		return
	}
	if !q.args.quorum {
		q.limit() // of all that has come back together
	}
	q.handOut()
	if q.args.quorum {
		q.limit()
	}
	if !q.unseen {
		q.expire(func(e *entry) bool { return e.expiring(q.b.now) })
	}
	if q.discards != nil {
		q.discards.send()
	}
	if q.args.quorum && q.args.overflow == "reject-publish" {
		q.tell()
	}
}

// handOut gives consumers what they may have.
func (q *Queue) handOut() {
	if q.refusing || q.deleted {
		return
	}
	now := q.b.now
	q.unblock()
	if q.unseen && !q.wanting() {
		return // nothing makes it look
	}
	if !q.unseen {
		q.expire(func(e *entry) bool { return e.expired(now) })
	}
	q.unseen = false
	for q.ready.len() > 0 {
		c := q.taker()
		if c == nil {
			break
		}
		q.deliver(c, q.ready.pop())
		q.expire(func(e *entry) bool { return e.expired(now) })
	}
}

func (q *Queue) expire(expired func(*entry) bool) {
	for _, e := range q.ready.dropExpired(expired) {
		q.deadLetter(e, "expired")
	}
}

func (q *Queue) deliver(c *consumer, e *entry) {
	tag := c.ch.hand(q, e, c, c.noAck)
	c.blocked = q.args.quorum && !c.ready() // a classic queue notices when it wants to give it more
	e.step(q.b, stepDelivered, q.name, c.tag)
	c.ch.peer.Deliver(Delivery{
		Consumer: c.tag, Tag: tag, Redelivered: q.redelivered(e), Exchange: e.Exchange, Key: e.Key(),
		Properties: q.properties(e, false), Body: e.Body,
	})
}

// redelivered tells whether a message was with a consumer before, be it that of an
// earlier queue. A classic queue looks at that since 4.3, and not at a message that a
// consumer waits for.
func (q *Queue) redelivered(e *entry) bool {
	carried := e.Message.failures > 0 && (q.args.quorum || q.b.atLeast(4, 3) && !e.awaited)
	return e.returned || q.b.atLeast(4, 0) && carried
}

// Get hands out one message, if there is one.
func (c *Channel) Get(name string, noAck bool) (*Delivery, *Error) {
	q, err := c.queue(name)
	if err != nil {
		return nil, err
	}
	if q.args.singleActive && q.args.quorum {
		quorum := "quorum"
		if c.b.atLeast(4, 3) {
			quorum = `<<"quorum">>`
		}
		return nil, Fail(ResourceLocked, "cannot obtain access to locked %s. basic.get operations are not supported by %s queues with single active consumer", q.title(), quorum)
	}
	q.used = c.b.now
	if !q.unseen {
		q.pump()
	}
	q.unseen = false
	if q.refusing || q.ready.len() == 0 {
		c.b.work()
		return nil, nil
	}
	e := q.ready.pop()
	e.step(c.b, stepDelivered, q.name, "basic.get")
	if !q.args.quorum || noAck {
		q.expire(func(e *entry) bool { return e.expiring(c.b.now) })
	}
	d := &Delivery{
		Tag: c.hand(q, e, nil, noAck), Redelivered: q.redelivered(e), Exchange: e.Exchange, Key: e.Key(),
		Properties: q.properties(e, true), Body: e.Body, Left: q.ready.len(),
	}
	c.b.touch(q)
	c.b.work()
	return d, nil
}

// properties are those of the message with the counts that the version shows.
func (q *Queue) properties(e *entry, get bool) *wire.Properties {
	b := q.b
	deliveries, acquired := int64(-1), int64(-1)
	switch {
	case !b.atLeast(4, 0):
		if q.args.quorum && (get || e.failures > 0) {
			deliveries = int64(e.failures)
		}
	case !q.args.quorum:
	case !b.atLeast(4, 3):
		if deliveries = int64(e.returns); deliveries == 0 {
			deliveries = int64(e.Message.failures)
		}
		if deliveries == 0 {
			deliveries = -1
		}
	default:
		if e.failures > 0 {
			deliveries = int64(e.failures)
		}
		if acquired = int64(e.returns); acquired == 0 {
			acquired = int64(e.Message.failures)
		}
		if acquired == 0 {
			acquired = -1
		}
	}
	if deliveries < 0 && acquired < 0 {
		return &e.Properties
	}
	p := withHeaders(e.Properties, func(h amqp.Table) {
		if deliveries >= 0 {
			h["x-delivery-count"] = deliveries
		}
		if acquired >= 0 {
			h["x-acquired-count"] = acquired
		}
	})
	return &p
}
