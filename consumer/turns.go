package consumer

import (
	"sync/atomic"
	"time"

	"github.com/rehop/rehop/connection"
)

// standing is what a lane has to offer when a worker is free.
type standing uint8

const (
	nothing  standing = iota // no message, or a limit keeps it
	expected                 // no message yet, and likely one in its queue
	ready                    // a message
)

// candidate is a lane at the moment when a worker is free.
type candidate struct {
	standing standing

	// until is when the standing changes by itself: when a rate lets the next
	// message go, or when none is expected any more. Zero: not by time alone.
	until time.Time

	// start is where the next message of the lane begins on the scale that all
	// lanes share; each message is 1/share long.
	start float64
}

// nextLane returns the lane whose message is handled next, or -1 if there is none
// now, and then when to look again, the zero time if time alone changes nothing. The
// lanes are given highest first.
//
// Strictly, that is the highest lane with a message; by shares, the one whose
// message starts first, of equals the highest. A message that is expected is waited
// for as if it were there, because one handler does not take long to be idle, and a
// lower message may keep it for long.
func nextLane(strict bool, lanes []candidate) (lane int, again time.Time) {
	best := -1
	for i, c := range lanes {
		switch {
		case c.standing == nothing:
			again = earlier(again, c.until)
		case best < 0, !strict && c.start < lanes[best].start:
			best = i
		}
	}
	if best < 0 {
		return -1, again
	}
	if lanes[best].standing == expected {
		return -1, earlier(again, lanes[best].until)
	}
	return best, time.Time{}
}

// earlier returns the earlier of two times that are not zero.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

const (
	// openingFor is how long lower lanes wait for a higher one that is about to
	// consume.
	openingFor = 3 * time.Second

	// onItsWay is how long a message may take, beside round trips, that the broker
	// sends because there is room again. Then the queue is asked whether it has any.
	onItsWay = 50 * time.Millisecond

	// nothingFor is how long lower lanes wait for a higher one whose queue says that
	// it has messages and sends none.
	nothingFor = 3 * time.Second

	// settlingFor is how long lower lanes wait for a higher one whose slots are taken
	// by copies that are not confirmed.
	settlingFor = time.Second
)

// onItsWayAfter returns how long a message may be on its way where two round trips
// took so long.
func onItsWayAfter(trips time.Duration) time.Duration { return min(onItsWay+10*trips, settlingFor) }

// traffic is what a lane of several is subject to, and what is known of its queue.
type traffic struct {
	share int           // 0: strict
	every time.Duration // between the starts of two messages; 0 for no limit

	due  time.Time // when the next message may start, by every
	ends float64   // of its last message, on the scale of candidate.start

	unsettled *atomic.Int32 // of the session that consumes its queue, nil for none
	prefetch  int           // of that
	delay     time.Duration // that its messages may have on their way
	expected  time.Time     // until when a message is expected if there is room for it
	more      bool          // the queue may have messages that were not sent
	heard     time.Time     // when a message came last, or room was made for one
	ask       func()        // asks the queue; the answer comes to asked
	asking    bool          // an answer is to come
	refuses   bool          // to answer

	working int       // messages that a worker has
	moved   time.Time // when a slot was last taken or freed
}

// turns is whose turn it is among several lanes.
type turns struct {
	strict     bool
	now        float64 // the start of the message that was taken last
	candidates []candidate
	timer      *time.Timer
	look       time.Time // when the timer ends
}

// pickTurn returns the lane whose turn it is, or nil. It needs w.mu held.
func (w *workers) pickTurn(now time.Time) *lane {
	if w.atWork >= w.slots {
		return nil
	}
	w.turns.candidates = w.turns.candidates[:0]
	for _, l := range w.lanes {
		w.turns.candidates = append(w.turns.candidates, l.candidate(now, w.turns.now))
	}
	i, again := nextLane(w.turns.strict, w.turns.candidates)
	if i >= 0 {
		return w.lanes[i]
	}
	w.lookAgain(now, again)
	return nil
}

