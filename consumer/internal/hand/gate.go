package hand

import "time"

// gate decides whether the messages of a lane are handled: all, none, or one at a
// time to find out whether an outage is over.
type gate struct {
	outage     Outage
	paused     time.Time // when Pause closed the gate; zero: it did not
	ends       bool      // the session of the lane is at its end: handlers finish their messages, and begin no other
	noneBegins error     // why handlers begin with no other message; nil: they may
	since      time.Time // when noneBegins was set
	out        time.Time // when the outage began; zero: there is none

	last  []bool // whether each of the last runs said Hold
	at    int    // index of the oldest of them
	holds int    // how many of them said Hold

	probing   bool          // a handler has a message to find out whether the outage is over
	queueNext bool          // the next probe is a message of the queue, and not one that is held
	next      time.Time     // when the next probe may begin
	pause     time.Duration // after the next probe, if it says Hold
}

// may reports whether a message may be handled now, but for noneBegins, which the callers ask, and
// whether it is a probe then. If not, again is when to look again, the zero time if time alone changes nothing.
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
func (g *gate) isOpen() bool {
	return g.paused.IsZero() && !g.ends && g.noneBegins == nil && g.out.IsZero()
}

// mayTake reports whether a worker may take a message of the lane, and if not, when
// that may change by time alone. It needs mu held.
func (l *Lane) mayTake(now time.Time) (ok bool, again time.Time) {
	if l.gate.noneBegins != nil {
		return false, time.Time{}
	}
	ok, probe, again := l.gate.may(now)
	if (probe || !again.IsZero()) && !l.queueIsNext() {
		return false, time.Time{}
	}
	return ok, again
}

// tell has the session look at Wants while the gate is not open, and once when it has opened. It
// needs mu held.
func (l *Lane) tell() {
	if l.gate.isOpen() && !l.told {
		return
	}
	l.told = !l.gate.isOpen()
	l.Changed.set()
}

// SetPaused closes the gate of the lane, or opens it again. While it is closed no message
// begins to be handled.
func (l *Lane) SetPaused(paused bool, now time.Time, out *Out) {
	h := l.hand
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.gate.paused.IsZero() == !paused {
		return
	}
	l.gate.paused = time.Time{}
	if paused {
		l.gate.paused = now
	}
	l.wants(now)
	l.changes(now, out)
}

// changes has everybody look at the gate again. It needs mu held.
func (l *Lane) changes(now time.Time, out *Out) {
	l.lookAtHeld(now, out)
	l.tell()
	l.lookAtKeys(now, out)
	l.hand.call(now, out)
}

// Finish closes the gate until the next session. The lane has no message left when Busy
// returns 0.
func (l *Lane) Finish(now time.Time, out *Out) {
	l.hand.mu.Lock()
	defer l.hand.mu.Unlock()
	l.setEnds(true, now, out)
}

// setEnds needs mu held.
func (l *Lane) setEnds(ends bool, now time.Time, out *Out) {
	if l.gate.ends == ends && l.gate.noneBegins == nil {
		return
	}
	l.gate.ends, l.gate.noneBegins = ends, nil
	l.changes(now, out)
}

// BeginNoMore closes the gate until the next session for all messages but those that
// workers have. Those go on, and are held no longer, unless they wait in place for their
// next attempt. BeginNoMore does nothing if the session is not the latest.
func (s *Session) BeginNoMore(why error, now time.Time, out *Out) {
	h := s.lane.hand
	h.mu.Lock()
	defer h.mu.Unlock()
	s.lane.beginNoMore(s, why, now, out)
}

// beginNoMore needs mu held.
func (l *Lane) beginNoMore(s *Session, why error, now time.Time, out *Out) {
	if l.latest != s {
		return
	}
	if l.gate.noneBegins == nil {
		l.gate.since = now
	}
	l.gate.noneBegins = why
	l.changes(now, out)
}

// BeginAgain opens the gate that BeginNoMore has closed. It reports whether it has: another
// reason keeps the gate closed.
func (l *Lane) BeginAgain(why error, now time.Time, out *Out) bool {
	l.hand.mu.Lock()
	defer l.hand.mu.Unlock()
	if l.gate.noneBegins != why { //nolint:errorlint // it is a mark
		return false
	}
	l.gate.noneBegins = nil
	l.changes(now, out)
	return true
}

// IsOpen reports whether all messages are handled.
func (l *Lane) IsOpen() bool {
	l.hand.mu.Lock()
	defer l.hand.mu.Unlock()
	return l.gate.isOpen()
}

// Wants returns how many unsettled messages the lane wants of its queue, given the
// prefetch of an open gate: with 0 the messages that no worker has go back.
func (l *Lane) Wants(prefetch int) int {
	l.hand.mu.Lock()
	defer l.hand.mu.Unlock()
	switch {
	case l.gate.isOpen(), l.Ordered:
		return prefetch
	case l.gate.paused.IsZero() && l.busy < l.Slots:
		return 1 // to find out whether the outage is over
	}
	return 0
}

// wants notes that a closed gate waits for a message from now on. It needs mu held.
func (l *Lane) wants(now time.Time) {
	if !l.gate.isOpen() {
		l.wanting = now
	}
}
