package hand

import (
	"math/rand/v2"
	"time"

	"github.com/rehop/rehop/consumer/internal/durations"
)

// Outage says when the gate of a lane takes the Hold outcomes of handlers for an outage of
// something that they all need.
type Outage struct {
	Of       int           // the number of latest runs of the handler that count
	From     int           // the number of Hold runs among them that begins an outage; 0: never
	MaxPause time.Duration // the longest pause between two probes
}

// note notes that a run of the handler has ended, which was a probe or not, the first of
// its message or not, and said Hold or not. It reports whether an outage has begun
// or is over. Only first runs make an outage: one message that is held and handled again
// and again says nothing of others.
func (g *gate) note(probe, first, hold bool, now time.Time) (changed bool) {
	if !g.out.IsZero() {
		if probe || !hold {
			g.probe = nil
		}
		switch {
		case !hold:
			g.out = time.Time{}
			return true
		case probe:
			g.next = now.Add(g.pause/2 + rand.N(g.pause)) // processes shall not probe together
			g.pause = min(g.pause*3/2, g.outage.MaxPause*2/3)
		}
		return false
	}
	if g.outage.From == 0 || !first {
		return false
	}
	if len(g.last) < g.outage.Of {
		g.last = append(g.last, hold)
	} else {
		if g.last[g.at] {
			g.holds--
		}
		g.last[g.at] = hold
		g.at = (g.at + 1) % len(g.last)
	}
	if hold {
		g.holds++
	}
	if g.holds < g.outage.From {
		return false
	}
	g.begin(now)
	return true
}

// begin begins an outage.
func (g *gate) begin(now time.Time) {
	g.out, g.next, g.pause = now, now.Add(durations.OutageFirstPause), min(2*durations.OutageFirstPause, g.outage.MaxPause*2/3)
	g.last, g.at, g.holds = g.last[:0], 0, 0
}

// queueIsNext reports whether the next probe of an outage is a message of the queue, and
// not one that is held. They take turns, because those that are held may have reasons of
// their own. But the lanes share the workers: where the held messages of all lanes have
// them all, a message of the queue would never have its turn. It needs mu held.
func (l *Lane) queueIsNext() bool {
	return l.triable == 0 || l.gate.queueNext && l.gate.stall == "" && l.waiting() > 0 && l.busy < l.Slots && l.hand.atWork < l.hand.slots
}

// beginProbe notes that the run of a grant is a probe, if there is an outage. It needs
// mu held.
func (l *Lane) beginProbe(g *Grant) {
	if !l.gate.out.IsZero() {
		l.gate.probe = g
	}
}

// endProbe notes that a grant is no probe any more. It needs mu held.
func (l *Lane) endProbe(g *Grant, now time.Time, out *Out) {
	if l.gate.probe == g {
		l.gate.probe = nil
		l.lookAtHeld(now, out)
	}
}

// Note notes that the handler has run on a grant, and whether it said Hold. It
// reports whether an outage has begun or is over.
func (l *Lane) Note(g *Grant, hold bool, now time.Time, out *Out) (changed bool) {
	first := g.said == saidNothing
	if g.said = saidOther; hold {
		g.said = saidHold
	}
	if !hold && !l.heldLately.Load() {
		return false // most runs: there is nothing to remember
	}
	h := l.hand
	h.mu.Lock()
	defer h.mu.Unlock()
	probe := l.gate.probe == g
	changed = l.gate.note(probe, first, hold, now)
	l.heldLately.Store(!l.gate.out.IsZero() || l.gate.holds > 0)
	if probe || changed {
		l.changes(now, out)
	}
	return changed
}

// slotsAreGone begins an outage in each lane whose messages are held because their handler
// said Hold, if they have all slots of the lane, or those of all lanes together have all
// slots of the consumer, or if all other messages in hand wait for their keys: nothing else can be
// handled then. One message that is held says nothing of others. It needs mu held.
func (h *Hand) slotsAreGone(now time.Time, out *Out) {
	held := 0
	for _, l := range h.lanes {
		held += l.byHold
	}
	all := h.slots > 1 && held >= h.slots
	for _, l := range h.lanes {
		gone := all && l.byHold > 0 || l.Slots > 1 && l.byHold >= l.Slots || l.byHold > 1 && l.byHold == l.busy && l.isBlocked()
		if gone && l.gate.out.IsZero() && l.gate.outage.From > 0 {
			l.gate.begin(now)
			l.heldLately.Store(true)
			l.changes(now, out)
			out.Outages = append(out.Outages, l)
		}
	}
}