// candidate returns the lane as it is now. It needs l.mu held.
func (l *lane) candidate(now time.Time, from float64) candidate {
	c := candidate{start: max(l.ends, from)}
	switch {
	case l.every > 0 && now.Before(l.due):
		if l.waiting() > 0 && l.busy < l.slots {
			c.until = l.due
		}
	case l.waiting() > 0:
		c.standing = ready
	case l.unsettled != nil && int(l.unsettled.Load()) >= l.prefetch:
		// The prefetch is used up. There is room again when a message is settled whose
		// handler has returned, if there is one: those in a slot take longer.
		if int(l.unsettled.Load()) > l.busy {
			c.standing, c.until = expected, now.Add(l.delay)
		}
	case now.Before(l.expected):
		c.standing, c.until = expected, l.expected
	case l.more && !l.refuses:
		c.standing = expected
		if l.busy < l.slots && !l.asking {
			l.asking = true
			l.ask()
		}
	}
	if l.busy < l.slots || c.standing == nothing {
		return c
	}
	// The copies of some may be awaited: a slot is free soon, if they are confirmed.
	c.standing, c.until = nothing, time.Time{}
	if end := l.moved.Add(settlingFor); l.busy > l.working && now.Before(end) {
		c.standing, c.until = expected, end
	}
	return c
}

// took notes that a message of a lane was taken.
func (t *turns) took(l *lane, now time.Time) {
	l.due, l.moved = now.Add(l.every), now
	if !t.strict {
		t.now = max(t.now, l.ends)
		l.ends = t.now + 1/float64(l.share)
	}
}

// lookAgain calls a worker at that time, unless one is called sooner. It needs w.mu
// held.
func (w *workers) lookAgain(now, at time.Time) {
	if at.IsZero() || w.over || !w.turns.look.IsZero() && !at.Before(w.turns.look) {
		return
	}
	w.turns.end()
	w.turns.look = at
	w.turns.timer = time.AfterFunc(at.Sub(now), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.turns.look = time.Time{}
		w.call()
	})
}

func (t *turns) end() {
	if t.timer != nil {
		t.timer.Stop()
	}
}

// opens says that the consuming of the lane's queue is about to begin.
func (l *lane) opens() {
	l.change(func(now time.Time) { l.unsettled, l.expected, l.more = nil, now.Add(openingFor), false })
}

// opened says that it has begun, which messages and how many count, how long two
// round trips took, and how the queue is asked whether it has messages.
func (l *lane) opened(unsettled *atomic.Int32, prefetch int, trips time.Duration, ask func()) {
	l.change(func(now time.Time) {
		l.unsettled, l.prefetch, l.delay, l.ask = unsettled, prefetch, onItsWayAfter(trips), ask
		l.room(now)
	})
}

// closed says that it is over. The queue is not asked any more.
func (l *lane) closed() {
	l.change(func(time.Time) { l.unsettled, l.expected, l.more, l.refuses = nil, time.Time{}, false, false })
}

// settles says that one of these messages is settled, and is about to be counted.
func (l *lane) settles(unsettled *atomic.Int32) {
	l.change(func(now time.Time) {
		if l.unsettled == unsettled && int(unsettled.Load()) >= l.prefetch {
			l.room(now)
		}
	})
}

// room notes that there is room for messages that the broker could not send. It
// needs l.mu held.
func (l *lane) room(now time.Time) { l.expected, l.more, l.heard = now.Add(l.delay), true, now }

// asked takes the answer of the queue: how many messages it has, and how long it took
// to say so. What it has sent before may still be on its way. A queue that cannot
// answer is taken for an empty one, and one that refuses is not asked again.
func (l *lane) asked(ready int, took time.Duration, err error) {
	l.change(func(now time.Time) {
		l.asking = false
		switch {
		case l.unsettled == nil:
		case err != nil:
			l.more, l.refuses = false, connection.ClassOf(err) != connection.Transient
		default:
			silent := now.Sub(l.heard) // less than took: the answer is older than what was heard
			l.more = silent < took || ready > 0 && silent < nothingFor
			l.delay = onItsWayAfter(took)
			l.expected = now.Add(l.delay)
		}
	})
}

func (l *lane) change(do func(now time.Time)) {
	if len(l.lanes) == 1 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	do(time.Now())
	l.call()
}
