package schedule

import (
	"context"
	"math/rand/v2"
	"time"
)

// Outage says when the gate of a lane takes the handlers' failures for an outage of
// something that they all need.
type Outage struct {
	Of       int           // runs of the handler that are looked at, the last ones
	From     int           // of them must have said that it is unavailable; 0: never
	MaxPause time.Duration // between two probes, at most

	// Began is called if an outage begins because no slot of the consumer is left; with
	// nil, nobody is told.
	Began func()
}

// gate decides whether the messages of a lane are handled: all, none, or one at a
// time to find out whether an outage is over.
type gate struct {
	outage Outage
	paused time.Time // since when by order; zero: not
	ends   bool      // its session does, and finishes what it has
	out    time.Time // since when there is an outage; zero: there is none

	last        []bool // the last runs: whether each said unavailable
	at          int    // of the oldest of them
	unavailable int    // of them

	probing bool          // a message is handled to find out
	fresh   bool          // the next one is of the queue, and not one that is held
	next    time.Time     // when the next one may be
	pause   time.Duration // after it, if it fails
}

// firstPause is between the beginning of an outage and the first probe.
const firstPause = 200 * time.Millisecond

// note notes that a run of the handler has ended, which was a probe or not, the first of
// its message or not, and said unavailable or not. It reports whether an outage has begun
// or is over. Only first runs make an outage: one message that is held and handled again
// and again says nothing of others.
func (g *gate) note(probe, first, unavailable bool, now time.Time) (changed bool) {
	if !g.out.IsZero() {
		if probe {
			g.probing = false
		}
		switch {
		case !unavailable:
			g.out, g.probing = time.Time{}, false
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
		g.last = append(g.last, unavailable)
	} else {
		if g.last[g.at] {
			g.unavailable--
		}
		g.last[g.at] = unavailable
		g.at = (g.at + 1) % len(g.last)
	}
	if unavailable {
		g.unavailable++
	}
	if g.unavailable < g.outage.From {
		return false
	}
	g.begin(now)
	return true
}

// begin begins an outage.
func (g *gate) begin(now time.Time) {
	g.out, g.next, g.pause = now, now.Add(firstPause), min(2*firstPause, g.outage.MaxPause*2/3)
	g.last, g.at, g.unavailable = g.last[:0], 0, 0
}

// may reports whether a message may be handled now, and whether it is a probe then. If
// not, again is when to look again, the zero time if time alone changes nothing.
func (g *gate) may(now time.Time) (ok, probe bool, again time.Time) {
	switch {
	case !g.paused.IsZero(), g.ends, g.probing:
		return false, false, time.Time{}
	case g.out.IsZero():
		return true, false, time.Time{}
	case now.Before(g.next):
		return false, false, g.next
	}
	return true, true, time.Time{}
}

// isOpen reports whether all messages are handled.
func (g *gate) isOpen() bool { return g.paused.IsZero() && !g.ends && g.out.IsZero() }

// mayTake reports whether a worker may take a message of the lane, and if not, when
// that may change by time alone. It needs mu held.
func (l *Lane) mayTake(now time.Time) (ok bool, again time.Time) {
	ok, probe, again := l.gate.may(now)
	if (probe || !again.IsZero()) && !l.freshIsNext() {
		return false, time.Time{}
	}
	return ok, again
}

// freshIsNext reports whether the next probe of an outage is a message of the queue, and
// not one that is held. They take turns, because those that are held may have reasons of
// their own. But the lanes share the workers: where the held messages of all lanes have
// them all, a message of the queue would never have its turn. It needs mu held.
func (l *Lane) freshIsNext() bool {
	return l.triable == 0 || l.gate.fresh && l.waiting() > 0 && l.busy < l.Slots && l.schedule.atWork < l.schedule.slots
}

// beginProbe notes that the run of a grant is a probe, if there is an outage. It needs
// mu held.
func (l *Lane) beginProbe(g *Grant) {
	if !l.gate.out.IsZero() {
		l.gate.probing, g.probe = true, true
	}
}

// endProbe notes that a grant is no probe any more. It needs mu held.
func (l *Lane) endProbe(g *Grant) {
	if g.probe {
		l.gate.probing, g.probe = false, false
		l.wakeHeld()
	}
}

// Note notes that the handler has run on a grant, and whether it said that something is
// unavailable. It reports whether an outage has begun or is over.
func (l *Lane) Note(g *Grant, unavailable bool) (changed bool) {
	first := !g.ran
	g.ran, g.unavailable = true, unavailable
	if !unavailable && !l.uneasy.Load() {
		return false // most runs: there is nothing to remember
	}
	s := l.schedule
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = l.gate.note(g.probe, first, unavailable, time.Now())
	l.uneasy.Store(!l.gate.out.IsZero() || l.gate.unavailable > 0)
	if g.probe || changed {
		g.probe = false
		l.wakeHeld()
		l.signal()
		s.call()
	}
	return changed
}

// slotsAreGone begins an outage in each lane whose messages are held because something is
// unavailable, if they have all slots of the lane, or those of all lanes together have all
// workers: nothing else can be handled then. Where one slot is all, one message is held,
// which says nothing of others. It returns the lanes, and needs s.mu held.
func (s *Schedule) slotsAreGone(now time.Time) (began []*Lane) {
	unavailable := 0
	for _, l := range s.lanes {
		unavailable += l.unavailable
	}
	all := s.slots > 1 && unavailable >= s.slots
	for _, l := range s.lanes {
		gone := all && l.unavailable > 0 || l.Slots > 1 && l.unavailable >= l.Slots
		if gone && l.gate.out.IsZero() && l.gate.outage.From > 0 {
			l.gate.begin(now)
			l.uneasy.Store(true)
			l.wakeHeld()
			l.signal()
			began = append(began, l)
		}
	}
	return began
}

// signal has the intake look at Wants, if the gate is not open. It needs mu held.
func (l *Lane) signal() {
	if l.gate.isOpen() && !l.signalled {
		return
	}
	l.signalled = !l.gate.isOpen()
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// Pause closes the gate of the lane, until Resume: no message begins to be handled.
func (l *Lane) Pause() { l.setPaused(time.Now()) }

// Resume opens the gate that Pause has closed.
func (l *Lane) Resume() { l.setPaused(time.Time{}) }

func (l *Lane) setPaused(paused time.Time) {
	s := l.schedule
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.gate.paused.IsZero() == paused.IsZero() {
		return
	}
	l.gate.paused = paused
	l.wants()
	l.wakeHeld()
	l.signal()
	s.call()
}

// Finish closes the gate until the next session, and returns when no message has a slot
// any more, or ctx has ended. Nobody else may listen to Changed.
func (l *Lane) Finish(ctx context.Context) {
	l.setEnds(true)
	for l.Busy() > 0 {
		select {
		case <-l.changed:
		case <-ctx.Done():
			return
		}
	}
}

func (l *Lane) setEnds(ends bool) {
	s := l.schedule
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.gate.ends == ends {
		return
	}
	l.gate.ends = ends
	l.wakeHeld()
	l.signal()
	s.call()
}

// Wants returns how many unsettled messages the lane wants of its queue, given the
// prefetch of an open gate: with 0 the messages that no worker has go back.
func (l *Lane) Wants(prefetch int) int {
	l.schedule.mu.Lock()
	defer l.schedule.mu.Unlock()
	switch {
	case l.gate.isOpen(), l.Ordered:
		return prefetch
	case l.gate.paused.IsZero() && l.busy < l.Slots:
		return 1 // to find out whether the outage is over
	}
	return 0
}

// Changed has an element when Wants may say something else.
func (l *Lane) Changed() <-chan struct{} { return l.changed }

// ClosedSince returns since when the gate is closed by order, and since when there is an
// outage; zero times for neither. untried reports that the lane has had no message to
// find out with for the longest pause: nobody knows whether the outage lasts, and nothing
// waits for its end.
func (l *Lane) ClosedSince(now time.Time) (paused, outage time.Time, untried bool) {
	l.schedule.mu.Lock()
	defer l.schedule.mu.Unlock()
	g := l.gate
	if !g.out.IsZero() && g.paused.IsZero() && l.busy == 0 && l.waiting() == 0 {
		since := g.next
		if l.wanting.After(since) {
			since = l.wanting
		}
		untried = now.Sub(since) >= g.outage.MaxPause
	}
	return g.paused, g.out, untried
}

// wants notes that a closed gate waits for a message from now on. It needs mu held.
func (l *Lane) wants() {
	if !l.gate.isOpen() {
		l.wanting = time.Now()
	}
}
