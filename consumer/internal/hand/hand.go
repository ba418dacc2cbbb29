// Package hand has every message that one Consumer has and has not settled, of all lanes and
// sessions, under one mutex: the phase of each message, who is next, what the broker is to be
// told. It starts no goroutine, looks at no clock, runs no code of a user and sends nothing. Its
// methods are events, and each tells its caller in an [Out] what to do next.
//
// Its DESIGN.md draws the phases of a message.
package hand

import (
	"slices"
	"sync"
	"time"
)

// Hand has the lanes, and the messages that wait in them or that workers have. Most consumers
// have one lane. It is safe for concurrent use, and so are its lanes, sessions and grants.
//
// Workers stay, and the one that was idle for the shortest time is woken first, because a
// goroutine's stack has to grow at its first message and is taken away again while it is idle:
// that costs more than all else that is done for a message. At most one worker is on its
// way at a time, and it calls the next if there is more to do: where handlers are quick, two or
// three workers are enough for messages that come together, and the others need not be woken.
type Hand struct {
	slots  int // runs of the handler at a time
	strict bool
	lanes  []*Lane

	mu     sync.Mutex
	atWork int      // grants that a worker has, or whose messages are held
	idle   []Signal // of workers that have nothing to do
	called bool     // a worker is on its way to take a grant
	closed bool
	ready  []*Grant  // whose held messages are to be handled again, or let go
	spare  []*Grant  // to be used again
	every  []*Grant  // all there are
	wake   time.Time // when Due is to be called; zero: at no time

	// Of several lanes.
	turns   turns
	kept    lasting // handlers begin with no message of lanes because of the turns of others
	waiting []*Lane // for their turns
	offers  []offer
	start   float64 // of the message that was taken last, see offer
}

// Grant is the messages that a worker has, all of one lane and one session: one, or
// several where the lane has batches. It has a slot of its lane while a worker has it, while its
// messages are held, and until the copies of its messages are confirmed.
type Grant struct {
	Of   []*Message
	Lane *Lane

	Why Why

	left    int // messages that need the slot, and one more for the worker
	copying int // messages whose copy is to be confirmed
	hold    holding
	began   time.Time // the handler with them, of a batch perhaps once more since
	said    said      // by its latest run
	wasHeld bool      // its messages are held, or were
}

// Why is why a worker has the messages of a Grant.
type Why uint8

// The reasons.
const (
	First  Why = iota // a worker has them for the first time
	GoesOn            // they were held, and are to be handled
	LetGo             // they were held, and can be no longer
)

// said is what the handler has said of messages.
type said uint8

const (
	saidNothing said = iota // it has not run
	saidOther
	saidHold
)

// New returns a Hand with so many slots: runs of the handler at a time. Strict
// says that a higher lane goes first, and not by shares.
func New(slots int, strict bool) *Hand { return &Hand{slots: slots, strict: strict} }

// Lane adds a lane, below those that there are. All lanes are added before the first event.
func (h *Hand) Lane(limits Limits) *Lane {
	l := &Lane{hand: h, Number: len(h.lanes), Limits: limits, keys: keys{limit: limits.PerKey}, gate: gate{outage: limits.Outage},
		copying: copying{slots: limits.Slots}, Changed: NewSignal(), None: NewSignal()}
	h.lanes = append(h.lanes, l)
	return l
}

// Next returns a grant for a worker that was started or woken, nil if there is nothing to
// do. Then the worker waits for its Signal, or ends if ended says so.
func (h *Hand) Next(w *Worker, now time.Time) (g *Grant, ended bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.called = false
	return h.next(w, now)
}

// Handled says that a worker is done with a grant: how those of its messages are settled that
// were not settled before. It returns the worker's next grant, as Next does.
func (h *Hand) Handled(w *Worker, g *Grant, now time.Time, told ...Told) (next *Grant, ended bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range told {
		t.settle(t.Verb, now, &w.Out)
	}
	h.workerDone(g, now, &w.Out)
	return h.next(w, now)
}

// Gone is Handled for a worker whose goroutine ends.
func (h *Hand) Gone(g *Grant, now time.Time, out *Out) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.workerDone(g, now, out)
	h.call(now, out)
}

// Settle says how messages are settled of a grant that the worker still has.
func (h *Hand) Settle(now time.Time, out *Out, told ...Told) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range told {
		t.settle(t.Verb, now, out)
	}
}

// CopyEnded says how the copies of messages have ended: the verb is Ack if they are confirmed,
// and Requeue if they are given up.
func (h *Hand) CopyEnded(v Verb, now time.Time, out *Out, ms ...*Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range ms {
		m.In.lane.copying.ended(m)
		m.settle(v, now, out)
		if l := m.In.lane; l.gate.stall != "" { // a session that ends waits for copies of messages that no worker had, too
			l.Changed.set()
		}
	}
	h.call(now, out)
}

