package hand

import (
	"slices"
	"time"

	"github.com/rehop/rehop/consumer/internal/durations"
)

// state is what a lane has when a worker is free.
type state uint8

const (
	nothing  state = iota // no message, or a limit keeps it
	expected              // no message yet, and likely one in its queue
	ready                 // a message
)

// offer is a lane at the moment when a worker is free.
type offer struct {
	state state

	// until is when the state changes by itself: when a rate lets the next message
	// go, or when none is expected any more. Zero: not by time alone.
	until time.Time

	// start is where the next message of the lane begins on the scale that all
	// lanes share; each message is 1/share long.
	start float64
}

// choose returns the lane whose message is handled next, or -1 if there is none
// now, and then when to look again, the zero time if time alone changes nothing. The
// lanes are given highest first.
//
// Strictly, that is the highest lane with a message; by shares, the lane whose message
// starts first, of equals the highest. choose waits for a lane that expects a message. An
// idle handler loses little time, and a message of a lower lane may occupy it for long.
func choose(strict bool, lanes []offer) (lane int, again time.Time) {
	best := -1
	for i, o := range lanes {
		switch {
		case o.state == nothing:
			again = earlier(again, o.until)
		case best < 0, !strict && o.start < lanes[best].start:
			best = i
		}
	}
	if best < 0 {
		return -1, again
	}
	if lanes[best].state == expected {
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

// pick returns the lane whose message is next, or nil if no message can be handled
// now. It needs mu held.
func (h *Hand) pick(now time.Time, out *Out) *Lane {
	if len(h.lanes) > 1 {
		return h.pickOfSeveral(now, out)
	}
	l := h.lanes[0]
	if l.waiting() == 0 || l.busy >= l.Slots {
		return nil
	}
	if l.gate.isOpen() && l.Batch.Size <= 1 {
		return l
	}
	open, again := l.mayTake(now)
	if open {
		open, again = l.complete(now)
	}
	if !open {
		h.wakeAt(again, out)
		return nil
	}
	return l
}

// pickOfSeveral returns the lane whose message is next, or nil. It needs mu held.
func (h *Hand) pickOfSeveral(now time.Time, out *Out) *Lane {
	if h.atWork >= h.slots {
		return nil
	}
	h.offers = h.offers[:0]
	for _, l := range h.lanes {
		h.offers = append(h.offers, l.offer(now))
	}
	i, again := choose(h.strict, h.offers)
	if i >= 0 {
		return h.lanes[i]
	}
	h.wakeAt(again, out)
	if h.isIdle() {
		for _, l := range h.lanes {
			if l.starved {
				l.starved = false
				l.Changed.set()
			}
		}
	}
	return nil
}

// isIdle reports whether a worker is free, and no lane has a message for it or expects one. The
// offers must be those of now. It needs mu held.
func (h *Hand) isIdle() bool {
	return h.atWork < h.slots && !slices.ContainsFunc(h.offers, func(o offer) bool { return o.state != nothing })
}

// Turn says why no worker could handle a new message of a lane that is not consumed. The zero
// value says that one could.
type Turn struct {
	Paused  time.Time // since when the gate is closed by order; zero: it is not
	Starved bool      // or else the workers are at work on other lanes, or about to be
}

// Turn returns whether a worker could handle a new message of the lane. Changed is set when one
// may, if none could.
func (l *Lane) Turn(now time.Time, out *Out) Turn {
	h := l.hand
	h.mu.Lock()
	defer h.mu.Unlock()
	t := Turn{Paused: l.gate.paused}
	if t.Paused.IsZero() && len(h.lanes) > 1 && l.working == 0 {
		t.Starved = h.pickOfSeveral(now, out) != nil || !h.isIdle()
		l.starved = t.Starved
	}
	return t
}

// offer returns the lane as it is now. It needs mu held.
func (l *Lane) offer(now time.Time) offer {
	o := offer{start: l.start()}
	open, again := l.mayTake(now)
	switch {
	case !open:
		if l.waiting() > 0 {
			o.until = again
		}
		return o
	case l.Every > 0 && now.Before(l.due):
		if l.waiting() > 0 && l.busy < l.Slots {
			o.until = l.due
		}
	case l.waiting() > 0:
		if ok, until := l.complete(now); ok {
			o.state = ready
		} else if l.busy < l.Slots {
			o.until = until
		}
	case l.Shard:
	case l.session != nil && l.session.counts.Recent >= l.prefetch:
		// The prefetch is used up. There is room again when a message is settled whose
		// handler has returned, if there is one: those of a slot, and those that wait for
		// the key of one in a slot, take longer.
		if l.session.counts.Unsettled > l.granted+l.keys.waiting {
			o.state, o.until = expected, now.Add(l.delay)
		}
	case now.Before(l.expected):
		o.state, o.until = expected, l.expected
	case l.more && (l.question == notAsked || l.question.isOpen() && now.Before(l.asked.Add(durations.LaneAnswer))):
		o.state = expected
		if l.busy < l.Slots && l.question == notAsked {
			l.question, l.asked = toBeAsked, now
			l.Changed.set()
		}
		if l.question.isOpen() {
			o.until = l.asked.Add(durations.LaneAnswer)
		}
	}
	if l.busy < l.Slots || o.state == nothing {
		return o
	}
	// The copies of some may be awaited: a slot is free soon, if they are confirmed.
	until := o.until
	o.state, o.until = nothing, time.Time{}
	if l.Shard {
		return o
	}
	if end := l.moved.Add(durations.LaneSettling); l.busy > l.working && now.Before(end) {
		o.state, o.until = expected, earlier(until, end)
	}
	return o
}

// start returns where the next message of the lane begins on the scale that all lanes
// share. A lane that had no messages for a while has saved nothing up. It needs mu held.
func (l *Lane) start() float64 { return max(l.end, l.hand.start) }

// took notes that so many messages of a lane were taken. It needs mu held.
func (h *Hand) took(l *Lane, n int, now time.Time) {
	l.due, l.moved = now.Add(time.Duration(n)*l.Every), now
	if !h.strict {
		h.start = max(h.start, l.end)
		l.end = h.start + float64(n)/float64(l.Share)
	}
}
