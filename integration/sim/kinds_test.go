package sim

import (
	"slices"
	"time"

	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
)

// kinds are scenarios of which newPlan would make too few: each is some in a hundred, and
// -kind runs only those of one name.
var kinds = []struct {
	name  string
	makes func(m maker, p *plan)
}{
	{"rush", maker.rushes},
	{"hold", maker.holds},
	{"late", maker.lateOnes},
	{"share", maker.shares},
	{"in place", maker.inPlace},
	{"in place in order", maker.inPlaceInOrder},
	{"crash", func(m maker, p *plan) { m.crashes(p, 0) }},
	{"crash in order", func(m maker, p *plan) { m.crashes(p, pick(m, 1, 1, 2)) }},
	{"shards", maker.sharded},
	{"stop", maker.stops},
	{"crash apart", maker.crashesApart},
	{"stuck", maker.stuckMessage},
	{"late in place", maker.lateInPlace},
}

// lateOnes has a process that begins with a message, and does not know yet that the broker has
// given it to another.
func (m maker) lateOnes(p *plan) {
	p.calm, p.latency, p.away, p.lanes = false, 0, span{}, lanesPlan{}
	p.heartbeat = pick(m, 30*time.Second, time.Minute)
	low := m.between(300*time.Millisecond, 3*time.Second)
	p.schedules = []delay.Schedule{{low, 2 * low, low}}
	p.handlers = handlers{fail: 700, snooze: pick(m, 0, 200), slow: 1000, deaf: pick(m, 0, 500), slowness: m.between(100*time.Millisecond, 20*time.Second)}
	p.producers = []producerPlan{{callers: 1, messages: inARow(1, 6, 50*time.Millisecond)}}
	p.consumers = nil
	for range 2 {
		p.consumers = append(p.consumers, consumerPlan{concurrency: pick(m, 1, 2), prefetch: 10, lives: []life{{starts: m.between(time.Millisecond, 3*time.Second)}}})
	}
	at := 3 * time.Second
	p.faults = nil
	for range 1 + m.IntN(2) {
		at += m.between(time.Millisecond, 10*time.Second)
		p.faults = append(p.faults, pick(m, fault{kind: halfOpen, target: consumerName(0), at: at}, fault{kind: halfOpen, target: consumerName(1), at: at},
			fault{kind: blackHole, target: consumerName(0), at: at, lasts: m.between(time.Second, 5*time.Minute)}))
	}
}

// lateInPlace has a process go on with attempts in place when the broker has given the message to
// another, which counts from its headers on.
func (m maker) lateInPlace(p *plan) {
	m.lateOnes(p)
	p.handlers.fail = pick(m, 700, 900)
	p.consumers[0].inPlace, p.consumers[1].inPlace = true, m.chance(30)
}

// shares has one key, or some, with more messages than may be handled at a time, in every
// kind of trouble that the scenario has.
func (m maker) shares(p *plan) {
	p.keys = 1 + m.IntN(3)
	for i := range p.consumers {
		c := &p.consumers[i]
		c.perKey, c.inPlace = 2+m.IntN(3), c.inPlace || c.batch == 0 && p.fitInPlace() && m.chance(30)
		c.concurrency = c.perKey + m.IntN(20)
		if c.prefetch > 0 {
			c.prefetch += c.perKey + c.batch
		}
	}
	p.handlers.slow = pick(m, 300, 1000)
	q := &p.producers[0]
	at := q.messages[m.IntN(len(q.messages))].at
	for i := range q.messages { // at once
		if m.chance(70) {
			q.messages[i].at = at
		}
	}
	slices.SortStableFunc(q.messages, func(a, b messagePlan) int { return int(a.at - b.at) })
}

// inPlace has every message retried in place and one of a key handled at a time, in every
// kind of trouble that the scenario has. The waits are up to the longest that there may be.
func (m maker) inPlace(p *plan) {
	p.keys = 1 + m.IntN(4)
	if !p.fitInPlace() || m.chance(30) {
		for i := range p.schedules {
			p.schedules[i] = m.waitsInPlace(pick(m, time.Minute, 5*time.Minute, 15*time.Minute-time.Second))
		}
	}
	p.handlers.fail = pick(m, 200, 500, 900)
	for i := range p.consumers {
		c := &p.consumers[i]
		c.perKey, c.inPlace, c.batch, c.vague, c.linger = 1, true, 0, 0, 0
	}
}

// waitsInPlace returns a schedule with so long waits in sum at most.
func (m maker) waitsInPlace(sum time.Duration) (s delay.Schedule) {
	for range 1 + m.IntN(3) {
		wait := m.between(time.Millisecond, sum)
		s, sum = append(s, wait), sum-wait
		if sum < time.Second {
			break
		}
	}
	return s
}

