package hand

import (
	"errors"
	"time"
)

// gate decides whether the messages of a lane are handled: all, none, or one at a
// time to find out whether an outage is over.
type gate struct {
	outage Outage
	paused time.Time // when Pause closed the gate; zero: it did not
	stall  stall
	out    time.Time // when the outage began; zero: there is none

	last  []bool // whether each of the last runs said Hold
	at    int    // index of the oldest of them
	holds int    // how many of them said Hold

	probe     *Grant        // whose run finds out whether the outage is over; nil: none does
	queueNext bool          // the next probe is a message of the queue, and not one that is held
	next      time.Time     // when the next probe may begin
	pause     time.Duration // after the next probe, if it says Hold
}

// stall is why handlers begin with no other message than those that workers have; zero: they may.
type stall struct {
	why   error
	since time.Time
}

// errFinishing is the stall of a lane whose session is at its end: what is held stays so, too.
var errFinishing = errors.New("the session ends")

// may reports whether a message may be handled now, but for a stall, which the callers ask, and
// whether it is a probe then. If not, again is when to look again, the zero time if time alone changes nothing.
func (g *gate) may(now time.Time) (ok, probe bool, again time.Time) {
	switch {
	case !g.paused.IsZero(), g.stall.why == errFinishing, g.probe != nil: //nolint:errorlint // it is a mark
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
	return g.paused.IsZero() && g.stall.why == nil && g.out.IsZero()
}

// mayTake reports whether a worker may take a message of the lane, and if not, when
// that may change by time alone. It needs mu held.
func (l *Lane) mayTake(now time.Time) (ok bool, again time.Time) {
	if l.gate.stall.why != nil {
		return false, time.Time{}
	}
	ok, probe, again := l.gate.may(now)
	if (probe || !again.IsZero()) && !l.queueIsNext() {
		return false, time.Time{}
	}
	return ok, again
}

// tell has the session look at Wants while the gate is not open. It needs mu held.
func (l *Lane) tell() {
	if !l.gate.isOpen() {
		l.Changed.set()
	}
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
	l.Changed.set()
	l.lookAtKeys(now, out)
	l.hand.call(now, out)
}

// Finish closes the gate until the next session. The lane has no message left when Busy
// returns 0.
func (l *Lane) Finish(now time.Time, out *Out) {
	l.hand.mu.Lock()
	defer l.hand.mu.Unlock()
	l.setStall(errFinishing, now, out)
}

// setStall needs mu held. A stall for another reason began when the first one did.
func (l *Lane) setStall(why error, now time.Time, out *Out) {
	s := &l.gate.stall
	if s.why == nil && why == nil {
		return
	}
	if s.why == nil {
		s.since = now
	}
	s.why = why
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
	if l.latest == s && l.gate.stall.why != errFinishing { //nolint:errorlint // it is a mark
		l.setStall(why, now, out)
	}
}

// BeginAgain opens the gate that BeginNoMore has closed. It reports whether it has: another
// reason keeps the gate closed.
func (l *Lane) BeginAgain(why error, now time.Time, out *Out) bool {
	l.hand.mu.Lock()
	defer l.hand.mu.Unlock()
	if l.gate.stall.why != why { //nolint:errorlint // it is a mark
		return false
	}
	l.setStall(nil, now, out)
	return true
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
