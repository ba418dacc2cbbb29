package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
)

// plan is a scenario. It is a value: leaving something out makes a smaller one.
type plan struct {
	seed      uint64
	version   string
	latency   time.Duration // of all that the broker sends, all the time
	heartbeat time.Duration
	bound     bool // messages come through an exchange
	kind      topology.QueueType
	shards    int // that the work queue is spread over; 0: it is one queue. Where processes differ it is the most of them
	counts    counts
	laned     bool // those are lanes
	single    bool // each queue has a single active consumer
	engine    topology.Engine
	schedules []delay.Schedule
	pointers  bool // to the specifications, where values would do
	panics    bool // in every hook
	handlers  handlers
	away      span // of the service that handlers need
	calm      bool // without faults and stops
	ordered   bool // a consumer keeps the order of the messages of a key
	turns     bool // likewise through faults, but where the pages say that it does not
	keys      int  // of the messages, in turns; 0: orderKeys
	crasher   int  // number of the message that ends each process whose handler gets it; 0: none
	stuck     stuckPlan
	measured  bool // with hooks for metrics: without them copies go together
	producers []producerPlan
	consumers []consumerPlan
	lanes     lanesPlan
	faults    []fault
}

// counts are the numbers of shards that the publishers know, the second one from a time on. The zero value is no change.
type counts struct {
	before, after int
	from          time.Duration
}

// known is how many shards the publishers know at a time.
func (p plan) known(at time.Duration) int {
	switch {
	case p.counts == counts{}:
		return p.shards
	case at < p.counts.from:
		return p.counts.before
	}
	return p.counts.after
}

// span is a time of a scenario. Its zero value is none.
type span struct{ from, lasts time.Duration }

func (s span) covers(d time.Duration) bool { return s.from <= d && d < s.from+s.lasts }

// producerPlan is a process that publishes.
type producerPlan struct {
	callers    int
	window     int
	timeout    time.Duration
	fallback   bool
	after      time.Duration // FallbackAfter
	reliable   bool          // the fallback ends with a sink that takes every message
	declares   bool          // in OnConnect
	awaits     bool          // the connection, again and again for a short time, before it publishes
	undeclared bool          // batches have one more message, whose Delay leads nowhere
	also       alsoPlan
	shelf      shelfPlan
	messages   []messagePlan
	shutdowns  []span // with so much time each; another Producer follows
}

type messagePlan struct {
	n        int // its number in the scenario, which decides what its handlers do
	at       time.Duration
	how      publishing
	deadline time.Duration // of one call of Publish; 0: none
}

// publishing is how a message is published.
type publishing uint8

const (
	alone publishing = iota
	async
	together // with the next ones of the same caller
)

// consumerPlan is a service that consumes, in one process after the other.
type consumerPlan struct {
	declares    bool // in OnConnect
	concurrency int
	perKey      int  // KeyLimit; 0: none
	inPlace     bool // RetryInPlace
	prefetch    int
	batch       int           // the size of batches; 0: none
	linger      time.Duration // of a batch
	vague       int           // chance of 1,000 that a message has its batch fail without a word on which it is
	drain       time.Duration
	timeout     time.Duration // HandlerTimeout
	copies      time.Duration // CopyTimeout
	lives       []life
}

// life is one process. The last one of a service ends with the scenario.
type life struct {
	schedule int
	starts   time.Duration
	stops    time.Duration // 0: with the scenario
	ahead    time.Duration // of the clock of others
	count    int           // of shards; 0: plan.shards
}

// handlers are what handlers do, in chances of 1,000.
type handlers struct {
	fail, panics, later, permanent, requeue, discard, snooze, slow, deaf int
	slowness                                                             time.Duration
}

// longest is how long a run takes at most: a handler may be slow, and deaf afterwards.
func (h handlers) longest() (longest time.Duration) {
	for _, chance := range []int{h.slow, h.deaf} {
		if chance > 0 {
			longest += h.slowness
		}
	}
	return longest
}

