package hand

import (
	"errors"
	"time"
)

// Stall is why handlers begin with no other message of a lane in order than those that workers
// have. "" is no stall.
type Stall string

const (
	// Visiting lasts until BeginAgain.
	Visiting Stall = "the queue is asked for a sign"

	// finishing is the stall of a lane whose session is at its end: what is held stays so, too.
	finishing Stall = "the session ends"
)

// For these a session in order ends, to begin anew. Only the end of the channel puts messages back
// into their order, and only another session has another prefetch.
const (
	ErrHeld     Stall = "messages have been held for as long as they may be"
	ErrWaited   Stall = "messages have waited too long for a handler"
	ErrSuspects Stall = "consumers may have died of these messages, and one at a time is to be in hand"
	ErrCleared  Stall = "no message is left of which consumers may have died, and more are to be sent ahead"

	// ErrKeptUp may be taken back while workers have messages.
	ErrKeptUp Stall = "handlers keep up with their messages, and more are to be sent ahead"
)

func (s Stall) Error() string { return string(s) }

// Renews reports whether a session in order has ended to begin anew.
func Renews(err error) bool {
	var why Stall
	return errors.As(err, &why)
}

// setStall needs mu held. A stall for another reason began when the first one did.
func (l *Lane) setStall(why Stall, now time.Time, out *Out) {
	g := &l.gate
	if g.stall == why {
		return
	}
	if g.stall == "" {
		g.stalled = now
	}
	g.stall = why
	l.changes(now, out)
}

// Finish closes the gate until the next session. The lane has no message left when Busy
// returns 0.
func (l *Lane) Finish(now time.Time, out *Out) {
	l.hand.mu.Lock()
	defer l.hand.mu.Unlock()
	l.setStall(finishing, now, out)
}

// BeginNoMore closes the gate of a lane in order for all messages but those that workers have. Those
// go on, and are held no longer, unless they wait in place for their next attempt.
//
// The session ends when they are settled, unless it only visits its queue. Of several reasons the first
// counts. What goes back meanwhile goes back with the channel, into its place, and no later message of its
// key begins before.
func (s *Session) BeginNoMore(why Stall, now time.Time, out *Out) {
	l := s.lane
	l.hand.mu.Lock()
	defer l.hand.mu.Unlock()
	if !l.Ordered || l.latest != s || s.Stop.Err() != nil || s.Working.Err() != nil {
		return
	}
	if s.course < keeping {
		l.setStall(why, now, out)
	}
	if why != Visiting && why != ErrKeptUp {
		s.course = max(s.course, keeping)
	}
}

// BeginAgain opens the gate that BeginNoMore has closed. It reports whether it has: another
// reason keeps the gate closed.
func (s *Session) BeginAgain(why Stall, now time.Time, out *Out) bool {
	l := s.lane
	l.hand.mu.Lock()
	defer l.hand.mu.Unlock()
	if l.gate.stall != why || s.course >= keeping {
		return false
	}
	l.setStall("", now, out)
	return true
}

// Ends returns why the session ends, and since when no other message begins; "" if it does not end.
func (s *Session) Ends() (why Stall, since time.Time) {
	l := s.lane
	l.hand.mu.Lock()
	defer l.hand.mu.Unlock()
	if g := &l.gate; g.stall != Visiting && g.stall != finishing {
		why, since = g.stall, g.stalled
	}
	return why, since
}

// Ended returns why the session ends whose messages no worker and no copy has any more, and none of
// them is held. From then on it ends in any case. "" says that it does not end yet.
func (s *Session) Ended() Stall {
	why, _ := s.Ends()
	if why == "" {
		return ""
	}
	s.lane.hand.mu.Lock()
	defer s.lane.hand.mu.Unlock()
	if s.isAtWork() {
		return ""
	}
	s.course = max(s.course, keeping)
	return why
}

// IsAtWork reports whether a worker or a copy has a message of the session. Changed of the lane is set when none
// has one any more.
func (s *Session) IsAtWork() bool {
	s.lane.hand.mu.Lock()
	defer s.lane.hand.mu.Unlock()
	return s.isAtWork()
}

// isAtWork needs mu held.
func (s *Session) isAtWork() bool {
	for m := s.first; m != nil; m = m.next {
		if m.phase.isAtWork() {
			return true
		}
	}
	return false
}
