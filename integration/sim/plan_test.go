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
	engine    topology.Engine
	schedules []delay.Schedule
	handlers  handlers
	calm      bool // without faults and stops
	producers []producerPlan
	consumers []consumerPlan
	faults    []fault
}

// producerPlan is a process that publishes.
type producerPlan struct {
	callers  int
	window   int
	timeout  time.Duration
	fallback bool
	declares bool // in OnUp
	awaits   bool // the connection, again and again for a short time, before it publishes
	messages []messagePlan
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
	declares    bool // in OnUp
	concurrency int
	prefetch    int
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
}

// handlers are what handlers do, in chances of 1,000.
type handlers struct {
	fail, panics, later, permanent, requeue, discard, slow, deaf int
	slowness                                                     time.Duration
}

type fault struct {
	kind   kind
	at     time.Duration
	lasts  time.Duration
	target string        // part of a name; "": all
	amount time.Duration // of slow
}

func (f fault) String() string {
	s := fmt.Sprintf("%v %s", f.at, f.kind)
	if f.target != "" {
		s += " " + f.target
	}
	if f.amount > 0 {
		s += fmt.Sprintf(" by %v", f.amount)
	}
	if f.lasts > 0 {
		s += fmt.Sprintf(" for %v", f.lasts)
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
	p := plan{
		seed:      seed,
		version:   pick(m, "3.10", "4.0", "4.3"),
		heartbeat: pick(m, 5*time.Second, 10*time.Second, 30*time.Second, time.Minute),
		bound:     m.chance(60),
		kind:      pick(m, topology.Quorum, topology.Quorum, topology.Classic),
		calm:      m.chance(10),
	}
	if m.chance(30) {
		p.latency = m.between(time.Millisecond, 120*time.Millisecond)
	}
	p.engine = pick(m, m.engines(p)...)
	for range pick(m, 1, 1, 1, 2, 3) {
		p.schedules = append(p.schedules, m.schedule())
	}
	p.handlers = m.handlers()
	length := m.between(30*time.Second, 30*time.Minute)
	if m.chance(5) {
		length = m.between(time.Hour, 12*time.Hour)
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
		slices.SortStableFunc(p.faults, func(a, b fault) int { return int(a.at - b.at) })
	}
	return p
}

func (m maker) engines(p plan) []topology.Engine {
	all := []topology.Engine{topology.Auto, topology.Auto, topology.Auto, topology.Republish, topology.Carry}
	if p.kind == topology.Quorum && p.version != "3.10" {
		all = append(all, topology.Ladder)
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
	for _, chance := range []*int{&h.fail, &h.panics, &h.later, &h.permanent, &h.requeue, &h.discard, &h.slow, &h.deaf} {
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
		messages := pick(m, 1, 3, 10, 40, 120)
		deadline := time.Duration(0)
		if m.chance(40) {
			deadline = max(m.between(50*time.Millisecond, 10*time.Second), 3*p.latency)
		}
		way := pick(m, alone, alone, async, together)
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

func (m maker) consumers(p *plan, length time.Duration) {
	for range pick(m, 1, 1, 2, 3) {
		c := consumerPlan{
			declares:    m.chance(70),
			concurrency: pick(m, 1, 2, 5, 20),
			drain:       pick(m, 0, 0, time.Second, time.Minute),
			copies:      pick(m, 0, 0, 10*time.Second),
		}
		if m.chance(20) {
			c.prefetch = c.concurrency + m.IntN(20)
		}
		if m.chance(20) {
			c.timeout = m.between(time.Second, 2*time.Minute)
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
		p.consumers = append(p.consumers, c)
	}
}

func (m maker) fault(p plan, length time.Duration) fault {
	f := fault{at: time.Duration(m.Int64N(int64(length))).Round(time.Millisecond)}
	f.lasts = m.between(100*time.Millisecond, 20*time.Minute)
	if m.chance(3) {
		f.lasts = m.between(time.Hour, 12*time.Hour)
	}
	kinds := []kind{cut, cut, cut, disconnect, halfOpen, halfOpen, reset, reset, blackHole, blackHole, stall, kill, kill, stop, block, refuse, refuse, slow, deleteQueue, deleteX}
	if p.version == "3.10" && p.engine == topology.Republish {
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
	case refuse, deleteQueue:
		f.target = pick(m, "", ".wait.1", ".wait.2", ".wait.3", ".dlq")
	case deleteX:
		f.target = pick(m, ".dead", ".ladder", ".first", ".retry", ".rest")
	case slow:
		f.amount = m.between(10*time.Millisecond, 3*time.Second)
	}
	return f
}

// gap returns faults in a gap that they would rarely meet by chance: a process loses
// its connections while its copies to the waits have no answer, or a producer while
// the confirm of a message is on its way.
func (m maker) gap(p plan) []fault {
	shop := m.IntN(len(p.producers))
	sent := p.producers[shop].messages
	at := sent[m.IntN(len(sent))].at
	if p.latency > 0 && m.chance(50) {
		return []fault{{kind: pick(m, reset, cut), target: producerName(shop), at: at + time.Duration(m.Int64N(int64(3*p.latency)))}}
	}
	away := fault{kind: refuse, target: ".wait.", at: at, lasts: m.between(10*time.Second, 2*time.Minute)}
	lost := fault{kind: pick(m, reset, cut, disconnect), target: consumerName(m.IntN(len(p.consumers))),
		at: away.at + time.Duration(m.Int64N(int64(away.lasts))).Round(time.Millisecond)}
	if lost.kind != reset {
		lost.target += " publish"
	}
	return []fault{away, lost}
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
	w := topology.WorkQueue{Name: work, Type: p.kind, Engine: p.engine, Waits: p.schedules[schedule]}
	if p.bound {
		w.Bindings = []topology.Binding{{Exchange: "shop", Key: "order.#"}}
	}
	return w
}

func (p plan) specs(schedule int) []topology.Spec {
	if p.bound {
		return []topology.Spec{topology.Exchange{Name: "shop"}, p.spec(schedule)}
	}
	return []topology.Spec{p.spec(schedule)}
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
	return end
}

// patience is how long all may take to come to rest after that.
func (p plan) patience() time.Duration {
	var waits, wait time.Duration
	for _, s := range p.schedules {
		var sum time.Duration
		for _, w := range s {
			sum += w
			wait = max(wait, w)
		}
		waits = max(waits, sum)
	}
	attempts := time.Duration(len(p.longest()) + 1)
	working := p.handling(p.messages())
	if p.handlers.later > 0 {
		waits += attempts * (longestAfter + wait)
	}
	return 2*waits + working + 45*time.Minute // among others a message that is held for 15 minutes, and callers that pause for one
}

// handling is how long the handlers and the answers of so many messages take.
func (p plan) handling(messages int) time.Duration {
	slots := 1
	for _, c := range p.consumers {
		slots = max(slots, c.concurrency)
	}
	each := 4 * p.latency
	if p.handlers.slow+p.handlers.deaf > 0 {
		each += p.handlers.slowness
	}
	return time.Duration(len(p.longest())+1) * each * time.Duration(messages/slots+1)
}

func (p plan) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "RabbitMQ %s, %s, engine %v, heartbeat %v, latency %v, through an exchange: %t\n", p.version, p.kind, p.engine, p.heartbeat, p.latency, p.bound)
	fmt.Fprintf(&s, "schedules %v, handlers %+v\n", p.schedules, p.handlers)
	for i, q := range p.producers {
		fmt.Fprintf(&s, "%s: %d callers, window %d, timeout %v, fallback %t, declares %t, awaits %t; %d messages", producerName(i), q.callers, q.window, q.timeout, q.fallback, q.declares, q.awaits, len(q.messages))
		for j, m := range q.messages {
			if j == 12 {
				fmt.Fprint(&s, " ...")
				break
			}
			fmt.Fprintf(&s, " %d@%v", m.n, m.at)
		}
		if len(q.messages) > 0 {
			fmt.Fprintf(&s, " deadline %v, how %d", q.messages[0].deadline, q.messages[0].how)
		}
		fmt.Fprintln(&s)
	}
	for i, c := range p.consumers {
		fmt.Fprintf(&s, "%s: concurrency %d, prefetch %d, drain %v, handler timeout %v, copy timeout %v, declares %t; lives", consumerName(i), c.concurrency, c.prefetch, c.drain, c.timeout, c.copies, c.declares)
		for _, l := range c.lives {
			fmt.Fprintf(&s, " [%v to %v, schedule %d]", l.starts, l.stops, l.schedule)
		}
		fmt.Fprintln(&s)
	}
	for _, f := range p.faults {
		fmt.Fprintln(&s, f)
	}
	return strings.TrimSpace(s.String())
}