type fault struct {
	kind   kind
	at     time.Duration
	lasts  time.Duration
	target string        // part of a name; "": all
	shard  int           // whose queue or exchange the target is
	amount time.Duration // of slow
	ours   bool          // consumers put the exchange back, and nobody else does
}

func (f fault) String() string {
	s := fmt.Sprintf("%v %s", f.at, f.kind)
	if f.target != "" {
		s += " " + f.target
	}
	if f.shard > 0 {
		s += fmt.Sprintf(" of shard %d", f.shard)
	}
	if f.amount > 0 {
		s += fmt.Sprintf(" by %v", f.amount)
	}
	if f.lasts > 0 {
		s += fmt.Sprintf(" for %v", f.lasts)
	}
	if f.ours {
		s += ", and only consumers put it back"
	}
	return s
}

type kind string

const (
	cut         kind = "cut"
	disconnect  kind = "disconnect"
	halfOpen    kind = "half-open"
	reset       kind = "reset"
	blackHole   kind = "black hole"
	stall       kind = "stall"
	kill        kind = "kill"
	stop        kind = "stop"
	block       kind = "block"
	refuse      kind = "refuse"
	slow        kind = "slow"
	deleteQueue kind = "delete queue"
	deleteX     kind = "delete exchange"
	pause       kind = "pause"
	sigkill     kind = "kill the process"
	ungroup     kind = "delete the queues by which processes know each other"
)

const work = "orders"

// maker makes plans.
type maker struct{ *rand.Rand }

func (m maker) chance(percent int) bool { return m.IntN(100) < percent }

func pick[T any](m maker, list ...T) T { return list[m.IntN(len(list))] }

// between is a time that is as likely to be of one order of magnitude as of
// another, in whole milliseconds.
func (m maker) between(low, high time.Duration) time.Duration {
	for d := low; ; d *= 4 {
		if d*4 >= high || m.chance(30) {
			return (d + time.Duration(m.Int64N(int64(min(3*d, high-d))+1))).Round(time.Millisecond)
		}
	}
}

func newPlan(seed uint64) plan {
	m := maker{rand.New(rand.NewPCG(seed, 7))}
	p := m.plan(seed)
	for i := range p.producers {
		if m.chance(15) {
			p.producers[i].shelf = shelfPlan{room: 1 + m.IntN(3), notes: 1 + m.IntN(8), at: time.Duration(m.Int64N(int64(p.faultsEnd()) + 1))}
		}
	}
	if m.chance(20) {
		m.clocks(&p)
	}
	if m.chance(10) {
		p.lanes = lanesPlan{tickets: 2 + m.IntN(12), at: time.Duration(m.Int64N(int64(p.faultsEnd()) + 1)), others: m.otherLanes(), lasts: m.between(10*time.Second, 5*time.Minute)}
	}
	for i := range p.producers {
		if m.chance(10) {
			p.producers[i].also = m.also()
		}
	}
	if m.chance(10) && !p.calm {
		m.silence(&p)
	}
	if m.chance(8) && p.faultsEnd() < time.Hour { // processes look every 10 s, which takes its time
		m.spread(&p)
	}
	for _, k := range kinds {
		if *onlyKind == k.name || *onlyKind == "" && m.chance(3) {
			k.makes(m, &p)
			break // what one kind says of a plan, another would not keep
		}
	}
	m.fewSlots(&p)
	p.inOrder()
	return p
}

func (m maker) plan(seed uint64) plan {
	p := plan{
		seed:      seed,
		version:   pick(m, "3.10", "4.0", "4.3"),
		heartbeat: pick(m, 5*time.Second, 10*time.Second, 30*time.Second, time.Minute),
		bound:     m.chance(60),
		kind:      pick(m, topology.Quorum, topology.Quorum, topology.Classic),
		pointers:  m.chance(50),
		panics:    m.chance(20),
		calm:      m.chance(10),
	}
	if m.chance(30) {
		p.latency = m.between(time.Millisecond, 120*time.Millisecond)
	}
	p.engine = pick(m, m.engines(p)...)
	p.measured = m.chance(50)
	if m.chance(90) { // of the scenarios, and less than half of the time
		m.small(&p)
		return p
	}
	for range pick(m, 1, 1, 1, 2, 3) {
		p.schedules = append(p.schedules, m.schedule())
	}
	p.handlers = m.handlers()
	length := m.between(30*time.Second, 30*time.Minute)
	if m.chance(5) {
		length = m.between(time.Hour, 12*time.Hour)
	}
	if m.chance(20) {
		p.away = span{time.Duration(m.Int64N(int64(length))), m.between(time.Second, 24*time.Hour)}
	}
	m.producers(&p, length)
	m.consumers(&p, length)
	if !p.calm {
		for range 1 + m.IntN(pick(m, 3, 8, 16)) {
			p.faults = append(p.faults, m.fault(p, length))
		}
		if m.chance(30) {
			p.faults = append(p.faults, m.gap(p)...)
		}
		p.inOrder()
	}
	return p
}

