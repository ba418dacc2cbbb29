package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

const letters = work + ".dlq"

// spread is the work queue as so many shards.
func (p plan) spread(schedule, count int) topology.Shards {
	return topology.Shards{Name: work, Count: count, Type: p.kind, Engine: p.engine, Waits: p.schedules[schedule], SingleActiveConsumer: p.single}
}

// spreadOverLanes is the work queue as lanes, whose queues have the names of shards.
func (p plan) spreadOverLanes(schedule int) topology.Lanes {
	l := topology.Lanes{Name: work, Type: p.kind, Engine: p.engine, Waits: p.schedules[schedule], SingleActiveConsumer: p.single, OneDeadLetterQueue: true}
	for i := range p.shards {
		l.Lanes = append(l.Lanes, topology.Lane{Name: fmt.Sprintf("%02d", i)})
	}
	return l
}

// base is the name of the work queue, or of a shard, which the names of its other queues and exchanges begin with.
func (p plan) base(shard int) string {
	if p.shards == 0 {
		return work
	}
	return fmt.Sprintf("%s.%02d", work, shard%p.shards)
}

// hits reports whether a fault is one of a queue.
func (p plan) hits(f fault, queue string) bool {
	if f.target == ".dlq" {
		return queue == letters
	}
	of := p.base(f.shard)
	return queue == of+f.target || f.target != "" && strings.HasPrefix(queue, of+f.target)
}

// ofShard takes the name of a queue apart.
func (p plan) ofShard(queue string) (of, rest string) {
	of = work
	if p.shards > 0 {
		of = queue[:min(len(queue), len(p.base(0)))]
	}
	return of, strings.TrimPrefix(queue, of)
}

// spread has the work queue of any scenario spread over shards.
func (m maker) spread(p *plan) {
	p.bound, p.shards, p.single = false, pick(m, 1, 2, 3, 8), m.chance(50)
	for i := range p.faults {
		p.faults[i].shard = m.IntN(p.shards)
	}
}

// fewSlots shortens the waits in place of shards that share fewer slots. With waits of minutes the messages of other
// shards have all slots for so long that the order breaks (docs/order.md).
func (m maker) fewSlots(p *plan) {
	if slices.ContainsFunc(p.consumers, func(c consumerPlan) bool { return c.inPlace && c.perKey == 1 && c.concurrency < p.shards }) {
		for i := range p.schedules {
			p.schedules[i] = m.waitsInPlace(20 * time.Second)
		}
	}
}

// sharded has several processes share shards, while they come, go, are killed and cut off. Each
// keeps the order of the messages of a key, or handles some of a key at a time.
func (m maker) sharded(p *plan) {
	*p = plan{seed: p.seed, version: p.version, heartbeat: p.heartbeat, latency: p.latency, pointers: p.pointers, panics: p.panics, measured: p.measured}
	p.shards, p.single, p.keys = pick(m, 1, 2, 3, 4, 8), true, pick(m, 1, 4, 20)
	p.kind = pick(m, topology.Quorum, topology.Quorum, topology.Quorum, topology.Classic)
	p.engine = pick(m, topology.EngineAuto, topology.EngineCarry)
	p.schedules = []delay.Schedule{m.waitsInPlace(m.between(100*time.Millisecond, 20*time.Second))}
	p.turns = m.chance(75)
	p.handlers = handlers{
		fail: pick(m, 0, 50, 300), panics: pick(m, 0, 0, 30), permanent: pick(m, 0, 0, 50), requeue: pick(m, 0, 0, 50), discard: pick(m, 0, 0, 50),
		slow: pick(m, 300, 1000), deaf: pick(m, 0, 0, 0, 200), slowness: m.between(10*time.Millisecond, 5*time.Second),
	}
	length := m.between(time.Minute, 10*time.Minute)
	q := producerPlan{callers: 1, declares: m.chance(50)}
	for n := range pick(m, 10, 40, 150) {
		at := time.Duration(m.Int64N(int64(length))).Round(time.Millisecond)
		if n > 0 && m.chance(60) {
			at = q.messages[n-1].at // a burst
		}
		q.messages = append(q.messages, messagePlan{n: n + 1, at: at})
	}
	slices.SortStableFunc(q.messages, func(a, b messagePlan) int { return int(a.at - b.at) })
	p.producers = []producerPlan{q}
	c := consumerPlan{declares: m.chance(50), concurrency: pick(m, 1, 2, 8), perKey: 1, inPlace: true, drain: pick(m, 0, 0, 10*time.Second)}
	if !p.turns {
		c.perKey, c.inPlace = pick(m, 0, 2, 3), m.chance(50)
		c.concurrency += c.perKey
	}
	for range 1 + m.IntN(5) {
		l := life{}
		if m.chance(50) {
			l.starts = time.Duration(m.Int64N(int64(length)))
		}
		for c.lives = nil; m.chance(40); {
			l.stops = l.starts + m.between(100*time.Millisecond, length)
			c.lives = append(c.lives, l)
			l = life{starts: l.stops + m.between(time.Millisecond, time.Minute)}
		}
		c.lives = append(c.lives, l)
		p.consumers = append(p.consumers, c)
	}
	if p.kind == topology.Quorum && m.chance(20) {
		p.crasher = 1 + m.IntN(len(q.messages))
	}
	for range m.IntN(pick(m, 2, 5, 12)) {
		p.faults = append(p.faults, m.ofProcess(*p, length))
	}
	if m.chance(40) {
		m.grows(p)
	}
}

