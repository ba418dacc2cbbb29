// Package model is what an AMQP 0-9-1 broker does, as a state machine: no
// goroutines, no clock and no bytes of the protocol. Whoever uses it holds a
// lock, sets the time, calls, and hears through [Peer] what is to be sent.
package model

import (
	"container/heap"
	"fmt"
	"time"

	"github.com/rehop/rehop/rehoptest/internal/wire"
)

// Version of the broker that is imitated.
type Version struct{ Major, Minor int }

// AtLeast compares.
func (v Version) AtLeast(major, minor int) bool {
	return v.Major > major || v.Major == major && v.Minor >= minor
}

func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// Options of a broker.
type Options struct {
	Version           Version
	Vhost             string
	MaxMessage        int           // octets of a body
	ConsumerTimeout   time.Duration // 0: none
	DeadLetterTimeout time.Duration // between tries of at-least-once dead-lettering
	Seed              func() string // names of queues and consumers
}

// Peer is the other side of a channel. Its methods never wait.
type Peer interface {
	Deliver(Delivery)
	CancelConsumer(tag string)
	Return(Returned)
	Confirm(seq uint64, ack bool)
	Close(*Error)
}

// Delivery is a message on its way to a consumer.
type Delivery struct {
	Consumer      string
	Tag           uint64
	Redelivered   bool
	Exchange, Key string
	Properties    *wire.Properties
	Body          []byte
	Left          int // messages still ready, for basic.get
}

// Returned is a mandatory message that no queue took.
type Returned struct {
	Code          uint16
	Text          string
	Exchange, Key string
	Properties    *wire.Properties
	Body          []byte
}

// Broker is one virtual host.
type Broker struct {
	opt       Options
	now       time.Time
	exchanges map[string]*exchange
	queues    map[string]*Queue
	channels  map[*Channel]struct{}
	position  uint64
	letters   []letter
	dirty     []*Queue
	alarms    alarms
	journal   journal
	working   bool

	serial     uint64 // of the last channel
	stopping   bool   // consumers end with the broker: auto-delete queues stay
	leaderless bool   // during a start: quorum queues take no dead letters at-most-once
}

// New returns a broker with the exchanges that every broker has.
func New(opt Options) *Broker {
	b := &Broker{
		opt:       opt,
		exchanges: map[string]*exchange{},
		queues:    map[string]*Queue{},
		channels:  map[*Channel]struct{}{},
		journal:   journal{byID: map[string][]*steps{}},
	}
	for name, kind := range map[string]string{
		"": "direct", "amq.direct": "direct", "amq.fanout": "fanout", "amq.topic": "topic",
		"amq.headers": "headers", "amq.match": "headers", "amq.rabbitmq.trace": "topic",
	} {
		b.exchanges[name] = &exchange{name: name, kind: kind, durable: true, internal: name == "amq.rabbitmq.trace"}
	}
	if log := "amq.rabbitmq.log"; opt.Version.AtLeast(4, 3) && opt.Vhost == "/" {
		b.exchanges[log] = &exchange{name: log, kind: "topic", durable: true, internal: true}
	}
	return b
}

func (b *Broker) atLeast(major, minor int) bool { return b.opt.Version.AtLeast(major, minor) }

// Advance sets the time, and does what was due until then.
func (b *Broker) Advance(now time.Time) {
	if now.After(b.now) {
		b.now = now
	}
	for len(b.alarms) > 0 && !b.alarms[0].at.After(b.now) {
		a := heap.Pop(&b.alarms).(alarm)
		if slot := a.who.slot(); slot != nil && slot.Equal(a.at) {
			*slot = time.Time{}
			a.who.tick()
			b.work()
			a.who.schedule()
		}
	}
}

// Next is when Advance is to be called, or zero.
func (b *Broker) Next() time.Time {
	for len(b.alarms) > 0 {
		if slot := b.alarms[0].who.slot(); slot != nil && slot.Equal(b.alarms[0].at) {
			return *slot
		}
		heap.Pop(&b.alarms)
	}
	return time.Time{}
}

// work moves dead letters and delivers what is ready, until nothing is left
// to do.
func (b *Broker) work() {
	if b.working {
		return
	}
	b.working = true
	defer func() { b.working = false }()
	for len(b.letters) > 0 || len(b.dirty) > 0 {
		if len(b.dirty) > 0 {
			q := b.dirty[0]
			b.dirty = b.dirty[1:]
			q.isDirty = false
			if !q.deleted {
				q.pump()
				q.schedule()
			}
			continue
		}
		l := b.letters[0]
		b.letters = b.letters[1:]
		b.move(l)
	}
	b.letters, b.dirty = nil, b.dirty[:0]
}

// touch notes that a queue may have something to deliver or to expire.
func (b *Broker) touch(q *Queue) {
	if !q.isDirty && !q.deleted {
		q.isDirty = true
		b.dirty = append(b.dirty, q)
	}
}

// timed is what time changes: a queue, or a channel.
type timed interface {
	slot() *time.Time // of the alarm that counts; nil once there is nothing to look at
	tick()
	schedule()
}

// alarm is when something wants to be looked at.
type alarm struct {
	at  time.Time
	who timed
}

// wakeAt sets an alarm, unless there is an earlier one. An alarm that is no
// longer that of its slot is passed over when it goes off.
func (b *Broker) wakeAt(who timed, at time.Time) {
	slot := who.slot()
	if at.IsZero() || !slot.IsZero() && !at.Before(*slot) {
		return
	}
	*slot = at
	heap.Push(&b.alarms, alarm{at, who})
}

type alarms []alarm

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a alarms) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *alarms) Push(x any)        { *a = append(*a, x.(alarm)) }
func (a *alarms) Pop() any {
	old := *a
	last := old[len(old)-1]
	*a = old[:len(old)-1]
	return last
}