func (p plan) inOrder() {
	slices.SortStableFunc(p.faults, func(a, b fault) int { return int(a.at - b.at) })
}

func (m maker) engines(p plan) []topology.Engine {
	all := []topology.Engine{topology.EngineAuto, topology.EngineAuto, topology.EngineAuto, topology.EngineRepublish, topology.EngineCarry}
	if p.kind == topology.Quorum && p.version != "3.10" {
		all = append(all, topology.EngineNack)
	}
	return all
}

func (m maker) schedule() (s delay.Schedule) {
	if m.chance(15) {
		return delay.Default()
	}
	low := m.between(100*time.Millisecond, 3*time.Minute)
	for range m.IntN(6) {
		s = append(s, m.between(low, 8*low))
	}
	return s
}

func (m maker) handlers() (h handlers) {
	for _, chance := range []*int{&h.fail, &h.panics, &h.later, &h.permanent, &h.requeue, &h.discard, &h.snooze, &h.slow, &h.deaf} {
		if m.chance(50) {
			*chance = pick(m, 5, 20, 100)
		}
	}
	h.fail = pick(m, 50, 200, 500, 900)
	h.slowness = m.between(10*time.Millisecond, 5*time.Minute)
	return h
}

func (m maker) producers(p *plan, length time.Duration) {
	n := 0
	for range pick(m, 1, 1, 2, 3) {
		q := producerPlan{
			callers:  pick(m, 1, 2, 8),
			window:   pick(m, 0, 0, 1, 5),
			timeout:  pick(m, 0, 0, 5*time.Second, time.Minute),
			fallback: m.chance(30),
			declares: m.chance(50),
			awaits:   m.chance(30),
		}
		if q.fallback {
			q.after, q.reliable = pick(m, 0, 20*time.Millisecond, 300*time.Millisecond), m.chance(50)
		}
		for !p.calm && m.chance(20) {
			q.shutdowns = append(q.shutdowns, span{time.Duration(m.Int64N(int64(length))), m.between(50*time.Millisecond, 10*time.Second)})
		}
		messages := pick(m, 1, 3, 10, 40, 120)
		deadline := time.Duration(0)
		if m.chance(40) {
			deadline = max(m.between(50*time.Millisecond, 10*time.Second), 3*p.latency)
		}
		way := pick(m, alone, alone, async, together)
		q.undeclared = way == together && m.chance(50)
		for range messages {
			n++
			q.messages = append(q.messages, messagePlan{
				n: n, at: time.Duration(m.Int64N(int64(length))).Round(time.Millisecond), how: way, deadline: deadline,
			})
		}
		slices.SortStableFunc(q.messages, func(a, b messagePlan) int { return int(a.at - b.at) })
		p.producers = append(p.producers, q)
	}
}

// fitInPlace reports whether messages may spend the waits of every schedule in place.
func (p plan) fitInPlace() bool {
	return p.waits() < 15*time.Minute
}