// grows has the number of shards become larger, or smaller: first in some processes that consume, then in those
// that publish, and in the others later or never. One that knows all shards stays.
func (m maker) grows(p *plan) {
	p.shards = max(2, p.shards)
	p.counts = counts{before: 1 + m.IntN(p.shards-1), after: p.shards}
	if m.chance(30) {
		p.counts.before, p.counts.after = p.counts.after, p.counts.before
	}
	for _, c := range p.consumers {
		changes := m.IntN(len(c.lives) + 1)
		for j := range c.lives {
			c.lives[j].count = p.counts.before
			if j >= changes {
				c.lives[j].count = p.counts.after
			}
		}
	}
	stays := p.consumers[0].lives
	stays[len(stays)-1].count = p.shards
	messages := p.producers[0].messages
	p.counts.from = messages[m.IntN(len(messages))].at
}

// knowing returns how many of the processes that consume in the end know all shards.
func (p plan) knowing() (n int) {
	for _, c := range p.consumers {
		if cmp.Or(c.lives[len(c.lives)-1].count, p.shards) == p.shards {
			n++
		}
	}
	return n
}

// ofProcess returns a fault of a process, or of what processes share.
func (m maker) ofProcess(p plan, length time.Duration) fault {
	office := consumerName(m.IntN(len(p.consumers)))
	f := fault{at: time.Duration(m.Int64N(int64(length))).Round(time.Millisecond), target: office}
	f.kind = pick(m, sigkill, sigkill, sigkill, cut, disconnect, halfOpen, reset, blackHole, blackHole, pause, pause, ungroup, kill, stop, stall, refuse)
	switch f.kind {
	case cut, disconnect:
		f.target = pick(m, "", office, office+" consume", office+" "+work+" members")
	case blackHole, pause:
		f.lasts = m.between(time.Second, 5*time.Minute)
	case ungroup:
		f.target = ""
	case kill, stop, stall:
		f.target, f.lasts = "", m.between(100*time.Millisecond, 2*time.Minute)
	case refuse:
		f.target, f.shard, f.lasts = "", m.IntN(p.shards), m.between(time.Second, 2*time.Minute)
	}
	return f
}

// turns are the messages of a key in a queue, in the order in which they were published.
type turns struct {
	ids     []string
	done    map[string]bool // handled, or given up, at least once
	running map[*turn]struct{}
}

// turn is a run of a handler.
type turn struct {
	id, process string
	ctx         context.Context
	network     *network // of the process
}

func (t *turn) lives() bool {
	t.network.mu.Lock()
	defer t.network.mu.Unlock()
	return !t.network.dead && t.ctx.Err() == nil
}

// queue returns the queue that a message is published to: the shard of its key, as its publisher knew it.
func (w *trial) queue(id string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queues[id]
}

