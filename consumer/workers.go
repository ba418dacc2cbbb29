package consumer

import (
	"sync"
	"time"
)

// workers is the goroutines that handle messages, and the lanes: the queues of
// messages that wait for them. Most consumers have one lane.
//
// Workers are kept, and the one that was idle for the shortest time is called
// first, because a goroutine's stack has to grow at its first message and is
// taken away again while it is idle: that costs more than all else that is done
// for a message. And one is called at a time, which calls the next if there is
// more to do: where handlers are quick, two or three workers are enough for
// messages that come together, and the others need not be woken.
type workers struct {
	slots int
	lanes []*lane
	turns turns // of several lanes

	mu     sync.Mutex
	atWork int             // workers that have a message
	idle   []chan struct{} // one element wakes a worker
	called bool            // a worker is on its way to take a message
	over   bool
	all    sync.WaitGroup
}

// lane is a queue of messages that wait for workers, and its slots: how many of its
// messages are in hand at a time. A message has a slot from the moment a worker takes
// it until it is handed to the acker.
type lane struct {
	*workers

	// handle handles a message. It returns true if the message's slot is free
	// again, and false if somebody calls release later. It may end its goroutine
	// after a release.
	handle func(*message) (free bool)
	slots  int

	queue []*message // from head on
	head  int
	busy  int // slots taken
	traffic
}

// newWorkers returns the only lane of workers of its own.
func newWorkers(slots int, handle func(*message) bool) *lane {
	return (&workers{slots: slots}).lane(slots, handle)
}

// lane adds a lane, below those that there are.
func (w *workers) lane(slots int, handle func(*message) bool) *lane {
	l := &lane{workers: w, slots: slots, handle: handle}
	w.lanes = append(w.lanes, l)
	return l
}

// push queues a message.
func (l *lane) push(m *message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.head > 64 && l.head*2 > len(l.queue) {
		n := copy(l.queue, l.queue[l.head:])
		clear(l.queue[n:])
		l.queue, l.head = l.queue[:n], 0
	}
	m.lane, l.heard = l, m.received
	l.queue = append(l.queue, m)
	l.call()
}

// release frees the slot of a message.
func (l *lane) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy--
	if len(l.lanes) > 1 {
		l.moved = time.Now()
	}
	l.call()
}

// takeBack removes all queued messages but the first keep and returns them.
func (l *lane) takeBack(keep int) []*message {
	l.mu.Lock()
	defer l.mu.Unlock()
	if keep >= l.waiting() {
		return nil
	}
	queued := l.queue[l.head:]
	taken := append([]*message(nil), queued[keep:]...)
	clear(queued[keep:])
	l.queue = l.queue[:l.head+keep]
	return taken
}

// inHand returns how many slots are taken.
func (l *lane) inHand() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.busy
}

// longestWaiting returns the queued message that waits longest, or nil.
func (l *lane) longestWaiting() *message {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting() == 0 {
		return nil
	}
	return l.queue[l.head]
}

// waiting needs l.mu held.
func (l *lane) waiting() int { return len(l.queue) - l.head }

// take removes the message at the head, for a worker. It needs l.mu held.
func (l *lane) take() *message {
	m := l.queue[l.head]
	l.queue[l.head] = nil
	if l.head++; l.head == len(l.queue) {
		l.queue, l.head = l.queue[:0], 0
	}
	l.busy++
	return m
}

// pick returns the lane whose message is next, or nil if no message can be handled
// now. It needs w.mu held.
func (w *workers) pick() *lane {
	if len(w.lanes) > 1 {
		return w.pickTurn(time.Now())
	}
	if l := w.lanes[0]; l.waiting() > 0 && l.busy < l.slots {
		return l
	}
	return nil
}

// call sees to it that somebody comes for a message that waits, if it can be
// handled. It needs w.mu held.
func (w *workers) call() {
	if w.called || w.pick() == nil {
		return
	}
	w.called = true
	if last := len(w.idle) - 1; last >= 0 {
		w.idle[last] <- struct{}{}
		w.idle = w.idle[:last]
		return
	}
	w.all.Go(w.work)
}

// work handles messages until there are no more to come.
func (w *workers) work() {
	woken := make(chan struct{}, 1)
	var last *lane
	defer func() {
		if last != nil { // its handler has ended the goroutine
			w.mu.Lock()
			defer w.mu.Unlock()
			w.atWork--
			last.working--
			w.call()
		}
	}()
	for m, ok := w.next(woken, true, nil, false); ok; {
		last = m.lane
		free := last.handle(m)
		done := last
		last = nil
		m, ok = w.next(woken, false, done, free)
	}
}

// next returns a message, or false if the worker is to end. called says that the
// worker was called, done is the lane of its last message, and free that the slot of
// that is free again.
func (w *workers) next(woken chan struct{}, called bool, done *lane, free bool) (*message, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if done != nil {
		w.atWork--
		done.working--
		if free {
			done.busy--
		}
	}
	for {
		if called {
			w.called = false
		}
		if l := w.pick(); l != nil {
			m := l.take()
			w.atWork++
			l.working++
			if len(w.lanes) > 1 {
				w.turns.took(l, time.Now())
			}
			w.call()
			return m, true
		}
		if w.over || len(w.idle) == w.slots {
			return nil, false
		}
		w.idle = append(w.idle, woken)
		w.mu.Unlock()
		<-woken
		w.mu.Lock()
		called = true
	}
}

// dismiss ends the workers, each when its handler has returned.
func (w *workers) dismiss() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.turns.end()
	for _, woken := range w.idle {
		woken <- struct{}{}
	}
	w.idle = nil
}