func (m maker) consumers(p *plan, length time.Duration) {
	for range pick(m, 1, 1, 2, 3) {
		c := consumerPlan{
			declares:    m.chance(70),
			concurrency: pick(m, 1, 2, 5, 20),
			drain:       pick(m, 0, 0, time.Second, time.Minute),
			copies:      pick(m, 0, 0, 10*time.Second),
		}
		if m.chance(20) {
			c.prefetch = 1 + m.IntN(c.concurrency+20)
		}
		if m.chance(30) {
			c.perKey = pick(m, 1, 1, 2)
		}
		if m.chance(20) {
			c.timeout = m.between(time.Second, 2*time.Minute)
		}
		if m.chance(35) {
			c.batch, c.vague = pick(m, 2, 5, 30), pick(m, 0, 50, 300)
			if m.chance(50) {
				c.linger = m.between(time.Millisecond, 10*time.Second)
			}
			if c.prefetch > 0 {
				c.prefetch += c.concurrency + c.batch
			}
		}
		l := life{schedule: m.IntN(len(p.schedules))}
		if m.chance(30) && !p.calm {
			l.starts = time.Duration(m.Int64N(int64(length)))
		}
		for !p.calm && m.chance(40) {
			l.stops = l.starts + m.between(time.Millisecond, length)
			c.lives = append(c.lives, l)
			l = life{schedule: m.IntN(len(p.schedules)), starts: l.stops + m.between(time.Millisecond, 10*time.Minute)}
		}
		c.lives = append(c.lives, l)
		c.inPlace = c.batch == 0 && p.fitInPlace() && m.chance(25)
		p.consumers = append(p.consumers, c)
	}
}

func (m maker) fault(p plan, length time.Duration) fault {
	f := fault{at: time.Duration(m.Int64N(int64(length))).Round(time.Millisecond)}
	f.lasts = m.between(100*time.Millisecond, 20*time.Minute)
	if m.chance(3) {
		f.lasts = m.between(time.Hour, 12*time.Hour)
	}
	kinds := []kind{cut, cut, cut, disconnect, halfOpen, halfOpen, reset, reset, blackHole, blackHole, stall, kill, kill, stop, block, refuse, refuse, slow, deleteQueue, deleteX, pause}
	if p.version == "3.10" && p.engine == topology.EngineRepublish {
		kinds = slices.DeleteFunc(kinds, func(k kind) bool { return k == kill || k == stop || k == deleteX })
	}
	f.kind = pick(m, kinds...)
	switch f.kind {
	case cut, disconnect:
		f.target, f.lasts = pick(m, "", m.process(p), " publish", " consume", m.process(p)+" consume"), 0
	case halfOpen, reset:
		f.target, f.lasts = m.process(p), 0
	case blackHole:
		f.target = m.process(p)
	case pause:
		f.target = consumerName(m.IntN(len(p.consumers)))
	case refuse, deleteQueue:
		f.target = pick(m, "", ".wait.1", ".wait.2", ".wait.3", ".dlq")
	case deleteX:
		f.target = pick(m, ".rehop.dlx", ".rehop.delay", ".rehop.delay.first", ".rehop.delay.spare", ".rehop.return", ".rehop.return.spare", ".rehop.unrouted")
		f.ours = m.chance(30) && p.needs(f.target)
	case slow:
		f.amount = m.between(10*time.Millisecond, 3*time.Second)
	}
	return f
}

// gap returns faults in a gap that they would rarely meet by chance: a process loses
// its connections, its queue or the broker while its copies have no answer, or while its handlers
// run; or a producer loses them while the confirm of a message is on its way.
func (m maker) gap(p plan) []fault {
	shop := m.IntN(len(p.producers))
	sent := p.producers[shop].messages
	at := sent[m.IntN(len(sent))].at
	if m.chance(25) {
		return m.flicker(at)
	}
	office := consumerName(m.IntN(len(p.consumers)))
	if p.latency > 0 && m.chance(50) {
		return []fault{{kind: pick(m, reset, cut), target: producerName(shop), at: at + time.Duration(m.Int64N(int64(3*p.latency)))}}
	}
	if m.chance(30) {
		at += time.Duration(m.Int64N(int64(p.handlers.slowness) + 1)).Round(time.Millisecond)
		return []fault{pick(m,
			fault{kind: cut, target: office + " consume", at: at},
			fault{kind: disconnect, target: office + " consume", at: at},
			fault{kind: halfOpen, target: office, at: at},
			fault{kind: blackHole, target: office, at: at, lasts: m.between(time.Second, 2*time.Minute)},
			fault{kind: deleteQueue, at: at, lasts: time.Second},
		)}
	}
	away := fault{kind: refuse, target: pick(m, ".wait.", ".wait.", ".wait.", ".dlq"), at: at, lasts: m.between(10*time.Second, 2*time.Minute)}
	lost := fault{kind: pick(m, reset, cut, disconnect), target: office}
	if waits := p.schedules[0]; p.engine == topology.EngineCarry && len(waits) > 0 && m.chance(70) { // back to the work queue
		away.target, lost.kind = "", pick(m, cut, disconnect)
		away.at += time.Duration(m.Int64N(int64(waits[0]) + 1)).Round(time.Millisecond)
		at += waits[0]
	}
	lost.at = at + time.Duration(m.Int64N(int64(away.lasts))).Round(time.Millisecond)
	if lost.kind != reset {
		lost.target += " publish"
	}
	return []fault{away, lost}
}

