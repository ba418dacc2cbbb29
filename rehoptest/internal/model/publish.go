package model

import (
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/rehoptest/internal/wire"
)

// Publishing is what a client publishes.
type Publishing struct {
	Exchange, Key string
	Mandatory     bool
	Immediate     bool
	User          string // as whom the client is logged in
	Properties    wire.Properties
	Body          []byte
	Encoded       int // octets of the properties
}

// receipt gathers what the queues say of one publish.
type receipt struct {
	ch      *Channel // nil: nobody asks
	seq     uint64
	waiting int
	refused bool
	worker  *discards // of an at-least-once queue, in place of ch
	letter  *discard
}

func (r *receipt) settled(taken bool) {
	r.waiting--
	r.refused = r.refused || !taken
	if r.waiting > 0 {
		return
	}
	switch {
	case r.worker != nil:
		r.worker.answered(r.letter, !r.refused)
	case r.ch != nil && !r.ch.closed:
		r.ch.peer.Confirm(r.seq, !r.refused)
	}
}

// waitingPublish is a publish to a queue that does not answer.
type waitingPublish struct {
	msg     *Message
	receipt *receipt
	from    any
}

// forget loses what the queue has not taken of a publisher: the channel kept that for a
// queue without a leader, to send it again.
func (q *Queue) forget(from any) {
	q.waiting = slices.DeleteFunc(q.waiting, func(w waitingPublish) bool {
		switch {
		case w.from != from:
			return false
		case q.b.stopping:
			w.msg.step(q.b, stepLost, q.name, "")
		default:
			w.msg.step(q.b, stepForgotten, q.name, "")
		}
		return true
	})
}

// Publish publishes.
func (c *Channel) Publish(p Publishing) *Error {
	b := c.b
	x, err := b.exchange(p.Exchange)
	switch {
	case err != nil:
		return err
	case p.Immediate:
		return Fail(NotImplemented, "immediate=true")
	case x.internal:
		return Fail(AccessRefused, "cannot publish to internal %s", x.title(b))
	case len(p.Body) > b.opt.MaxMessage:
		return Fail(PreconditionFailed, "message size %d is larger than configured max size %d", len(p.Body), b.opt.MaxMessage)
	case p.Properties.Has(wire.FlagUserID) && p.Properties.UserID != p.User:
		return Fail(PreconditionFailed, "user_id property set to '%s' but authenticated user was '%s'", b.latin1(p.Properties.UserID), p.User)
	}
	if p.Properties.Has(wire.FlagExpiration) {
		if _, err := ttl(p.Properties.Expiration); err != nil {
			err.Text = b.latin1(err.Text)
			return err
		}
	}
	m, err := b.message(p)
	if err != nil {
		return err
	}
	r := &receipt{}
	if c.confirming {
		c.nextSeq++
		r.ch, r.seq = c, c.nextSeq
	}
	m.step(b, stepPublished, p.Exchange, p.Key)
	queues := b.route(x, m.Keys, m.Properties.Headers)
	if len(queues) == 0 {
		m.step(b, stepUnroutable, p.Exchange, "")
		if p.Mandatory {
			c.peer.Return(Returned{NoRoute, "NO_ROUTE", p.Exchange, p.Key, &m.Properties, p.Body})
		}
	}
	b.put(queues, m, r, c)
	b.work()
	return nil
}

// put offers a message to queues, and settles the receipt when all have
// answered.
func (b *Broker) put(queues []*Queue, m *Message, r *receipt, from any) {
	r.waiting = len(queues) + 1
	for _, q := range queues {
		q.offer(m, r, from)
	}
	r.settled(true)
}

// message makes of a publishing what queues hold.
func (b *Broker) message(p Publishing) (*Message, *Error) {
	if p.Properties.Has(wire.FlagExpiration) && b.atLeast(4, 0) {
		n, err := ttl(p.Properties.Expiration)
		if err != nil {
			return nil, err
		}
		p.Properties.Expiration = strconv.FormatInt(n, 10)
	}
	if mode := p.Properties.DeliveryMode; p.Properties.Has(wire.FlagDeliveryMode) && mode != 1 && mode != 2 && !b.atLeast(4, 0) {
		return nil, Fail(PreconditionFailed, "invalid message: {delivery_mode_unknown,%d}", mode)
	}
	m := &Message{Exchange: p.Exchange, Keys: []string{p.Key}, Properties: p.Properties, Body: p.Body, encoded: p.Encoded}
	headers := p.Properties.Headers
	if headers == nil {
		return m, nil
	}
	for _, name := range []string{"CC", "BCC"} {
		keys, err := headerRoutes(headers, name)
		if err != nil {
			return nil, err
		}
		m.Keys = append(m.Keys, keys...)
		if name == "BCC" {
			m.bcc = keys
		}
	}
	if _, ok := headers["BCC"]; ok {
		m.Properties = withHeaders(p.Properties, func(h amqp.Table) { delete(h, "BCC") })
	}
	return m, nil
}

