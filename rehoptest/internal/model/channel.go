package model

import (
	"cmp"
	"maps"
	"slices"
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
	prefetch   int // of consumers to come
	global     int // of all consumers of classic queues together; 0: no limit
	shared     int // what these have, not settled
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
		consumers: map[string]*consumer{}, unacked: map[uint64]*handed{}, lowest: 1,
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
		c.remove(c.consumers[tag])
	}
	var fetched []*handed // these last, since 4.0
	for _, h := range grouped(c.take(c.nextTag, true)) {
		if h.consumer == nil && c.b.atLeast(4, 0) {
			fetched = append(fetched, h)
			continue
		}
		h.q.giveBack(h, returnedByClose)
	}
	for _, h := range fetched {
		h.q.giveBack(h, returnedByClose)
	}
	for _, q := range c.b.queues {
		delete(q.publishers, c)
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
		c.global = count
		c.touch()
		c.b.work()
		return
	}
	c.prefetch = count
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

// grouped is the order in which several messages are settled: queue by queue,
// what was fetched before what consumers have, consumer by consumer.
func grouped(all []*handed) []*handed {
	slices.SortStableFunc(all, func(a, b *handed) int {
		return cmp.Or(cmp.Compare(a.q.name, b.q.name), cmp.Compare(a.group(), b.group()))
	})
	return all
}

func (h *handed) group() string {
	if h.consumer == nil {
		return ""
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
	if noAck {
		return c.nextTag
	}
	h := &handed{e: e, q: q, consumer: by, tag: c.nextTag, at: c.b.now}
	c.unacked[c.nextTag] = h
	if by != nil {
		by.has++
		if !q.args.quorum {
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
		if !h.q.args.quorum {
			h.consumer.ch.shared--
		}
	} else {
		h.q.fetched--
	}
}