// flicker is an alarm that comes and goes.
func (m maker) flicker(at time.Duration) (all []fault) {
	for range 2 + m.IntN(6) {
		f := fault{kind: block, at: at, lasts: m.between(10*time.Millisecond, 5*time.Second)}
		all = append(all, f)
		at += f.lasts + m.between(time.Millisecond, 5*time.Second)
	}
	return all
}

// small makes a plan of few messages that meet one gap: it runs in milliseconds, and what
// goes wrong in it is easily read.
func (m maker) small(p *plan) {
	length := m.between(5*time.Second, 2*time.Minute)
	low := m.between(100*time.Millisecond, 10*time.Second)
	schedule := delay.Schedule{}
	for range pick(m, 0, 1, 2, 2, 3) {
		schedule = append(schedule, m.between(low, 4*low))
	}
	p.schedules = []delay.Schedule{schedule}
	p.handlers = handlers{fail: pick(m, 0, 300, 900, 900), slow: pick(m, 0, 0, 300, 1000), deaf: pick(m, 0, 0, 300, 1000), slowness: m.between(10*time.Millisecond, 30*time.Second)}
	if m.chance(30) {
		odd := []*int{&p.handlers.panics, &p.handlers.later, &p.handlers.permanent, &p.handlers.requeue, &p.handlers.discard, &p.handlers.snooze}
		*pick(m, odd...) = 300
	}
	m.producers(p, length)
	p.producers = p.producers[:1]
	if q := &p.producers[0]; len(q.messages) > 10 {
		q.messages = q.messages[:10]
	}
	m.consumers(p, length)
	p.consumers = p.consumers[:min(2, len(p.consumers))]
	switch {
	case p.calm:
	case m.chance(20):
		m.hail(p)
	case m.chance(25):
		m.restless(p, length)
	case m.chance(20):
		p.faults = []fault{m.fault(*p, length)}
	default:
		p.faults = m.gap(*p)
	}
	p.inOrder()
}

// hail has one process lose its connections again and again while it is busy, and so at
// moments at which it does what it rarely does. A process that handles messages has more
// of them than handlers, which do not heed the end of their ctx.
func (m maker) hail(p *plan) {
	length, target := m.between(2*time.Second, 10*time.Second), producerName(0)
	p.latency = m.between(time.Millisecond, 40*time.Millisecond)
	way := pick(m, async, together)
	if m.chance(50) {
		target = consumerName(0)
		p.consumers[0].concurrency, p.consumers[0].lives = pick(m, 1, 2), []life{{}}
		p.handlers.deaf, p.handlers.slowness = 1000, m.between(100*time.Millisecond, length)
	}
	q := &p.producers[0]
	q.messages = nil
	for n := range 10 + m.IntN(30) {
		q.messages = append(q.messages, messagePlan{n: n + 1, at: time.Duration(m.Int64N(int64(length))).Round(time.Millisecond), how: way})
	}
	slices.SortStableFunc(q.messages, func(a, b messagePlan) int { return int(a.at - b.at) })
	for range 4 + m.IntN(8) {
		at := q.messages[m.IntN(len(q.messages))].at + time.Duration(m.Int64N(int64(3*p.latency)))
		p.faults = append(p.faults, fault{kind: pick(m, reset, cut, disconnect), target: target, at: at})
	}
}

