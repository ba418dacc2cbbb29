package hand

import (
	"slices"
	"time"

	"github.com/rehop/rehop/consumer/internal/durations"
)

// A process dies as a whole, so a crash counts against each message that it has in hand, of whichever
// lane. A suspect is a message of which consumers may have died so often that it may be the guilty one. Of
// several lanes those that meet suspects take turns, and handlers begin with no message of another lane.
//
// Which lane is next follows from the counts of the broker, which outlive the process: the most deaths of those that
// wait. Without order a crash counts once for all that wait, so another lane is first in the life of each process,
// whoever has more deaths, and the innocent ones before a guilty one are handled. In order the other lanes have given
// their messages back before. That return counts once for each lane, and the crash once more for the lane of the turn.
// The lanes take no steady turns then, but an innocent one has its turn in time. With the fewest deaths first, a guilty
// message that was spared one crash would be first again and again, until the others are letters.

// turns is which lane may handle its suspects. The zero value is that there are none.
type turns struct {
	of    *Lane     // whose turn it is; nil: nobody's
	since time.Time // when the first of these turns was to come; zero: there are none, and all lanes may begin
	first time.Time // before which no turn begins: other lanes may be about to meet suspects
	end   time.Time // of the turn, or of the wait for a lane in order that has not given its suspects back
	quiet time.Time // when the turn ends if no message comes before; zero: the lane has one, or does not consume yet
}

// isKept reports whether handlers begin with no message of the lane because of suspects. It needs mu
// held.
func (l *Lane) isKept() bool {
	t := &l.hand.turns
	return t.of != l && !t.since.IsZero()
}

// HasTurn reports whether handlers may begin with suspects of the lane.
func (l *Lane) HasTurn() bool {
	l.hand.mu.Lock()
	defer l.hand.mu.Unlock()
	return len(l.hand.lanes) == 1 || l.hand.turns.of == l
}

// AwaitsTurn reports whether a lane in order has met suspects, and it is not its turn; by is the lane whose
// turn it is, nil if that is not decided. Changed is set when the turn passes to another lane, and when it is
// this lane's, or is over.
func (l *Lane) AwaitsTurn() (waits bool, by *Lane) {
	l.hand.mu.Lock()
	defer l.hand.mu.Unlock()
	return l.Ordered && l.deaths > 0 && l.hand.turns.of != l, l.hand.turns.of
}

// meets looks whether a message that has come is a suspect, or shows that no more of them come. In order
// those that have come back come first. It needs mu held.
func (l *Lane) meets(m *Message, out *Out) {
	h, now := l.hand, m.Received
	t := &h.turns
	suspect := m.IsSuspect() && m.Raw.Redelivered // else a publisher has written the count
	switch {
	case t.of == l && suspect:
		t.end = now.Add(durations.Uncleared)
	case t.of == l && l.latest.counts.Uncleared == 0 && (!l.Ordered || !m.Raw.Redelivered):
		h.endTurn(now, out)
	case t.of != l && suspect:
		if l.deaths == 0 || m.Deaths < l.deaths {
			l.deaths = m.Deaths
		}
		if t.since.IsZero() {
			h.kept.begins(now)
			*t = turns{since: now, first: now.Add(durations.SuspectsMeet), end: now.Add(durations.Uncleared)}
			h.wakeAt(t.first, out)
		}
		l.changes(now, out)
	}
	h.nothingCame(now, out)
}

// nextTurn gives the turn to the next lane, if it is nobody's. It needs mu held.
func (h *Hand) nextTurn(now time.Time, out *Out) {
	t := &h.turns
	if t.since.IsZero() || t.of != nil || now.Before(t.first) {
		return
	}
	next, left := h.nextLane(!now.Before(t.end))
	switch {
	case next != nil:
		t.of, t.end = next, now.Add(durations.Uncleared)
		h.wakeAt(t.end, out)
		h.nothingCame(now, out)
		out.Turns = append(out.Turns, next)
		next.changes(now, out)
		h.turnChanges()
	case left:
		h.wakeAt(t.end, out)
	default:
		h.turns = turns{}
		h.kept.breaks(now) // the next suspects may be about to come back
		for _, l := range h.lanes {
			l.changes(now, out)
		}
	}
}

// nextLane returns the lane that is next, and whether one is left. One in order whose session ends is waited for,
// but not for long, until its handlers have returned and it has given its suspects back. If it is late, its next session
// meets them again. It needs mu held.
func (h *Hand) nextLane(late bool) (next *Lane, left bool) {
	h.waiting = h.waiting[:0]
	most := 0
	for _, l := range h.lanes {
		gives := l.Ordered && l.gate.stall != "" && l.gate.stall != Visiting && l.latest.counts.Suspects > 0
		if gives && late {
			l.deaths = 0
			l.Changed.set()
		}
		left = left || l.deaths > 0
		if l.deaths > 0 && !gives {
			h.waiting = append(h.waiting, l)
			most = max(most, l.deaths)
		}
	}
	if n := len(h.waiting); n > 0 {
		next = h.waiting[most%n]
	}
	return next, left
}

// endTurn needs mu held.
func (h *Hand) endTurn(now time.Time, out *Out) {
	h.turns.of.deaths = 0
	h.turns.of, h.turns.end, h.turns.quiet = nil, now.Add(durations.Uncleared), time.Time{}
	h.turnChanges()
	h.nextTurn(now, out)
}

// turnChanges tells the lanes that wait whom they wait for. It needs mu held.
func (h *Hand) turnChanges() {
	for _, l := range h.lanes {
		if l.deaths > 0 {
			l.Changed.set()
		}
	}
}

// nothingCame looks whether the lane whose turn it is has no message. One in order gives back what it has, and has none
// until it consumes again. It needs mu held.
func (h *Hand) nothingCame(now time.Time, out *Out) {
	t := &h.turns
	switch {
	case t.of == nil:
	case t.of.latest.counts.Unsettled > 0, t.of.Ordered && (t.of.session == nil || t.of.gate.stall != ""):
		t.quiet = time.Time{}
	case t.quiet.IsZero():
		t.quiet = now.Add(durations.SuspectsCome)
		h.wakeAt(t.quiet, out)
	}
}

// turnDue needs mu held.
func (h *Hand) turnDue(now time.Time, out *Out) {
	t := &h.turns
	end := earlier(t.end, t.quiet)
	switch {
	case t.since.IsZero():
	case t.of == nil && now.Before(t.first):
		h.wakeAt(t.first, out)
	case t.of == nil:
		h.nextTurn(now, out)
	case now.Before(end):
		h.wakeAt(end, out)
	case h.atWork >= h.slots && !h.othersHold(t.of) && slices.ContainsFunc(t.of.queue[t.of.head:], (*Message).IsSuspect): // no other lane could begin or go on either
		t.end = now.Add(durations.Uncleared)
		h.wakeAt(t.end, out)
	default:
		h.endTurn(now, out)
	}
}

// othersHold reports whether other lanes have held messages, which need no free worker to go on. It needs mu held.
func (h *Hand) othersHold(of *Lane) bool {
	return slices.ContainsFunc(h.lanes, func(l *Lane) bool { return l != of && len(l.holding) > 0 })
}

// ForgetsSuspects says that the queue of the lane is not consumed here for now.
func (l *Lane) ForgetsSuspects(now time.Time, out *Out) {
	h := l.hand
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.turns.of == l:
		h.endTurn(now, out)
	case l.deaths > 0:
		l.deaths = 0
		h.nextTurn(now, out)
	}
}
