package model

import (
	"maps"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Queue is a queue with what is in it.
type Queue struct {
	b                              *Broker
	name                           string
	durable, exclusive, autoDelete bool
	owner                          any // connection of an exclusive queue
	arguments                      amqp.Table
	args                           queueArgs
	ready                          ready
	consumers                      []*consumer // by priority, then by turn
	active                         *consumer   // single active consumer
	cancelled                      []*consumer // which may have messages left
	unacked                        int
	fetched                        int      // of these, by basic.get
	delayed                        []*entry // by time
	discards                       *discards
	publishers                     map[any]bool // of a quorum queue: told that it is full
	idle                           *Channel     // has cancelled the active consumer, and nothing has made the queue look at the next one
	unseen                         bool         // a new head whose expiry nobody has looked at
	refusing                       bool         // answers nobody, as a queue without a leader
	waiting                        []waitingPublish
	born, used                     time.Time // for x-expires
	alarm                          time.Time
	isDirty, deleted               bool
}

// QueueSpec is what a queue is declared as.
type QueueSpec struct {
	Name                           string
	Durable, Exclusive, AutoDelete bool
	Arguments                      amqp.Table
}

func (q *Queue) title() string { return "queue '" + q.name + "' in vhost '" + q.b.opt.Vhost + "'" }

// queue returns a queue that the channel may use. The empty name is the last
// queue that the channel has declared.
func (c *Channel) queue(name string) (*Queue, *Error) {
	if name == "" {
		if name = c.lastQueue; name == "" {
			return nil, Fail(NotFound, "no previously declared queue")
		}
	}
	q := c.b.queues[name]
	if q == nil {
		return nil, Fail(NotFound, "no queue '%s' in vhost '%s'", name, c.b.opt.Vhost)
	}
	if q.exclusive && q.owner != c.conn {
		return nil, q.locked()
	}
	return q, nil
}

// consuming is how many consumers the queue says it has. To a quorum queue each
// basic.get that is not settled is one, and so is each cancelled consumer that
// has messages left; of those with a single active one only that one.
func (q *Queue) consuming() int {
	if !q.args.quorum {
		return len(q.consumers)
	}
	n := len(q.consumers)
	if q.args.singleActive {
		n = min(n, 1)
	}
	for _, c := range q.cancelled {
		if c.has > 0 {
			n++
		}
	}
	return n + q.fetched
}

func (q *Queue) locked() *Error {
	return Fail(ResourceLocked, "cannot obtain exclusive access to locked %s. It could be originally declared on "+
		"another connection or the exclusive property value does not match that of the original declaration.", q.title())
}

// CheckQueue is a passive declaration, of which the empty name is none.
func (c *Channel) CheckQueue(named string) (string, int, int, *Error) {
	if name(named) == "" {
		return "", 0, 0, Fail(NotFound, "no queue '' in vhost '%s'", c.b.opt.Vhost)
	}
	q, err := c.queue(name(named))
	if err != nil {
		return "", 0, 0, err
	}
	if q.refusing {
		return "", 0, 0, Fail(NotFound, "%s process is stopped by supervisor", q.title())
	}
	c.lastQueue = q.name
	q.used = c.b.now
	return q.name, q.ready.len(), q.consuming(), nil
}

// DeclareQueue declares, and returns the name and how many messages and
// consumers there are.
func (c *Channel) DeclareQueue(s QueueSpec) (string, int, int, *Error) {
	b := c.b
	s.Name = name(s.Name)
	title := "queue '" + s.Name + "' in vhost '" + b.opt.Vhost + "'"
	s.Durable = s.Durable && !s.Exclusive // an exclusive queue goes with its connection anyway
	if s.Name != "" {
		if q := b.queues[s.Name]; q != nil {
			if err := c.equivalentQueue(q, s); err != nil {
				return "", 0, 0, err
			}
			if !q.args.quorum {
				q.used = b.now
			}
			c.lastQueue = q.name
			return q.name, q.ready.len(), q.consuming(), nil
		}
		if strings.HasPrefix(s.Name, "amq.") {
			return "", 0, 0, Fail(AccessRefused, "queue name '%s' contains reserved prefix 'amq.*'", s.Name)
		}
	} else if s.Arguments["x-queue-type"] == "quorum" {
		return "", 0, 0, Fail(PreconditionFailed, "Cannot declare a server-named queue for type rabbit_quorum_queue")
	} else {
		s.Name = "amq.gen-" + b.opt.Seed()
	}
	args, err := b.queueArgs(s, title)
	if err != nil {
		return "", 0, 0, err
	}
	q := &Queue{
		b: b, name: s.Name, durable: s.Durable, exclusive: s.Exclusive, autoDelete: s.AutoDelete,
		arguments: maps.Clone(s.Arguments), args: args, born: b.now, used: b.now, publishers: map[any]bool{},
	}
	if s.Exclusive {
		q.owner = c.conn
	}
	switch {
	case args.quorum:
		q.ready = newQuorumReady(b.opt.Version, args.limit)
	case args.maxPriority > 0:
		q.ready = &classicLevels{levels: make([]ordered, args.maxPriority+1)}
	default:
		q.ready = &ordered{}
	}
	if args.atLeastOnce {
		q.discards = &discards{q: q}
	}
	b.queues[q.name] = q
	c.lastQueue = q.name
	q.schedule()
	return q.name, 0, 0, nil
}

func (c *Channel) equivalentQueue(q *Queue, s QueueSpec) *Error {
	if q.exclusive != s.Exclusive || q.exclusive && q.owner != c.conn {
		return q.locked()
	}
	if q.durable != s.Durable {
		return inequivalent("durable", q.title(), boolText(s.Durable), boolText(q.durable))
	}
	if q.autoDelete != s.AutoDelete {
		return inequivalent("auto_delete", q.title(), boolText(s.AutoDelete), boolText(q.autoDelete))
	}
	got, was := s.Arguments, q.arguments
	if c.b.atLeast(4, 0) || got["x-queue-type"] == "classic" || was["x-queue-type"] == "classic" {
		got, was = withType(got), withType(was)
	}
	return equivalentArgs(q.title(), c.b.known(q.args.quorum), got, was)
}

// withType is what is compared since 4.0, where every queue has a type, and before
// where one of the two names the type classic.
func withType(t amqp.Table) amqp.Table {
	if _, ok := t["x-queue-type"]; ok {
		return t
	}
	t = maps.Clone(t)
	if t == nil {
		t = amqp.Table{}
	}
	t["x-queue-type"] = "classic"
	return t
}

// PurgeQueue removes all that is ready.
func (c *Channel) PurgeQueue(name string) (int, *Error) {
	q, err := c.queue(name)
	if err != nil {
		return 0, err
	}
	n := q.ready.len() + len(q.delayed)
	gone := append(q.ready.all(), q.delayed...)
	q.ready.clear()
	q.idle = nil
	q.delayed = nil
	if q.discards != nil && c.b.atLeast(4, 3) {
		n += q.discards.len()
		gone = append(gone, q.dead()...)
		q.discards.clear()
	}
	for _, e := range gone {
		e.step(c.b, stepPurged, q.name, "")
	}
	c.b.touch(q)
	c.b.work()
	return n, nil
}

// DeleteQueue deletes; that there is none is fine.
func (c *Channel) DeleteQueue(named string, ifUnused, ifEmpty bool) (int, *Error) {
	q, err := c.queue(name(named))
	if err != nil {
		if err.Code == NotFound && named != "" {
			return 0, nil
		}
		return 0, err
	}
	switch {
	case q.args.quorum && ifUnused:
		return 0, Fail(NotImplemented, "cannot delete %s. queue.delete operations with if-unused flag set are not supported by quorum queues", q.title())
	case q.args.quorum && ifEmpty:
		return 0, Fail(NotImplemented, "cannot delete %s. queue.delete operations with if-empty flag set are not supported by quorum queues", q.title())
	case ifUnused && len(q.consumers) > 0:
		return 0, Fail(PreconditionFailed, "%s in use", q.title())
	case ifEmpty && q.ready.len() > 0:
		return 0, Fail(PreconditionFailed, "%s not empty", q.title())
	}
	n := q.ready.len()
	c.b.dropQueue(q)
	c.b.work()
	return n, nil
}

// dropQueue deletes a queue: its consumers are told, its messages are gone,
// and publishes that it has not answered count as taken.
func (b *Broker) dropQueue(q *Queue) {
	q.deleted = true
	delete(b.queues, q.name)
	for c := range b.channels {
		delete(c.given, q)
	}
	for _, e := range q.held() {
		e.step(b, stepDeleted, q.name, "")
	}
	for _, w := range q.waiting {
		w.msg.step(b, stepDeleted, q.name, "")
		w.receipt.settled(true)
	}
	q.waiting = nil
	for _, c := range slices.Clone(q.consumers) {
		c.ch.forget(c)
		if !c.ch.closed {
			c.ch.peer.CancelConsumer(c.tag)
		}
	}
	q.consumers = nil
	for _, x := range slices.Collect(maps.Values(b.exchanges)) {
		b.unbindAll(x, func(to *binding) bool { return to.queue == q })
	}
}

// looks is how often a quorum queue looks whether it has expired.
const looks = 5 * time.Second

// end is when a queue that nobody uses deletes itself.
func (q *Queue) end() time.Time {
	at := q.used.Add(q.args.expires)
	if !q.args.quorum {
		return at
	}
	n := (at.Sub(q.born) + looks - 1) / looks
	return q.born.Add(n * looks)
}

// tick is called when the queue's alarm has gone off.
func (q *Queue) tick() {
	b := q.b
	if q.args.expires > 0 && len(q.consumers) == 0 && !q.end().After(b.now) {
		b.dropQueue(q)
		return
	}
	for len(q.delayed) > 0 && !q.delayed[0].delayed.After(b.now) {
		e := q.delayed[0]
		q.delayed = q.delayed[1:]
		q.ready.giveBack(e, returnedByTimeout)
	}
	q.timeOut()
	q.unseen = false
	if q.discards != nil {
		q.discards.retry()
	}
	b.touch(q)
}

// schedule sets the alarm to the next thing that time brings.
func (q *Queue) schedule() {
	if q.deleted {
		return
	}
	var at time.Time
	if !q.unseen && !q.refusing {
		at = q.ready.nextExpiry()
	}
	if q.args.expires > 0 && len(q.consumers) == 0 {
		at = earlier(at, q.end())
	}
	if len(q.delayed) > 0 {
		at = earlier(at, q.delayed[0].delayed)
	}
	at = earlier(at, q.nextTimeout())
	if q.discards != nil {
		at = earlier(at, q.discards.next())
	}
	q.b.wakeAt(q, at)
}

func (q *Queue) slot() *time.Time {
	if q.deleted {
		return nil
	}
	return &q.alarm
}