// enqueue notes that a message is about to be published. It needs w.mu held.
func (w *trial) enqueue(queue, key, id string) {
	t := w.turns[queue+" "+key]
	if t == nil {
		t = &turns{done: map[string]bool{}, running: map[*turn]struct{}{}}
		w.turns[queue+" "+key] = t
	}
	t.ids = append(t.ids, id)
}

// inTurn notes that a handler begins with a message. Those of its key which were published before it
// must have been handled, and none be at work in another process.
func (w *trial) inTurn(ctx context.Context, d *consumer.Delivery, name string) (ended func(err error)) {
	w.mu.Lock()
	t := w.turns[d.Queue+" "+d.OrderKey]
	if !w.plan.turns || t == nil {
		w.mu.Unlock()
		return func(error) {}
	}
	own := &turn{d.ID, name, ctx, w.networks[name]}
	if own.network == nil { // the process has just been killed
		w.mu.Unlock()
		return func(error) {}
	}
	var before []string
	for _, id := range t.ids[:max(0, slices.Index(t.ids, d.ID))] {
		if !t.done[id] {
			before = append(before, id)
		}
	}
	var beside []*turn
	for other := range t.running {
		if other.process != name && other.lives() && !w.cutOff(other.process) && own.lives() && !w.cutOff(name) {
			beside = append(beside, other)
		}
	}
	t.running[own] = struct{}{}
	slowly := w.slowly[d.Queue]
	w.mu.Unlock()
	for _, other := range beside {
		w.violate("%s: message %s is handled while %s has message %s of its key at work", name, d.ID, other.process, other.id)
	}
	for _, id := range before {
		if !w.mayBeOvertaken(id, d.ID, slowly) {
			w.violate("%s: message %s is handled before message %s of its key, which was published before it, is done", name, d.ID, id)
		}
	}
	return func(err error) {
		over := err == nil || isOver(d, err)
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(t.running, own)
		if over && own.network.alive() {
			t.done[d.ID] = true
		}
	}
}

func (n *network) alive() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.dead
}

// isOver reports whether an error is the last of a message.
func isOver(d *consumer.Delivery, err error) bool {
	switch consumer.OutcomeOf(err).Action {
	case consumer.ActionDone, consumer.ActionDiscard, consumer.ActionDeadLetter, consumer.ActionSnooze:
		return true
	case consumer.ActionRetry:
		return d.LastAttempt && !errors.Is(err, connection.ErrSessionLost) && !errors.Is(err, consumer.ErrStopped)
	}
	return false
}

// mayBeOvertaken reports whether docs/order.md says that a later message may be handled before
// this one: it is a dead letter, or it was the one message that is sent after returns, and
// came back once more, behind the others that had come back.
func (w *trial) mayBeOvertaken(id, by string, slowly bool) bool {
	story := w.broker.Story(id)
	if strings.Contains(story, "dead-lettered from") {
		return true
	}
	returns := func(story string) int { return strings.Count(story, "given back") }
	return w.kind == topology.Quorum && slowly && returns(story) > 1 && returns(w.broker.Story(by)) > 0
}

// cutOff reports whether a process may not know yet that the broker has given its messages to others. A shard
// that is not available may end the socket of all others.
// It needs w.mu held.
func (w *trial) cutOff(name string) bool {
	at := time.Since(w.began)
	return slices.ContainsFunc(w.plan.faults, func(f fault) bool {
		of := f.target == "" || strings.HasPrefix(f.target, name)
		return of && f.kind != ungroup && f.kind != pause && f.at <= at && at <= f.at+f.lasts+3*w.heartbeat
	})
}

// isProbe reports whether a message looks for the process that consumes a shard, and notes it.
func (w *trial) isProbe(d *consumer.Delivery, name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.probes[d.ID] {
		return false
	}
	w.probed[d.Queue] = append(w.probed[d.Queue], name)
	return true
}

func (w *trial) probesSent() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.probes)
}

