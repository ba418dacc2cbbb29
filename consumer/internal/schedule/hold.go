package schedule

import (
	"context"
	"time"
)

// Hold waits until a held message may be handled again: for d, or in an outage until
// the outage is over or it is the turn of this message to find out. A message that failed
// for a reason of its own waits for d in any case. Hold returns false
// when the message can be held no longer: after until, when a ctx has ended, or at
// BeginNoMore, unless it waits in place for its next attempt.
func (l *Lane) Hold(g *Grant, d time.Duration, until time.Time, inPlace bool, one, other context.Context) bool {
	s, triable := l.schedule, false
	s.mu.Lock()
	l.held++
	if !g.wasHeld {
		g.wasHeld = true
		l.wereHeld++
		s.noteFull()
	}
	if inPlace {
		l.inPlace++
	}
	if g.saidHold {
		l.byHold++
	}
	began := s.slotsAreGone(time.Now())
	s.mu.Unlock()
	for _, lane := range began {
		if lane.Outage.Began != nil {
			lane.Outage.Began()
		}
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		l.held--
		if inPlace {
			l.inPlace--
		}
		if g.saidHold {
			l.byHold--
		}
		if triable {
			l.triable--
		}
		l.signal()
		s.call()
	}()
	due := time.Now().Add(d)
	for {
		s.mu.Lock()
		if l.gate.begun != nil && !inPlace {
			s.mu.Unlock()
			return false
		}
		now := time.Now()
		ok, probe, again := l.gate.may(now)
		if !triable && (g.saidHold || !now.Before(due)) {
			triable = true
			l.triable++
		}
		switch {
		case !l.gate.out.IsZero() && !triable:
			ok, again = false, due
		case !l.gate.out.IsZero():
			due = now // when the outage is over there is nothing more to wait for
			if ok && probe {
				if ok = !l.queueIsNext(); ok {
					l.beginProbe(g)
					l.gate.queueNext = true
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

// noteFull notes in which lanes no other message can be handled, because messages that are
// held, or were, have all slots of the lane or all workers. It needs mu held.
func (s *Schedule) noteFull() {
	all := 0
	for _, l := range s.lanes {
		all += l.wereHeld
	}
	for _, l := range s.lanes {
		switch full := all >= s.slots || l.wereHeld >= l.Slots; {
		case !full:
			l.full = time.Time{}
		case l.full.IsZero():
			l.full = time.Now()
		}
	}
}

// FullSince returns the time since which messages that are held, or were, have had all slots:
// no other message can be handled. It returns the zero time if another one can be.
func (l *Lane) FullSince() time.Time {
	l.schedule.mu.Lock()
	defer l.schedule.mu.Unlock()
	return l.full
}

// wakeHeld lets held messages look whether it is their turn. It needs mu held.
func (l *Lane) wakeHeld() {
	if l.held > 0 {
		close(l.turn)
		l.turn = make(chan struct{})
	}
}
