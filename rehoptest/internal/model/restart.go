package model

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/rehop/rehop/rehoptest/internal/wire"
)

// unsynced is how long a classic queue may hold a dead letter that is not on
// disk.
const unsynced = time.Second

// Stop ends everything that does not outlive the broker: channels, transient
// queues and exchanges, and transient messages of classic queues. With most, so
// goes what a killed broker may lose: dead letters that nobody confirmed, where
// a classic queue has only just got them.
func (b *Broker) Stop(most bool) {
	b.stopping = true
	for _, c := range slices.SortedFunc(maps.Keys(b.channels), func(a, b *Channel) int { return cmp.Compare(a.serial, b.serial) }) {
		c.Close()
	}
	b.stopping = false
	for _, name := range slices.Sorted(maps.Keys(b.queues)) {
		q := b.queues[name]
		if q == nil {
			continue
		}
		if !q.durable || q.exclusive {
			b.dropQueue(q)
			continue
		}
		q.publishers = map[any]bool{}
		for _, w := range q.waiting {
			w.msg.step(b, stepLost, q.name, "")
		}
		q.waiting = nil
		if !q.args.quorum {
			q.lose(func(e *entry) bool {
				return e.Properties.DeliveryMode != 2 || most && e.unconfirmed && e.at.Add(unsynced).After(b.now)
			})
		}
	}
	for _, x := range slices.Collect(maps.Values(b.exchanges)) {
		if !x.durable {
			b.dropExchange(x)
		}
	}
	b.letters, b.dirty = nil, nil
}

// lose removes messages that are ready.
func (q *Queue) lose(which func(*entry) bool) {
	all := q.ready.all()
	q.ready.clear()
	for _, e := range all {
		if which(e) {
			e.step(q.b, stepLost, q.name, "")
			continue
		}
		q.ready.push(e)
	}
}

// Start goes on after Stop, at a later time. With most, what has expired in
// between at-most-once and goes to a quorum queue is lost: the queue has no
// leader yet.
func (b *Broker) Start(now time.Time, most bool) {
	b.leaderless = most
	b.Advance(now)
	for _, name := range b.Queues() {
		q := b.queues[name]
		q.born, q.used = now, now
		if q.discards != nil {
			q.discards.restart()
		}
		b.touch(q)
	}
	b.work()
	b.leaderless = false
	for _, q := range b.queues {
		q.schedule()
	}
}

// restart sends everything anew that was under way.
func (d *discards) restart() {
	old := d.underway
	d.underway = nil
	for _, l := range old {
		l.gone = true // an answer to it comes too late
		d.underway = append(d.underway, &discard{e: l.e, reason: l.reason, again: d.q.b.now})
	}
	d.retry()
}

// Publish publishes by hand, and returns how many queues the message went to.
func (b *Broker) Publish(p Publishing) (int, *Error) {
	x, err := b.exchange(p.Exchange)
	if err != nil {
		return 0, err
	}
	if p.Properties.Has(wire.FlagExpiration) {
		if _, err := ttl(p.Properties.Expiration); err != nil {
			return 0, err
		}
	}
	m, err := b.message(p)
	if err != nil {
		return 0, err
	}
	m.step(b, stepPublished, p.Exchange, p.Key)
	queues := b.route(x, m.Keys, m.Properties.Headers)
	b.put(queues, m, &receipt{}, b)
	b.work()
	return len(queues), nil
}

// Drain takes all that is ready out of a queue.
func (b *Broker) Drain(name string) ([]*Message, bool) {
	q := b.queues[name]
	if q == nil {
		return nil, false
	}
	all := q.ready.all()
	for _, e := range all {
		e.step(b, stepDrained, q.name, "")
	}
	q.ready.clear()
	b.touch(q)
	b.work()
	return q.show(all), true
}