// rushes has more messages come at once than the broker may send ahead, to a consumer that
// was idle for so long that it asks its queue for a sign at about that time. Nothing breaks,
// and so nothing comes out of its order.
func (m maker) rushes(p *plan) {
	p.calm, p.ordered, p.keys, p.latency = true, true, 1, m.between(5*time.Millisecond, 200*time.Millisecond)
	p.handlers, p.away, p.lanes, p.faults = handlers{}, span{}, lanesPlan{}, nil
	q, at, n := producerPlan{callers: 1, declares: m.chance(50)}, time.Second, 0
	for range 20 {
		for range 10 {
			n++
			q.messages = append(q.messages, messagePlan{n: n, at: at, how: together})
		}
		at += 10*time.Second + m.between(100*time.Millisecond, 4*time.Second)
	}
	p.producers = []producerPlan{q}
	c := consumerPlan{declares: m.chance(50), concurrency: pick(m, 1, 2, 4), perKey: 1, lives: []life{{}}}
	c.prefetch = c.concurrency + m.IntN(3)
	p.consumers = []consumerPlan{c}
}

// holds has messages held when one process after the other stops.
func (m maker) holds(p *plan) {
	p.calm, p.ordered, p.keys = true, true, 1
	p.handlers, p.away, p.lanes, p.faults = handlers{requeue: 300}, span{}, lanesPlan{}, nil
	q, at := producerPlan{callers: 1, declares: m.chance(50)}, time.Second
	c := consumerPlan{declares: m.chance(50), concurrency: pick(m, 1, 2, 4), perKey: 1, prefetch: 100}
	starts := time.Duration(0)
	for n := range 60 {
		q.messages = append(q.messages, messagePlan{n: n + 1, at: at, how: together})
		if n%5 == 4 { // there is room for all that the next process has
			l := life{starts: starts, stops: at + m.between(time.Millisecond, 3*time.Second)}
			c.lives, starts = append(c.lives, l), l.stops+m.between(time.Millisecond, 3*time.Second)
			at += 20 * time.Second
		}
	}
	c.lives = append(c.lives, life{starts: starts})
	p.producers, p.consumers = []producerPlan{q}, []consumerPlan{c}
}

// silence has the work queue give no answer to the messages of a producer, which is shut
// down meanwhile, or whose callers wait for a short time and have a fallback.
func (m maker) silence(p *plan) {
	q := &p.producers[m.IntN(len(p.producers))]
	at := q.messages[m.IntN(len(q.messages))].at
	p.faults = append(p.faults, fault{kind: refuse, at: max(0, at-time.Millisecond), lasts: m.between(10*time.Second, time.Minute)})
	if m.chance(50) {
		q.shutdowns = append(q.shutdowns, span{at + m.between(time.Millisecond, 3*time.Second), m.between(50*time.Millisecond, 5*time.Second)})
		return
	}
	q.fallback, q.reliable = true, true
	deadline := max(m.between(50*time.Millisecond, 10*time.Second), 3*p.latency)
	for i := range q.messages {
		q.messages[i].deadline = deadline
	}
}

// restless has one process after the other stop while it has messages.
func (m maker) restless(p *plan, length time.Duration) {
	c := &p.consumers[0]
	c.drain, c.lives = pick(m, 0, time.Second, 5*time.Second), nil
	at := time.Duration(0)
	for range 2 + m.IntN(8) {
		l := life{starts: at, stops: at + m.between(100*time.Millisecond, length/4)}
		c.lives, at = append(c.lives, l), l.stops+m.between(time.Millisecond, 5*time.Second)
	}
	c.lives = append(c.lives, life{starts: at})
}

// process is the name of a process, or of all of a kind.
func (m maker) process(p plan) string {
	if m.chance(60) {
		return consumerName(m.IntN(len(p.consumers)))
	}
	return producerName(m.IntN(len(p.producers)))
}

