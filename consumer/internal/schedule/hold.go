package schedule

import (
	"context"
	"time"
)

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
// their own. It needs mu held.
func (l *Lane) freshIsNext() bool {
	return l.held == 0 || l.gate.fresh && l.waiting() > 0 && l.busy < l.Slots
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

// Note notes that the handler has run on a grant, for the first time or again, and
// whether it said that something is unavailable. It reports whether an outage has begun
// or is over.
func (l *Lane) Note(g *Grant, first, unavailable bool) (changed bool) {
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
		l.look()
		s.call()
	}
	return changed
}

// Hold waits until a held message may be handled again: for d, or in an outage until
// the outage is over or it is the turn of this message to find out. It returns false
// when the message can be held no longer: after until, or when a ctx has ended.
func (l *Lane) Hold(g *Grant, d time.Duration, until time.Time, one, other context.Context) bool {
	s := l.schedule
	s.mu.Lock()
	l.held++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		l.held--
		l.look()
		s.call()
	}()
	due := time.Now().Add(d)
	for {
		s.mu.Lock()
		now := time.Now()
		ok, probe, again := l.gate.may(now)
		switch {
		case !l.gate.out.IsZero():
			due = now // when the outage is over there is nothing more to wait for
			if ok && probe {
				if ok = !l.freshIsNext(); ok {
					l.beginProbe(g)
					l.gate.fresh = true
				} else {
					again = now.Add(l.gate.outage.MaxPause) // a worker takes the one that is next
				}
			}
		case ok && due.After(until):
			s.mu.Unlock()
			return false
		case ok && now.Before(due):
			ok, again = false, due
		}
		turn := l.turn
		s.mu.Unlock()
		if ok {
			return true
		}
		if again.IsZero() || again.After(until) {
			again = until
		}
		timer := time.NewTimer(again.Sub(now))
		select {
		case <-timer.C:
			if !time.Now().Before(until) {
				return false
			}
		case <-turn:
		case <-one.Done():
			timer.Stop()
			return false
		case <-other.Done():
			timer.Stop()
			return false
		}
		timer.Stop()
	}
}

// wakeHeld lets held messages look whether it is their turn. It needs mu held.
func (l *Lane) wakeHeld() {
	if l.held > 0 {
		close(l.turn)
		l.turn = make(chan struct{})
	}
}

// Waiting returns how many messages wait for a worker.
func (l *Lane) Waiting() int {
	l.schedule.mu.Lock()
	defer l.schedule.mu.Unlock()
	return l.waiting()
}

// look has the intake look at Wants, if the gate is not open. It needs mu held.
func (l *Lane) look() {
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
func (l *Lane) Pause() { l.order(time.Now()) }

// Resume opens the gate that Pause has closed.
func (l *Lane) Resume() { l.order(time.Time{}) }

func (l *Lane) order(paused time.Time) {
	s := l.schedule
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.gate.paused.IsZero() == paused.IsZero() {
		return
	}
	l.gate.paused = paused
	l.wants()
	l.wakeHeld()
	l.look()
	s.call()
}

// Finish closes the gate for good, and returns when no message has a slot any more, or
// ctx has ended. Nobody else may listen to Changed.
func (l *Lane) Finish(ctx context.Context) {
	l.Pause()
	for l.Busy() > 0 {
		select {
		case <-l.changed:
		case <-ctx.Done():
			return
		}
	}
}

// Wants returns how many unsettled messages the lane wants of its queue, given the
// prefetch of an open gate: with 0 the messages that no worker has go back.
func (l *Lane) Wants(prefetch int) int {
	l.schedule.mu.Lock()
	defer l.schedule.mu.Unlock()
	switch {
	case l.gate.isOpen(), l.Keep:
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
