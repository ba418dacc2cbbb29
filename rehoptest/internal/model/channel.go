package model

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"
)

// Channel is a client's channel.
type Channel struct {
	b          *Broker
	conn       any // identifies the connection
	peer       Peer
	consumers  map[string]*consumer
	unacked    map[uint64]*handed
	lowest     uint64 // of the tags in unacked, or below
	nextTag    uint64
	confirming bool
	nextSeq    uint64
	prefetch   int             // of consumers to come
	global     int             // of all consumers of classic queues together; 0: no limit
	shared     int             // what counts towards that: what the channel had when it was set, fetched messages for good, and what consumers got since
	given      map[*Queue]bool // classic queues that a consumer has got a message of
	lastQueue  string
	number     uint16
	serial     uint64 // by opening, over all connections
	opened     time.Time
	alarm      time.Time
	closed     bool
}

// handed is a message that a client has and has not settled.
type handed struct {
	e        *entry
	q        *Queue
	consumer *consumer // nil: by basic.get
	tag      uint64
	at       time.Time
	settled  bool
	timedOut bool // went back to the queue while the client had it
}

// NewChannel opens a channel of a connection.
func (b *Broker) NewChannel(conn any, number uint16, peer Peer) *Channel {
	b.serial++
	c := &Channel{
		b: b, conn: conn, number: number, serial: b.serial, peer: peer, opened: b.now,
		consumers: map[string]*consumer{}, unacked: map[uint64]*handed{}, given: map[*Queue]bool{}, lowest: 1,
	}
	b.channels[c] = struct{}{}
	return c
}

// Close ends the channel: what it has not settled goes back.
func (c *Channel) Close() {
	if c.closed {
		return
	}
	c.closed = true
	delete(c.b.channels, c)
	for _, tag := range slices.Sorted(maps.Keys(c.consumers)) {
		c.given[c.consumers[tag].q] = true
		c.consumers[tag].q.idle = nil
		c.remove(c.consumers[tag])
	}
	held := c.take(c.nextTag, true)
	slices.SortStableFunc(held, c.b.closingOrder)
	for _, h := range held {
		h.q.giveBack(h, returnedByClose)
	}
	for _, q := range slices.SortedFunc(maps.Keys(c.given), func(x, y *Queue) int { return cmp.Compare(x.name, y.name) }) {
		q.unseen = false // it hears of the end, and looks at its head
		c.b.touch(q)
	}
	for _, q := range c.b.queues {
		delete(q.publishers, c)
		q.forget(c)
		if q.idle == c {
			q.idle = nil
			c.b.touch(q)
		}
	}
	c.b.work()
}

// CloseConnection removes what belongs to a connection whose channels are
// closed: its exclusive queues.
func (b *Broker) CloseConnection(conn any) {
	for _, name := range slices.Sorted(maps.Keys(b.queues)) {
		if q := b.queues[name]; q != nil && q.exclusive && q.owner == conn {
			b.dropQueue(q)
		}
	}
	b.work()
}

// ConfirmSelect switches confirms on.
func (c *Channel) ConfirmSelect() { c.confirming = true }

// Qos sets the prefetch: of each consumer to come, or of the channel.
func (c *Channel) Qos(count int, global bool) {
	if global && !c.b.atLeast(4, 3) {
		if c.global == 0 {
			c.shared = len(c.unacked)
		}
		c.limit(count)
		return
	}
	c.prefetch = count
	c.limit(0)
}

// limit sets what all consumers of classic queues may have together.
func (c *Channel) limit(count int) {
	if c.global == count {
		return
	}
	c.global = count
	if count == 0 {
		c.shared = 0
	}
	c.touch()
	c.b.work()
}