func producerName(i int) string { return fmt.Sprintf("shop%d", i) }
func consumerName(i int) string { return fmt.Sprintf("office%d", i) }

// spec is the work queue as a process with a schedule has it.
func (p plan) spec(schedule int) topology.WorkQueue {
	w := topology.WorkQueue{Name: work, Type: p.kind, Engine: p.engine, Waits: p.schedules[schedule], SingleActiveConsumer: p.single}
	if p.bound {
		w.Bindings = []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}}
	}
	return w
}

// specs are those of a process that knows so many shards.
func (p plan) specs(schedule, count int) []topology.Spec {
	var all []topology.Spec
	if p.bound {
		all = append(all, topology.Exchange{Name: "shop"})
	}
	if p.laned {
		l := p.spreadOverLanes(schedule)
		if p.pointers {
			return append(all, &l)
		}
		return append(all, l)
	}
	if p.shards > 0 {
		s := p.spread(schedule, count)
		if p.pointers {
			return append(all, &s)
		}
		return append(all, s)
	}
	w := p.spec(schedule)
	if p.pointers {
		return append(all, &w)
	}
	return append(all, w)
}

// source is the same for a consumer.
func (p plan) source(schedule, count int) topology.Source {
	if p.laned {
		l := p.spreadOverLanes(schedule)
		if p.pointers {
			return &l
		}
		return l
	}
	if p.shards > 0 {
		s := p.spread(schedule, count)
		if p.pointers {
			return &s
		}
		return s
	}
	w := p.spec(schedule)
	if p.pointers {
		return &w
	}
	return w
}

// needs reports whether every consumer needs an exchange.
func (p plan) needs(exchange string) bool {
	waits := !slices.ContainsFunc(p.schedules, func(s delay.Schedule) bool { return len(s) == 0 })
	return p.nacks() && waits || exchange != ".rehop.delay" && exchange != ".rehop.delay.first"
}

// messages is how many there are.
func (p plan) messages() (n int) {
	for _, q := range p.producers {
		n += len(q.messages)
	}
	return n
}

// longest is the schedule with the most waits.
func (p plan) longest() (longest delay.Schedule) {
	for _, s := range p.schedules {
		if len(s) >= len(longest) {
			longest = s
		}
	}
	return longest
}

// faultsEnd is when the last fault and the last stop are over.
func (p plan) faultsEnd() (end time.Duration) {
	for _, f := range p.faults {
		end = max(end, f.at+f.lasts)
	}
	for _, c := range p.consumers {
		end = max(end, c.lives[len(c.lives)-1].starts)
	}
	for _, q := range p.producers {
		for _, m := range q.messages {
			end = max(end, m.at)
		}
	}
	end = max(end, p.lanes.at+p.lanes.lasts, p.stuck.until, p.counts.from)
	return max(end, p.away.from+p.away.lasts)
}

// patience is how long all may take to come to rest after that.
func (p plan) patience() time.Duration {
	waits, wait := p.waits(), time.Duration(0)
	for _, s := range p.schedules {
		for _, w := range s {
			wait = max(wait, w)
		}
	}
	attempts := time.Duration(len(p.longest()) + 1)
	working := p.handling(p.messages())
	if p.handlers.later > 0 {
		waits += attempts * (longestAfter + wait)
	}
	if p.handlers.snooze > 0 {
		waits += mostSnoozes * attempts * (longestSnooze + wait)
	}
	if p.apart() > 0 { // each wait may last twice as long
		waits *= 2
	}
	return 2*waits + working + 45*time.Minute // among others a message that is held for 15 minutes, and callers that pause for one
}

// waits is how long a message waits at most that fails in every attempt.
func (p plan) waits() (most time.Duration) {
	for _, s := range p.schedules {
		var sum time.Duration
		for _, w := range s {
			sum += w
		}
		most = max(most, sum)
	}
	return most
}

