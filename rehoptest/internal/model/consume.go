package model

import (
	"cmp"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// consumer of a queue.
type consumer struct {
	ch        *Channel
	q         *Queue
	tag       string
	noAck     bool
	exclusive bool
	priority  int64
	prefetch  int           // 0: no limit
	extra     int           // what it may have beyond its prefetch
	timeout   time.Duration // 0: none
	has       int           // messages not settled
	handed    []*handed     // in order, where timeouts are of the queue; settled ones among them
	ending    bool          // the active one of a quorum queue, until it has nothing in hand
	blocked   bool          // had all it may have: it goes behind the others when it may have more
	began     uint64        // in the order of all that happens
	timedOut  int           // messages that it has had too long, and not settled since
}

// ConsumeSpec is what a client asks for.
type ConsumeSpec struct {
	Queue, Tag       string
	NoAck, Exclusive bool
	Arguments        amqp.Table
}

// Consume starts a consumer. started is called before the first delivery.
func (c *Channel) Consume(s ConsumeSpec, started func(tag string)) *Error {
	if s.Queue == "amq.rabbitmq.reply-to" {
		return Fail(NotImplemented, "rehoptest has no direct reply-to")
	}
	q, err := c.queue(s.Queue)
	if err != nil {
		return err
	}
	if s.Tag == "" {
		s.Tag = "amq.ctag-" + c.b.opt.Seed()
	}
	if c.consumers[s.Tag] != nil {
		return Fail(NotAllowed, "attempt to reuse consumer tag '%s'", s.Tag)
	}
	if q.refusing {
		return Fail(InternalError, "%s is not available", q.title())
	}
	if q.args.quorum && c.global > 0 {
		return Fail(NotImplemented, "%s does not support global qos", q.title())
	}
	if !q.args.quorum && q.inUse(s.Exclusive) { // a quorum queue takes no notice of exclusive
		return Fail(AccessRefused, "%s in exclusive use", q.title())
	}
	c.b.position++
	n := &consumer{ch: c, q: q, tag: s.Tag, noAck: s.NoAck, exclusive: s.Exclusive, prefetch: c.prefetch, began: c.b.position}
	n.resume()
	if v, ok := s.Arguments["x-priority"]; ok {
		if n.priority, ok = integer(v); !ok {
			return Fail(PreconditionFailed, "invalid arg 'x-priority' for %s: \"expected integer, got %s\"", q.title(), typeName(v))
		}
	}
	for _, name := range []string{"x-stream-offset", "x-stream-filter", "x-stream-match-unfiltered"} {
		if _, ok := s.Arguments[name]; ok && (name == "x-stream-offset" || c.b.atLeast(4, 0)) {
			return Fail(PreconditionFailed, "invalid arg '%s' for %s of queue type %s", name, q.title(), q.args.kind())
		}
	}
	if n.timeout, err = q.consumerTimeout(s.Arguments); err != nil {
		return err
	}
	c.consumers[s.Tag] = n
	q.idle = nil
	q.add(n)
	q.used = c.b.now
	started(s.Tag)
	c.b.touch(q)
	c.b.work()
	return nil
}

// resume takes over what a cancelled consumer of the same name has in hand: a quorum queue
// takes both for one since 4.0, whose prefetch counts it.
func (n *consumer) resume() {
	if !n.q.args.quorum || !n.ch.b.atLeast(4, 0) {
		return
	}
	for i, o := range n.q.cancelled {
		if o.ch == n.ch && o.tag == n.tag {
			n.has, n.extra, n.handed = o.has, o.extra, o.handed
			for _, h := range n.ch.unacked {
				if h.consumer == o {
					h.consumer = n
				}
			}
			n.q.cancelled = slices.Delete(n.q.cancelled, i, i+1)
			return
		}
	}
}

// inUse tells whether a classic queue refuses another consumer.
func (q *Queue) inUse(exclusive bool) bool {
	if q.args.singleActive {
		return exclusive
	}
	return len(q.consumers) > 0 && (exclusive || q.consumers[0].exclusive)
}

// Cancel ends a consumer; that there is none is fine. What it has stays with
// the channel.
func (c *Channel) Cancel(tag string) {
	if n := c.consumers[tag]; n != nil {
		q, active := n.q, n.q.active == n
		c.remove(n)
		// Only 3.10 does not notice that the turn of the next one has come.
		if active && !c.b.atLeast(4, 0) && !q.args.quorum && len(q.consumers) > 0 && q.ready.len() > 0 {
			q.idle = c
		}
		if c.b.atLeast(4, 0) {
			q.unseen = false // a classic queue looks at its head
		}
		c.b.work()
	}
}

// add puts a consumer behind those of its priority.
func (q *Queue) add(n *consumer) {
	i := slices.IndexFunc(q.consumers, func(o *consumer) bool { return o.priority < n.priority })
	if i < 0 {
		i = len(q.consumers)
	}
	q.consumers = slices.Insert(q.consumers, i, n)
	if q.args.singleActive {
		q.activate()
	}
}

// activate chooses the single active consumer. From 4.0 on that of a quorum queue gets
// nothing more when one of a higher priority has come, whether that stays or not, and
// hands over once it has nothing in hand.
func (q *Queue) activate() {
	next, a := q.following(), q.active
	if a != nil && slices.Contains(q.consumers, a) && a.timedOut == 0 {
		ending := a.ending || q.args.quorum && q.b.atLeast(4, 0) && next.priority > a.priority
		if a.ending = ending && a.has > 0; !ending || a.ending {
			return
		}
	}
	q.active = next
}

// following is the consumer that becomes the active one, or nil: that of the highest
// priority. Of equals a quorum queue takes the one of the largest prefetch from 4.0 on, and
// then the one that began first. Before, it goes by that alone.
func (q *Queue) following() (best *consumer) {
	for _, n := range q.consumers {
		switch {
		case n.timedOut > 0:
		case best == nil, q.args.quorum && n.precedes(best):
			best = n
		}
	}
	return best
}

func (n *consumer) precedes(o *consumer) bool {
	if !n.q.b.atLeast(4, 0) {
		return n.began < o.began
	}
	return cmp.Or(cmp.Compare(o.priority, n.priority), cmp.Compare(o.credit(), n.credit()), cmp.Compare(n.began, o.began)) < 0
}

// credit is how many messages a quorum queue lets a consumer have, without acks too.
func (n *consumer) credit() int { return cmp.Or(n.prefetch, 2000) }

// remove ends a consumer. An auto-delete queue goes with its last one.
func (c *Channel) remove(n *consumer) {
	q := n.q
	c.forget(n)
	q.consumers = slices.DeleteFunc(q.consumers, func(o *consumer) bool { return o == n })
	if q.deleted {
		return
	}
	q.used = c.b.now
	q.cancelled = slices.DeleteFunc(q.cancelled, func(o *consumer) bool { return o.has == 0 })
	if n.has > 0 {
		q.cancelled = append(q.cancelled, n)
	}
	if q.args.singleActive {
		q.activate()
	}
	c.b.touch(q)
	q.schedule()
	if q.autoDelete && len(q.consumers) == 0 && !c.b.stopping {
		c.b.dropQueue(q)
	}
}

func (c *Channel) forget(n *consumer) {
	if c.consumers[n.tag] == n {
		delete(c.consumers, n.tag)
	}
}

// ready tells whether the consumer may get another message.
func (n *consumer) ready() bool {
	switch {
	case n.timedOut > 0, n.ending:
		return false
	case !n.q.args.quorum && n.ch.global > 0 && n.ch.shared >= n.ch.global:
		return false
	case n.noAck:
		return true
	}
	return n.prefetch == 0 || n.has < n.prefetch+n.extra
}

// wanting tells whether a consumer may get a message.
func (q *Queue) wanting() bool {
	if q.args.singleActive {
		return q.active != nil && q.active.ready()
	}
	return slices.ContainsFunc(q.consumers, (*consumer).ready)
}

// taker returns the consumer whose turn it is, or nil.
func (q *Queue) taker() *consumer {
	if q.args.singleActive {
		q.activate()
		if q.idle != nil {
			return nil
		}
		if q.active != nil && q.active.ready() {
			return q.active
		}
		return nil
	}
	for i, n := range q.consumers {
		if n.ready() {
			q.toBack(i)
			return n
		}
		n.blocked = true
	}
	return nil
}

// unblock puts consumers that may have more again behind the others.
func (q *Queue) unblock() {
	for i := 0; i < len(q.consumers); i++ {
		n := q.consumers[i]
		if n.blocked && n.ready() {
			n.blocked = false
			if q.toBack(i) != i {
				i--
			}
		}
	}
}

// toBack moves a consumer behind those of its priority, and returns where to.
func (q *Queue) toBack(i int) int {
	n, last := q.consumers[i], i
	for last+1 < len(q.consumers) && q.consumers[last+1].priority == n.priority {
		last++
	}
	copy(q.consumers[i:last], q.consumers[i+1:last+1])
	q.consumers[last] = n
	return last
}