// inPlaceInOrder has messages fail of which each keeps its key until it is done or a letter.
// Nothing breaks, and so none overtakes another.
func (m maker) inPlaceInOrder(p *plan) {
	p.calm, p.ordered, p.keys = true, true, pick(m, 1, 2, 8)
	p.schedules = []delay.Schedule{m.waitsInPlace(m.between(100*time.Millisecond, 14*time.Minute))}
	p.handlers, p.away, p.lanes, p.faults = handlers{fail: pick(m, 100, 300, 900), panics: pick(m, 0, 100), permanent: pick(m, 0, 100)}, span{}, lanesPlan{}, nil
	q, at := producerPlan{callers: 1, declares: m.chance(50)}, time.Second
	for n := range pick(m, 5, 20, 40) {
		q.messages = append(q.messages, messagePlan{n: n + 1, at: at, how: together})
		if m.chance(20) {
			at += m.between(time.Millisecond, 5*time.Minute)
		}
	}
	p.producers = []producerPlan{q}
	c := consumerPlan{declares: m.chance(50), concurrency: pick(m, 1, 2, 8), perKey: 1, inPlace: true, lives: []life{{}}}
	if m.chance(30) {
		c.prefetch = c.concurrency + m.IntN(20)
	}
	p.consumers = []consumerPlan{c}
}

// crashes has one message end each process whose handler gets it, on a queue that
// counts that. perKey is the KeyLimit. Nothing else breaks, and so it is the only
// letter that is not made by a handler.
func (m maker) crashes(p *plan, perKey int) {
	p.calm, p.kind, p.ordered, p.keys = true, topology.Quorum, false, 1+m.IntN(orderKeys)
	p.engine = pick(m, m.engines(*p)...)
	p.away, p.lanes, p.faults = span{}, lanesPlan{}, nil
	p.handlers = handlers{
		fail: pick(m, 0, 50, 300), later: pick(m, 0, 0, 50), permanent: pick(m, 0, 0, 50), requeue: pick(m, 0, 0, 100), snooze: pick(m, 0, 0, 100),
		slow: pick(m, 0, 300, 1000), slowness: m.between(10*time.Millisecond, 10*time.Second),
	}
	q, at := producerPlan{callers: 1, declares: m.chance(50)}, time.Second
	for n := range pick(m, 2, 10, 40, 100) {
		q.messages = append(q.messages, messagePlan{n: n + 1, at: at, how: pick(m, alone, together)})
		if m.chance(10) {
			at += m.between(time.Millisecond, time.Minute)
		}
	}
	p.producers = []producerPlan{q}
	p.crasher = 1 + m.IntN(len(q.messages))
	m.consumers(p, time.Minute)
	for i := range p.consumers {
		c := &p.consumers[i]
		c.perKey, c.lives = perKey, []life{{schedule: m.IntN(len(p.schedules))}}
	}
	if perKey == 1 && m.chance(50) {
		m.inTurns(p)
	}
}

// crashesApart has a message in one of several shards or lanes end each process whose handler gets it. Handlers in
// the others take longer than the process lives.
func (m maker) crashesApart(p *plan) {
	m.crashes(p, pick(m, 0, 0, 1, 1, 2))
	p.bound, p.shards, p.laned, p.single, p.keys = false, 2+m.IntN(7), m.chance(40), m.chance(30), 4+m.IntN(20)
	p.handlers.slow = pick(m, 300, 1000)
}

// inTurns has one process keep the order of the messages of each key.
func (m maker) inTurns(p *plan) {
	p.turns, p.schedules = true, []delay.Schedule{m.waitsInPlace(m.between(100*time.Millisecond, 20*time.Second))}
	p.handlers.later, p.handlers.snooze = 0, 0 // others overtake these
	for i := range p.producers[0].messages {
		p.producers[0].messages[i].how = alone
	}
	c := p.consumers[0]
	c.inPlace, c.prefetch, c.batch, c.vague, c.linger, c.lives = true, 0, 0, 0, 0, []life{{}}
	p.consumers = []consumerPlan{c}
}

// stops has one process after the other stop while its copies have no answer yet. Nothing breaks,
// and so nothing is doubled.
func (m maker) stops(p *plan) {
	*p = plan{seed: p.seed, version: p.version, kind: p.kind, heartbeat: p.heartbeat, bound: p.bound, pointers: p.pointers, panics: p.panics, measured: p.measured, calm: true}
	p.latency, p.engine = m.between(time.Millisecond, 200*time.Millisecond), pick(m, topology.EngineRepublish, topology.EngineCarry, topology.EngineAuto)
	p.schedules = []delay.Schedule{{time.Second, m.between(100*time.Millisecond, 5*time.Second), time.Second}}
	p.handlers = handlers{fail: pick(m, 500, 900), snooze: pick(m, 0, 0, 200), slow: pick(m, 0, 300, 1000), slowness: m.between(10*time.Millisecond, 2*time.Second)}
	c := consumerPlan{declares: m.chance(50), concurrency: pick(m, 1, 5, 20), perKey: pick(m, 0, 0, 1, 2), drain: pick(m, 0, 10*time.Second)}
	at, length := time.Duration(0), 2*time.Minute
	for range 3 + m.IntN(10) {
		l := life{starts: at, stops: at + m.between(300*time.Millisecond, 10*time.Second)}
		c.lives, at = append(c.lives, l), l.stops+m.between(time.Millisecond, 2*time.Second)
	}
	c.lives = append(c.lives, life{starts: at})
	p.consumers = []consumerPlan{c}
	m.producers(p, min(at, length))
	p.producers = p.producers[:1]
}
