package schedule

import (
	"context"
	"time"

	"github.com/rehop/rehop/consumer/internal/flight"
)

// gate decides whether the messages of a lane are handled: all, none, or one at a
// time to find out whether an outage is over.
type gate struct {
	outage Outage
	paused time.Time // when Pause closed the gate; zero: it did not
	ends   bool      // the session of the lane is at its end: handlers finish their messages, and begin no other
	begun  error     // why handlers begin with no other message; nil: they may
	since  time.Time // when begun was set
	out    time.Time // when the outage began; zero: there is none

	last  []bool // whether each of the last runs said Hold
	at    int    // index of the oldest of them
	holds int    // how many of them said Hold

	probing   bool          // a handler has a message to find out whether the outage is over
	queueNext bool          // the next probe is a message of the queue, and not one that is held
	next      time.Time     // when the next probe may begin
	pause     time.Duration // after the next probe, if it says Hold
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
func (g *gate) isOpen() bool { return g.paused.IsZero() && !g.ends && g.begun == nil && g.out.IsZero() }

// mayTake reports whether a worker may take a message of the lane, and if not, when
// that may change by time alone. It needs mu held.
func (l *Lane) mayTake(now time.Time) (ok bool, again time.Time) {
	if l.gate.begun != nil {
		return false, time.Time{}
	}
	ok, probe, again := l.gate.may(now)
	if (probe || !again.IsZero()) && !l.queueIsNext() {
		return false, time.Time{}
	}
	return ok, again
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
	if l.gate.ends == ends && l.gate.begun == nil {
		return
	}
	l.gate.ends, l.gate.begun = ends, nil
	l.wakeHeld()
	l.signal()
	s.call()
}

// BeginNoMore closes the gate until the next session for all messages but those that
// workers have. Those go on, and are held no longer, unless they wait in place for their
// next attempt. BeginNoMore does nothing if the session is not the latest.
func (l *Lane) BeginNoMore(in *flight.Ledger, why error) {
	s := l.schedule
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.latest != in {
		return
	}
	if l.gate.begun == nil {
		l.gate.since = time.Now()
	}
	l.gate.begun = why
	l.wakeHeld()
	l.signal()
}

// BeginAgain opens the gate that BeginNoMore has closed. It reports whether it has: another
// reason keeps the gate closed.
func (l *Lane) BeginAgain(why error) bool {
	s := l.schedule
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.gate.begun != why { //nolint:errorlint // it is a mark
		return false
	}
	l.gate.begun = nil
	l.wakeHeld()
	l.signal()
	s.call()
	return true
}

// IsOpen reports whether all messages are handled.
func (l *Lane) IsOpen() bool {
	l.schedule.mu.Lock()
	defer l.schedule.mu.Unlock()
	return l.gate.isOpen()
}

// Paused reports whether the gate is closed by order.
func (l *Lane) Paused() bool {
	l.schedule.mu.Lock()
	defer l.schedule.mu.Unlock()
	return !l.gate.paused.IsZero()
}

// IsStarved reports whether all workers are at work, and none on a message of the lane.
func (l *Lane) IsStarved() bool {
	s := l.schedule
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.atWork >= s.slots && l.working == 0
}

// BegunSince returns since when only messages that workers have go on, and why, the zero
// time if all do.
func (l *Lane) BegunSince() (since time.Time, why error) {
	l.schedule.mu.Lock()
	defer l.schedule.mu.Unlock()
	if l.gate.begun == nil {
		return time.Time{}, nil
	}
	return l.gate.since, l.gate.begun
}

// Holds reports whether messages are held that do not wait in place.
func (l *Lane) Holds() bool {
	l.schedule.mu.Lock()
	defer l.schedule.mu.Unlock()
	return l.held > l.inPlace
}

// OnlyHolds reports whether all messages that have a slot are held, and none of them in place.
func (l *Lane) OnlyHolds() bool {
	l.schedule.mu.Lock()
	defer l.schedule.mu.Unlock()
	return l.busy > 0 && l.held-l.inPlace == l.busy
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
