package hand

import "time"

// gate decides whether the messages of a lane are handled: all, none, or one at a
// time to find out whether an outage is over.
type gate struct {
	outage Outage
	paused time.Time // when Pause closed the gate; zero: it did not
	out    time.Time // when the outage began; zero: there is none

	stall   Stall
	stalled time.Time // since when there is one

	last  []bool // whether each of the last runs said Hold
	at    int    // index of the oldest of them
	holds int    // how many of them said Hold

	probe     *Grant        // whose run finds out whether the outage is over; nil: none does
	queueNext bool          // the next probe is a message of the queue, and not one that is held
	next      time.Time     // when the next probe may begin
	pause     time.Duration // after the next probe, if it says Hold
}

// may reports whether a message may be handled now, but for a stall, which the callers ask, and
// whether it is a probe then. If not, again is when to look again, the zero time if time alone changes nothing.
func (g *gate) may(now time.Time) (ok, probe bool, again time.Time) {
	switch {
	case !g.paused.IsZero(), g.stall == finishing, g.probe != nil:
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
	return g.paused.IsZero() && g.stall == "" && g.out.IsZero()
}

// mayTake reports whether a worker may take a message of the lane, and if not, when
// that may change by time alone. It needs mu held.
func (l *Lane) mayTake(now time.Time) (ok bool, again time.Time) {
	if l.gate.stall != "" || l.isKept() {
		return false, time.Time{}
	}
	ok, probe, again := l.gate.may(now)
	if (probe || !again.IsZero()) && !l.queueIsNext() {
		return false, time.Time{}
	}
	return ok, again
}

// tell has the session look at Room and Ended while the gate is not open. It needs mu held.
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

// room returns how many unsettled messages the lane wants of its queue, given the
// prefetch of an open gate: with 0 the messages that no worker has go back. It needs mu held.
func (l *Lane) room(prefetch int) int {
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