// handling is how long the handlers and the answers of so many messages take.
func (p plan) handling(messages int) time.Duration {
	slots, waits := 1, time.Duration(0)
	for _, c := range p.consumers {
		slots = max(slots, c.slots(p.orderKeys()))
		if c.inPlace { // a message has its slot, and its key, while it waits
			waits = p.waits()
		}
	}
	each := 4*p.latency + p.handlers.longest()
	return (time.Duration(len(p.longest())+1)*each + waits) * time.Duration(messages/slots+1)
}

func (p plan) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "RabbitMQ %s, %s, engine %v, heartbeat %v, latency %v, through an exchange: %t, with metrics: %t, %d keys, in order: %t\n", p.version, p.kind, p.engine, p.heartbeat, p.latency, p.bound, p.measured, p.orderKeys(), p.ordered)
	if p.shards > 0 || p.turns {
		fmt.Fprintf(&s, "%d shards, of lanes: %t, a single active consumer: %t, in turns: %t\n", p.shards, p.laned, p.single, p.turns)
	}
	if p.counts != (counts{}) {
		fmt.Fprintf(&s, "publishers know %d shards, and from %v on %d\n", p.counts.before, p.counts.from, p.counts.after)
	}
	fmt.Fprintf(&s, "schedules %v, handlers %+v, pointers %t, hooks panic %t\n", p.schedules, p.handlers, p.pointers, p.panics)
	if p.away.lasts > 0 {
		fmt.Fprintf(&s, "from %v on handlers lack a service for %v\n", p.away.from, p.away.lasts)
	}
	for i, q := range p.producers {
		fmt.Fprintf(&s, "%s: %d callers, window %d, timeout %v, fallback %t after %v, reliable %t, undeclared delays %t, shutdowns %v, declares %t, awaits %t; %d messages",
			producerName(i), q.callers, q.window, q.timeout, q.fallback, q.after, q.reliable, q.undeclared, q.shutdowns, q.declares, q.awaits, len(q.messages))
		for j, m := range q.messages {
			if j == 12 {
				fmt.Fprint(&s, " ...")
				break
			}
			fmt.Fprintf(&s, " %d@%v", m.n, m.at)
		}
		if q.also.key != "" {
			fmt.Fprintf(&s, " %s %s;", q.also.header, q.also.key)
		}
		if q.shelf.room > 0 {
			fmt.Fprintf(&s, " and %d notes at %v for a shelf with room for %d;", q.shelf.notes, q.shelf.at, q.shelf.room)
		}
		if len(q.messages) > 0 {
			fmt.Fprintf(&s, " deadline %v, how %d", q.messages[0].deadline, q.messages[0].how)
		}
		fmt.Fprintln(&s)
	}
	for i, c := range p.consumers {
		if c.batch > 0 {
			fmt.Fprintf(&s, "%s: batches of %d, linger %v, vague %d\n", consumerName(i), c.batch, c.linger, c.vague)
		}
		fmt.Fprintf(&s, "%s: concurrency %d, of a key %d, in place %t, prefetch %d, drain %v, handler timeout %v, copy timeout %v, declares %t; lives", consumerName(i), c.concurrency, c.perKey, c.inPlace, c.prefetch, c.drain, c.timeout, c.copies, c.declares)
		for _, l := range c.lives {
			fmt.Fprintf(&s, " [%v to %v, schedule %d, clock ahead by %v]", l.starts, l.stops, l.schedule, l.ahead)
			if l.count > 0 {
				fmt.Fprintf(&s, " of %d shards", l.count)
			}
		}
		fmt.Fprintln(&s)
	}
	if p.crasher > 0 {
		fmt.Fprintf(&s, "message %d ends each process whose handler gets it\n", p.crasher)
	}
	if p.stuck.n > 0 {
		fmt.Fprintf(&s, "message %d cannot be handed over until %v\n", p.stuck.n, p.stuck.until)
	}
	if p.lanes.tickets > 0 {
		fmt.Fprintf(&s, "from %v on %d tickets for the lanes %v, and for %v a process with the lanes %v\n", p.lanes.at, p.lanes.tickets, lanes, p.lanes.lasts, p.lanes.others)
	}
	for _, f := range p.faults {
		fmt.Fprintln(&s, f)
	}
	return strings.TrimSpace(s.String())
}