// ttl reads the expiration of a message, in milliseconds.
func ttl(expiration string) (int64, *Error) {
	digits := strings.TrimLeft(expiration, "+-")
	if len(expiration)-len(digits) > 1 {
		digits = ""
	}
	rest := strings.TrimLeft(digits, "0123456789")
	number := expiration[:len(expiration)-len(rest)]
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case len(digits) == len(rest):
		return 0, Fail(PreconditionFailed, "invalid expiration '%s': no_integer", expiration)
	case rest != "":
		return 0, Fail(PreconditionFailed, "invalid expiration '%s': {leftover_string,\"%s\"}", expiration, rest)
	case n < 0:
		return 0, Fail(PreconditionFailed, "invalid expiration '%s': {value_negative,%d}", expiration, n)
	case err != nil || n > maxTTL:
		return 0, Fail(PreconditionFailed, "invalid expiration '%s': {value_too_large,%s}", expiration, number)
	}
	return n, nil
}

// offer puts a message into the queue, or refuses it.
func (q *Queue) offer(m *Message, r *receipt, from any) {
	if q.b.leaderless && q.args.quorum && from == nil {
		m.step(q.b, stepLost, q.name, "")
		r.settled(false)
		return
	}
	if q.refusing {
		q.waiting = append(q.waiting, waitingPublish{m, r, from})
		return
	}
	if q.full(from, len(m.Body)) {
		m.step(q.b, stepRefused, q.name, "")
		if !q.args.quorum && q.args.overflow == "reject-publish-dlx" {
			q.deadLetter(&entry{Message: m}, "maxlen")
		}
		r.settled(false)
		return
	}
	q.enter(m, from == nil)
	r.settled(true)
}

// enter puts a message at the end of its level.
func (q *Queue) enter(m *Message, unconfirmed bool) {
	b := q.b
	b.position++
	e := &entry{Message: m, bytes: len(m.Body), position: b.position, expires: q.expiry(m), failures: m.failures, at: b.now, unconfirmed: unconfirmed}
	if q.args.quorum {
		if b.atLeast(4, 3) {
			e.bytes += m.encoded
		}
		e.level = quorumLevel(b.opt.Version, int(m.Properties.Priority), m.Properties.Has(wire.FlagPriority))
	} else if q.args.maxPriority > 0 {
		e.level = min(int(m.Properties.Priority), q.args.maxPriority)
	}
	e.awaited = q.ready.len() == 0 && q.wanting()
	q.idle = nil // RabbitMQ 3.10's queue crashes here
	m.step(b, stepRouted, q.name, "")
	q.ready.push(e)
	if !q.over(0, 0) {
		if q.unseen = q.buried(); !q.unseen {
			b.touch(q)
		}
		return
	}
	q.handOut()
	q.limit()
	if q.ready.len() > 1 || !e.expires.IsZero() {
		q.unseen = false // a queue that has dropped its head looks at the next one
	}
	b.touch(q)
}

// buried tells whether a classic queue with priorities does not see that a new
// message has become its head: it looks only when it was empty.
func (q *Queue) buried() bool {
	if q.args.quorum || q.args.maxPriority == 0 || q.ready.len() < 2 {
		return false
	}
	return !q.wanting()
}

// expiry is when a message that arrives now expires.
func (q *Queue) expiry(m *Message) time.Time {
	after := q.args.ttl
	if m.Properties.Has(wire.FlagExpiration) {
		n, err := ttl(m.Properties.Expiration)
		if own := time.Duration(n) * time.Millisecond; err == nil && (after < 0 || own < after) {
			after = own
		}
	}
	switch {
	case after < 0:
		return time.Time{}
	case after == 0 && q.args.quorum:
		after = time.Millisecond
	}
	return q.b.now.Add(after)
}