// comeToBalance waits until each shard is handled by one process, and, if all know the same number of shards, none
// handles two more than another.
func (w *trial) comeToBalance() {
	if w.shards == 0 || w.laned || !w.single {
		return
	}
	const every, enough = 10 * time.Second, 6
	// What has troubled an owner for long is tried again after as long. Messages that are retried in place keep their slots.
	limit := time.Now().Add(20*time.Minute + w.faultsEnd() + w.plan.handling(w.plan.messages()))
	for !w.declared() && time.Now().Before(limit) {
		time.Sleep(every)
	}
	even, uneven := 0, ""
	for {
		w.mu.Lock()
		clear(w.probed)
		w.mu.Unlock()
		w.probe()
		time.Sleep(every)
		if uneven = w.unevenness(); uneven == "" {
			if even++; even >= enough {
				return
			}
			continue
		}
		even = 0
		if time.Now().After(limit) {
			w.violate("the shards are not shared evenly long after the faults: %s", uneven)
			return
		}
	}
}

// declared reports whether all shards are there. A process that knows more of them than others declares the rest.
func (w *trial) declared() bool {
	for i := range w.shards {
		if _, ok := w.broker.Queue(w.base(i)); !ok {
			return false
		}
	}
	return true
}

// probe publishes a message to each shard.
func (w *trial) probe() {
	for i := range w.shards {
		queue := w.base(i)
		key := ""
		for n := 0; w.spread(0, w.shards).Queue(key) != queue; n++ {
			key = fmt.Sprint("probe-", n)
		}
		id := w.acct.Next()
		w.acct.Calling(id)
		w.mu.Lock()
		w.probes[id], w.published[id], w.queues[id] = true, time.Now(), queue
		w.mu.Unlock()
		m := rehoptest.Message{RoutingKey: queue, Publishing: amqp.Publishing{MessageId: id, DeliveryMode: amqp.Persistent, Body: []byte(id), Headers: amqp.Table{header.OrderKey: key}}}
		n, err := w.broker.Publish(m)
		if err != nil || n != 1 {
			w.violate("a probe for %s goes to %d queues, %v", queue, n, err)
		}
		w.acct.Called(id, false, false, nil)
	}
}

// unevenness says how the shards are shared, if not evenly.
func (w *trial) unevenness() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	handles, wrong := map[string]int{}, false
	for i := range w.plan.consumers {
		name := consumerName(i)
		handles[name] = 0
		wrong = wrong || w.consumers[name] == nil // its Declare is refused, for example
	}
	for i := range w.shards {
		by := slices.Compact(slices.Sorted(slices.Values(w.probed[w.base(i)])))
		wrong = wrong || len(by) != 1
		for _, name := range by {
			handles[name]++
		}
	}
	least, most := w.shards, 0
	for _, n := range handles {
		least, most = min(least, n), max(most, n)
	}
	if wrong || w.knowing() == len(w.plan.consumers) && most-least > 1 {
		return fmt.Sprintf("handled %v, by shard %v, consumers run in %v", handles, w.probed, slices.Sorted(maps.Keys(w.consumers)))
	}
	return ""
}

// inPlace notes that a handler begins: in the shard of the key, and not in a pause.
func (w *trial) inPlace(d *consumer.Delivery, name string) {
	if want := w.queue(d.ID); w.shards > 0 && d.Queue != want {
		w.violate("%s: message %s comes from %s, and was published to %s", name, d.ID, d.Queue, want)
	}
	w.mu.Lock()
	since, paused := w.paused[name]
	w.mu.Unlock()
	if paused && time.Since(since) > aMoment {
		w.violate("%s: message %s begins to be handled %v after a pause has begun", name, d.ID, time.Since(since))
	}
}

// pause pauses the consumer of a process, if there is one, until lift is called.
func (w *trial) pause(name string) (lift func()) {
	w.mu.Lock()
	c := w.consumers[name]
	w.mu.Unlock()
	if c == nil {
		return func() {}
	}
	c.Pause()
	w.mu.Lock()
	if _, twice := w.paused[name]; !twice && w.consumers[name] == c {
		w.paused[name] = time.Now()
	}
	w.mu.Unlock()
	return func() {
		w.mu.Lock()
		if w.consumers[name] == c {
			delete(w.paused, name)
		}
		w.mu.Unlock()
		c.Resume()
	}
}