// workerDone notes that no worker has a grant any more. It needs mu held.
func (h *Hand) workerDone(g *Grant, now time.Time, out *Out) {
	h.atWork--
	g.Lane.working--
	g.release(now, out)
}

// leavesSlot notes that a message needs the slot of its grant no longer. It needs mu held.
func (m *Message) leavesSlot(now time.Time, out *Out) {
	if m.grant != nil { // else no worker had it
		m.grant.release(now, out)
	}
}

// release needs mu held.
func (g *Grant) release(now time.Time, out *Out) {
	if g.left--; g.left > 0 {
		return
	}
	l := g.Lane
	h := l.hand
	l.busy--
	l.granted -= len(g.Of)
	l.moved = now
	if g.Why == LetGo {
		l.breaksBlocked(now)
	}
	for _, m := range g.Of {
		if next := l.keys.free(m); next != nil {
			next.comes(isNext)
			l.enqueue(next)
		}
	}
	clear(g.Of)
	if g.wasHeld || !l.full.since.IsZero() {
		if g.wasHeld {
			l.wereHeld--
		}
		g.wasHeld = false
		h.noteFull(g.Why != LetGo && g.said == saidOther, now)
	}
	l.endProbe(g, now, out)
	l.wants(now)
	l.tell()
	l.lookAtKeys(now, out)
	g.Of, g.Lane = g.Of[:0], nil
	h.spare = append(h.spare, g)
}

// next returns the next grant for a worker, or has the worker wait. It needs mu held.
func (h *Hand) next(w *Worker, now time.Time) (g *Grant, ended bool) {
	if len(h.ready) > 0 {
		g = h.ready[0]
		h.ready = slices.Delete(h.ready, 0, 1)
		g.goesOn()
	} else if l := h.pick(now, &w.Out); l != nil {
		g = h.grant(l, now, &w.Out)
	}
	if g != nil {
		h.call(now, &w.Out)
		return g, false
	}
	if h.closed || len(h.idle) == h.slots {
		return nil, true
	}
	h.idle = append(h.idle, w.Woken)
	return nil, false
}

// grant takes the messages at the head of a lane, for a worker. It needs mu held.
func (h *Hand) grant(l *Lane, now time.Time, out *Out) *Grant {
	var g *Grant
	if last := len(h.spare) - 1; last >= 0 {
		g, h.spare = h.spare[last], h.spare[:last]
	} else {
		g = new(Grant)
		h.every = append(h.every, g)
	}
	g.Of = l.takeBatch(g.Of)
	for _, m := range g.Of {
		m.comes(isTaken)
		m.grant = g
	}
	g.Lane, g.left, g.said, g.Why = l, len(g.Of)+1, saidNothing, First
	l.beginProbe(g)
	l.gate.queueNext = false
	h.atWork++
	l.busy++
	l.granted += len(g.Of)
	l.working++
	l.lookAtKeys(now, out)
	if len(h.lanes) > 1 {
		h.took(l, len(g.Of), now)
		h.allAtWork(now, out)
	}
	return g
}

// allAtWork has held messages of an outage look again whether it is their turn, if no
// slot is left for the next message of their queue. It needs mu held.
func (h *Hand) allAtWork(now time.Time, out *Out) {
	if h.atWork < h.slots {
		return
	}
	for _, l := range h.lanes {
		if l.gate.queueNext {
			l.lookAtHeld(now, out)
		}
	}
}

// call sees to it that a worker comes for a message that waits, if it can be
// handled. It needs mu held.
func (h *Hand) call(now time.Time, out *Out) {
	if h.called || len(h.ready) == 0 && (h.closed || h.pick(now, out) == nil) {
		return
	}
	h.called = true
	if last := len(h.idle) - 1; last >= 0 {
		h.idle[last].set()
		h.idle = h.idle[:last]
		return
	}
	out.Start = true
}

// wakeAt has Due called at that time, unless it is called sooner. It needs mu held.
func (h *Hand) wakeAt(at time.Time, out *Out) {
	if at.IsZero() || !h.wake.IsZero() && !at.Before(h.wake) {
		return
	}
	h.wake = at
	out.Wake = earlier(out.Wake, at)
}

// Due says that the time has come that Out.Wake has told.
func (h *Hand) Due(now time.Time, out *Out) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wake = time.Time{}
	for _, l := range h.lanes {
		l.heldDue(now, out)
		l.blockedDue(now, out)
	}
	h.turnDue(now, out)
	h.call(now, out)
}

// Ending says that a context of the session has ended: what the session holds is let go.
func (s *Session) Ending(now time.Time, out *Out) {
	h := s.lane.hand
	h.mu.Lock()
	defer h.mu.Unlock()
	s.lane.lookAtHeld(now, out)
	h.call(now, out)
}

// Close ends the workers, each when its handler has returned.
func (h *Hand) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, woken := range h.idle {
		woken.set()
	}
	h.idle = nil
}
