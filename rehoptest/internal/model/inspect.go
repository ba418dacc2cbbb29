package model

import (
	"cmp"
	"maps"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"
)

// QueueState is what is in a queue.
type QueueState struct {
	Name      string
	Type      string
	Arguments amqp.Table
	Consumers int
	Ready     []*Message // in the order of delivery
	Unacked   []*Message // by arrival
	Delayed   []*Message // delayed retry
	Dead      []*Message // at-least-once dead letters that have not arrived
}

// Queue returns the state of a queue.
func (b *Broker) Queue(name string) (QueueState, bool) {
	q := b.queues[name]
	if q == nil {
		return QueueState{}, false
	}
	s := QueueState{Name: name, Type: "classic", Arguments: maps.Clone(q.arguments), Consumers: q.consuming()}
	if q.args.quorum {
		s.Type = "quorum"
	}
	s.Ready = q.show(q.ready.all())
	s.Delayed = q.show(q.delayed)
	s.Unacked = q.show(q.unsettled())
	s.Dead = q.show(q.dead())
	return s, true
}

// unsettled returns what is with consumers, by arrival.
func (q *Queue) unsettled() (list []*entry) {
	for c := range q.b.channels {
		for _, h := range c.unacked {
			if h.q == q && !h.timedOut {
				list = append(list, h.e)
			}
		}
	}
	slices.SortFunc(list, func(a, b *entry) int { return cmp.Compare(a.position, b.position) })
	return list
}

// dead returns the dead letters that no other queue has taken yet.
func (q *Queue) dead() []*entry {
	if q.discards == nil {
		return nil
	}
	list := q.discards.waiting.all()
	for _, l := range q.discards.underway {
		list = append(list, l.e)
	}
	return list
}

// held returns all that a queue holds.
func (q *Queue) held() []*entry {
	return slices.Concat(q.ready.all(), q.unsettled(), q.delayed, q.dead())
}

// Remove deletes a queue by hand, and returns what was in it.
func (b *Broker) Remove(name string) ([]*Message, bool) {
	q := b.queues[name]
	if q == nil {
		return nil, false
	}
	all := q.show(q.held())
	for _, w := range q.waiting {
		all = append(all, w.msg)
	}
	b.dropQueue(q)
	b.work()
	return all, true
}

// RemoveExchange deletes an exchange by hand.
func (b *Broker) RemoveExchange(name string) bool {
	x := b.exchanges[name]
	if x == nil || name == "" {
		return false
	}
	b.dropExchange(x)
	b.work()
	return true
}

func (q *Queue) show(list []*entry) []*Message {
	var shown []*Message
	for _, e := range list {
		m := *e.Message
		m.Properties = *q.properties(e, false)
		shown = append(shown, &m)
	}
	return shown
}

// Queues returns the names of all queues.
func (b *Broker) Queues() []string { return slices.Sorted(maps.Keys(b.queues)) }

// Exchanges returns the names of all exchanges.
func (b *Broker) Exchanges() []string { return slices.Sorted(maps.Keys(b.exchanges)) }

// Refuse makes a queue stop answering, as one without a leader, or answer
// again: then what was published in the meantime arrives.
func (b *Broker) Refuse(name string, refuse bool) bool {
	q := b.queues[name]
	if q == nil {
		return false
	}
	q.refusing = refuse
	if !refuse {
		waiting := q.waiting
		q.waiting = nil
		for _, w := range waiting {
			q.offer(w.msg, w.receipt, w.from)
		}
	}
	b.touch(q)
	b.work()
	return true
}