// take removes what is to be settled: one tag, or all up to it.
func (c *Channel) take(tag uint64, multiple bool) []*handed {
	if !multiple {
		h := c.unacked[tag]
		if h == nil {
			return nil
		}
		h.settled = true
		delete(c.unacked, tag)
		c.raise()
		return []*handed{h}
	}
	var all []*handed
	for ; c.lowest <= tag && len(c.unacked) > 0; c.lowest++ {
		if h := c.unacked[c.lowest]; h != nil {
			h.settled = true
			delete(c.unacked, c.lowest)
			all = append(all, h)
		}
	}
	c.raise()
	return all
}

// grouped is the order in which several messages are settled: queue by queue, one by
// one what was fetched, then what consumers have, consumer by consumer.
func grouped(all []*handed) (groups [][]*handed) {
	slices.SortStableFunc(all, func(a, b *handed) int {
		return cmp.Or(cmp.Compare(a.q.name, b.q.name), cmp.Compare(a.group(), b.group()))
	})
	for i, h := range all {
		if i > 0 && h.consumer != nil && h.consumer == all[i-1].consumer {
			groups[len(groups)-1] = append(groups[len(groups)-1], h)
			continue
		}
		groups = append(groups, []*handed{h})
	}
	for _, group := range groups { // a classic queue settles level by level, the highest first
		slices.SortStableFunc(group, func(a, b *handed) int {
			if a.q.args.quorum {
				return 0
			}
			return cmp.Compare(b.e.level, a.e.level)
		})
	}
	return groups
}

func (h *handed) group() string {
	if h.consumer == nil {
		return ""
	}
	return h.consumer.tag
}

// closingOrder is that in which what a channel held comes back when it closes: consumer by
// consumer, each fetched message being that of one with the tag's digits for a name. They
// are in the order of their names, which puts 10 before 9; since 4.0 that is so for what was fetched,
// and consumers come before it in the order in which they began.
func (b *Broker) closingOrder(x, y *handed) int {
	began := func(h *handed) uint64 {
		switch {
		case !b.atLeast(4, 0):
			return 0
		case h.consumer == nil:
			return math.MaxUint64
		}
		return h.consumer.began
	}
	return cmp.Or(cmp.Compare(x.q.name, y.q.name), cmp.Compare(began(x), began(y)), cmp.Compare(x.consumerName(), y.consumerName()))
}

func (h *handed) consumerName() string {
	if h.consumer == nil {
		return strconv.FormatUint(h.tag, 10)
	}
	return h.consumer.tag
}

// raise moves on to the oldest message that is not settled.
func (c *Channel) raise() {
	for c.lowest <= c.nextTag && c.unacked[c.lowest] == nil {
		c.lowest++
	}
	c.schedule()
}

// hand gives a message to the client.
func (c *Channel) hand(q *Queue, e *entry, by *consumer, noAck bool) uint64 {
	c.nextTag++
	if by != nil && !q.args.quorum {
		c.given[q] = true
	}
	if noAck {
		return c.nextTag
	}
	h := &handed{e: e, q: q, consumer: by, tag: c.nextTag, at: c.b.now}
	c.unacked[c.nextTag] = h
	if by != nil {
		by.has++
		if !q.args.quorum && c.global > 0 {
			c.shared++
		}
	} else {
		q.fetched++
	}
	q.unacked++
	c.watch(h)
	return c.nextTag
}

// released is called when the client no longer has a message.
func (c *Channel) released(h *handed) {
	h.release()
	c.b.touch(h.q)
}

// share takes messages off the count of the global prefetch, which hears of all that a
// method settles at once, after the queues.
func (c *Channel) share(all []*handed) {
	for _, h := range all {
		if h.consumer != nil {
			c.shared = max(0, c.shared-1)
		}
	}
	if c.global > 0 {
		c.touch()
	}
}

// touch touches the queues that the channel consumes.
func (c *Channel) touch() {
	for _, tag := range slices.Sorted(maps.Keys(c.consumers)) {
		c.b.touch(c.consumers[tag].q)
	}
}

// release takes a message off the counts of those who have it.
func (h *handed) release() {
	if h.timedOut {
		return
	}
	h.q.unacked--
	if h.consumer != nil {
		h.consumer.has--
	} else {
		h.q.fetched--
	}
}
