package schedule

import (
	"sync"
	"time"

	"github.com/rehop/rehop/consumer/internal/flight"
)

// Schedule has the lanes, the messages that wait in them, and the workers. Most
// consumers have one lane. It is safe for concurrent use.
//
// Workers are kept, and the one that was idle for the shortest time is called
// first, because a goroutine's stack has to grow at its first message and is
// taken away again while it is idle: that costs more than all else that is done
// for a message. And one is called at a time, which calls the next if there is
// more to do: where handlers are quick, two or three workers are enough for
// messages that come together, and the others need not be woken.
type Schedule struct {
	slots  int
	strict bool
	lanes  []*Lane

	mu     sync.Mutex
	atWork int             // workers that have a grant
	idle   []chan struct{} // one element wakes a worker
	called bool            // a worker is on its way to take a grant
	closed bool
	grants []*Grant // to be used again
	every  []*Grant // those and the ones that workers have
	all    sync.WaitGroup

	// Of several lanes.
	offers []offer
	start  float64 // of the message that was taken last, see offer
	timer  *time.Timer
	lookAt time.Time // when the timer ends
}

// Grant is the messages that a worker has, all of one lane and one session: one, or
// several where the lane has batches. It has a slot of its lane until every message of
// it is released.
type Grant struct {
	Of    []*flight.Message
	lane  *Lane
	left  int  // messages that keep the slot
	probe bool // its run finds out whether an outage is over
	ran   bool // the handler has run on it

	saidHold bool // its latest run said Hold
	wasHeld  bool // its messages are held, or were
}

// New returns a Schedule with so many slots: runs of the handler at a time. Strict
// says that a higher lane goes first, and not by shares.
func New(slots int, strict bool) *Schedule { return &Schedule{slots: slots, strict: strict} }

// Lane adds a lane, below those that there are. run runs the handler on a grant. It
// returns how many of its messages are released later, by [Schedule.Release]; the
// others are released when it returns. It may end its goroutine after it has
// released all.
func (s *Schedule) Lane(limits Limits, run func(*Grant) (kept int)) *Lane {
	l := &Lane{schedule: s, Limits: limits, run: run, keys: keys{limit: limits.PerKey}, gate: gate{outage: limits.Outage},
		turn: make(chan struct{}), changed: make(chan struct{}, 1)}
	s.lanes = append(s.lanes, l)
	return l
}

// Release releases one message of a grant.
func (s *Schedule) Release(g *Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(g, 1)
	s.call()
}

// release needs s.mu held.
func (s *Schedule) release(g *Grant, n int) {
	if g.left -= n; g.left > 0 || n == 0 {
		return
	}
	l := g.lane
	l.busy--
	l.granted -= len(g.Of)
	if len(s.lanes) > 1 {
		l.moved = time.Now()
	}
	for _, m := range g.Of {
		if next := l.keys.free(m); next != nil {
			l.enqueue(next)
		}
	}
	clear(g.Of)
	if g.wasHeld {
		g.wasHeld = false
		l.wereHeld--
		s.noteFull()
	}
	l.endProbe(g)
	l.wants()
	l.signal()
	g.Of, g.lane = g.Of[:0], nil
	s.grants = append(s.grants, g)
}

// grant takes the messages at the head of a lane, for a worker. It needs s.mu held.
func (s *Schedule) grant(l *Lane) *Grant {
	var g *Grant
	if last := len(s.grants) - 1; last >= 0 {
		g, s.grants = s.grants[last], s.grants[:last]
	} else {
		g = new(Grant)
		s.every = append(s.every, g)
	}
	g.Of = l.takeBatch(g.Of)
	g.lane, g.left, g.ran, g.saidHold = l, len(g.Of), false, false
	l.beginProbe(g)
	l.gate.queueNext = false
	s.atWork++
	l.busy++
	l.granted += len(g.Of)
	l.working++
	if len(s.lanes) > 1 {
		s.took(l, len(g.Of), time.Now())
		s.allAtWork()
	}
	return g
}

// allAtWork has held messages of an outage look again whether it is their turn, if no
// worker is left for the next message of their queue. It needs s.mu held.
func (s *Schedule) allAtWork() {
	if s.atWork < s.slots {
		return
	}
	for _, l := range s.lanes {
		if l.gate.queueNext {
			l.wakeHeld()
		}
	}
}

// call sees to it that somebody comes for a message that waits, if it can be
// handled. It needs s.mu held.
func (s *Schedule) call() {
	if s.called || s.closed || s.pick() == nil {
		return
	}
	s.called = true
	if last := len(s.idle) - 1; last >= 0 {
		s.idle[last] <- struct{}{}
		s.idle = s.idle[:last]
		return
	}
	s.all.Go(s.work)
}

// work handles messages until there are no more to come.
func (s *Schedule) work() {
	woken := make(chan struct{}, 1)
	var at *Lane
	defer func() {
		if at != nil { // its handler has ended the goroutine
			s.mu.Lock()
			defer s.mu.Unlock()
			s.atWork--
			at.working--
			s.call()
		}
	}()
	for g := s.next(woken, true, nil, nil, 0); g != nil; {
		at = g.lane
		lane, n := at, len(g.Of)
		kept := at.run(g)
		at = nil
		g = s.next(woken, false, g, lane, n-kept)
	}
}

// next returns a grant, or nil if the worker is to end. called says that the worker
// was called, done is its last grant, and released how many messages of that are
// released now.
func (s *Schedule) next(woken chan struct{}, called bool, done *Grant, of *Lane, released int) *Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	if done != nil {
		s.atWork--
		of.working--
		if released > 0 {
			s.release(done, released)
		}
	}
	for {
		if called {
			s.called = false
		}
		if l := s.pick(); l != nil {
			g := s.grant(l)
			s.call()
			return g
		}
		if s.closed || len(s.idle) == s.slots {
			return nil
		}
		s.idle = append(s.idle, woken)
		s.mu.Unlock()
		<-woken
		s.mu.Lock()
		called = true
	}
}

// Close ends the workers, each when its handler has returned.
func (s *Schedule) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	for _, woken := range s.idle {
		woken <- struct{}{}
	}
	s.idle = nil
}

// Wait returns when every worker has ended, after Close.
func (s *Schedule) Wait() { s.all.Wait() }
