package hand

import "time"

// State is how a lane is, at one moment. Times are zero for what is not so.
type State struct {
	Paused     time.Time // since when the gate is closed by order
	Outage     time.Time // since when there is an outage
	NoneBegins time.Time // since when only messages that workers have go on
	Why        Stall     // of NoneBegins
	Full       time.Time // since when messages that are held, or were, have had all slots

	// Blocked is since when slots are free, and no message of another key can come, because all
	// that may be in hand wait for their keys; most of them, Waiting, for Key.
	Blocked time.Time
	Key     string
	Waiting int

	// Kept is since when handlers begin with no message of some lanes, of which this one is one, because consumers
	// may have died of messages of By; nil if it is not decided whose turn it is. Turns that soon follow others do not
	// begin anew.
	Kept time.Time
	By   *Lane

	// Untried says that the lane has had no message to find out with for the longest pause:
	// nobody knows whether the outage lasts, and nothing waits for its end.
	Untried bool

	// Copying is since when every slot has a message whose copy is to be confirmed, and Copies
	// is how many such messages there are in any case.
	Copying time.Time
	Copies  int

	Open bool // the gate of the lane lets all messages be handled; Kept is no matter of the gate
	Busy int  // slots that are taken
	Held int  // of them, by messages that are held and do not wait in place
}

// State returns how the lane is now.
func (l *Lane) State(now time.Time) State {
	g := &l.gate
	l.hand.mu.Lock()
	defer l.hand.mu.Unlock()
	s := State{
		Paused: g.paused, Outage: g.out, Full: l.full.at(now), Copying: l.copying.full, Copies: l.copying.messages,
		Open: g.isOpen(), Busy: l.busy,
	}
	for _, g := range l.holding {
		if g.hold.Kind != UntilDue && g.hold.Kind != ForNextHere {
			s.Held++
		}
	}
	if s.Blocked = l.blocked.at(now); !s.Blocked.IsZero() {
		s.Key, s.Waiting = l.blocked.key, l.blocked.waiting
		if l.blocked.isNow() {
			s.Key, s.Waiting = l.keys.longest()
		}
	}
	if l.isKept() {
		s.Kept, s.By = l.hand.kept.at(now), l.hand.turns.of
	}
	if g.stall != "" && g.stall != finishing {
		s.NoneBegins, s.Why = g.stalled, g.stall
	}
	if !g.out.IsZero() && g.paused.IsZero() && l.busy == 0 && l.waiting() == 0 {
		since := g.next
		if l.wanting.After(since) {
			since = l.wanting
		}
		s.Untried = now.Sub(since) >= g.outage.MaxPause
	}
	return s
}
