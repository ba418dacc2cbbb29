package hand

import (
	"slices"
	"time"
)

// Hold is how messages are held that a worker has had.
type Hold struct {
	Kind  Kind
	For   time.Duration // at least; in an outage until that is over, or it is their turn to find out
	Until time.Time     // at most

	// Own says that the handler has said Hold of none of them: they find out about no outage
	// before For has passed, whatever the latest run said.
	Own bool
}

// Kind is why messages are held.
type Kind uint8

// The kinds of holding. Zero is none.
const (
	_           Kind = iota
	UntilDue         // they are back before they are due, and go elsewhere then
	ToBegin          // they lack a little of their wait, and their handler runs then
	ForAnother       // their handler runs again
	ForNextHere      // they wait in place for their next attempt
)

// IsEarly reports whether no handler has had the messages.
func (k Kind) IsEarly() bool { return k == UntilDue || k == ToBegin }

// holding is what is known of a grant whose messages are held.
type holding struct {
	Hold
	due     time.Time
	again   time.Time // when to look again, if nothing else happens
	triable bool      // they may find out whether an outage is over
}

// Hold says that a worker is done with a grant for now, and holds its messages. A worker gets
// them again
//   - after Hold.For, when the gate is open
//   - in an outage when it is over, or when it is their turn to find out; but if the handler has
//     not said Hold of them, not before Hold.For
//   - with UntilDue after Hold.For, whatever the gate is: no handler runs then
//   - with LetGo as Grant.Why, when they can be held no longer: at Until, or at once if Hold.For ends
//     later; when the session ends; and when handlers begin with no other message, unless they
//     wait in place
//
// While the lane waits for the suspects of another one only the last two happen.
//
// It returns the worker's next grant, as Next does.
func (h *Hand) Hold(w *Worker, g *Grant, hold Hold, now time.Time) (next *Grant, ended bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := g.Lane
	g.hold = holding{Hold: hold, due: now.Add(hold.For)}
	if hold.Own {
		g.said = min(g.said, saidOther)
	}
	for _, m := range g.Of {
		switch {
		case m.phase.isWithHandler():
			m.comes(returned)
		case m.phase == Taken && hold.Kind.IsEarly():
			m.comes(lacksTime)
		}
	}
	l.endProbe(g, now, &w.Out) // of one that no handler has had
	if hold.Kind != UntilDue {
		if !g.wasHeld {
			g.wasHeld = true
			l.wereHeld++
			h.noteFull(false, now)
		}
		if g.said == saidHold {
			l.byHold++
		}
	}
	h.slotsAreGone(now, &w.Out)
	if l.goOn(g, now, &w.Out) {
		l.tell()
	} else {
		l.holding = append(l.holding, g)
	}
	return h.next(w, now)
}

// lookAtHeld looks whether held messages of the lane are to be handled again, or let go. It
// needs mu held.
func (l *Lane) lookAtHeld(now time.Time, out *Out) {
	l.eachHeld(func(g *Grant) bool { return l.goOn(g, now, out) }, now, out)
}

// heldDue is lookAtHeld for those whose time has come: nothing else has changed.
func (l *Lane) heldDue(now time.Time, out *Out) {
	l.eachHeld(func(g *Grant) bool {
		if now.Before(g.hold.again) {
			l.hand.wakeAt(g.hold.again, out)
			return false
		}
		return l.goOn(g, now, out)
	}, now, out)
}

// eachHeld takes out the grants that go on. It needs mu held.
func (l *Lane) eachHeld(goesOn func(*Grant) bool, now time.Time, out *Out) {
	before := len(l.holding)
	if l.holding = slices.DeleteFunc(l.holding, goesOn); len(l.holding) < before {
		l.tell()
		l.hand.call(now, out)
	}
}

// goOn has a worker take held messages if they are to be handled again, or let go. It reports
// whether they are, and needs mu held.
func (l *Lane) goOn(g *Grant, now time.Time, out *Out) bool {
	why, again := g.turn(now)
	if why == First {
		g.hold.again = again
		l.hand.wakeAt(again, out)
		return false
	}
	g.Why = why
	l.unhold(g)
	l.hand.ready = append(l.hand.ready, g)
	return true
}

// turn returns why a worker is to have the messages of a grant now; First if none is, and then
// when to look again. It needs mu held.
func (g *Grant) turn(now time.Time) (why Why, again time.Time) {
	l, h := g.Lane, &g.hold
	s := g.Of[0].In
	switch {
	case s.Working.Err() != nil, s.Stop.Err() != nil, !now.Before(h.Until):
		return LetGo, time.Time{}
	case h.Kind == UntilDue && !h.due.Before(h.Until):
		return LetGo, time.Time{}
	case h.Kind == UntilDue && !now.Before(h.due):
		return GoesOn, time.Time{}
	case h.Kind == UntilDue:
		return First, h.due
	case l.gate.stall != "" && h.Kind != ForNextHere:
		return LetGo, time.Time{}
	}
	if l.isKept() {
		return First, h.Until
	}
	ok, probe, again := l.gate.may(now)
	if !h.triable && (g.said == saidHold || !now.Before(h.due)) {
		h.triable = true
		l.triable++
	}
	switch {
	case !l.gate.out.IsZero() && !h.triable:
		ok, again = false, h.due
	case !l.gate.out.IsZero():
		h.due = now // when the outage is over there is nothing more to wait for
		if ok && probe {
			if ok = !l.queueIsNext(); ok {
				l.beginProbe(g)
				l.gate.queueNext = true
			} else {
				again = now.Add(l.gate.outage.MaxPause) // a worker takes the one that is next
			}
		}
	case ok && h.due.After(h.Until):
		return LetGo, time.Time{}
	case ok && now.Before(h.due):
		ok, again = false, h.due
	}
	if ok {
		return GoesOn, time.Time{}
	}
	return First, earlier(h.Until, again)
}

// unhold ends the holding of a grant. It needs mu held.
func (l *Lane) unhold(g *Grant) {
	h := &g.hold
	if h.Kind == UntilDue {
		return
	}
	if g.said == saidHold {
		l.byHold--
	}
	if h.triable {
		l.triable--
	}
}

// goesOn notes that a worker has a held grant again. It needs mu held.
func (g *Grant) goesOn() {
	for _, m := range g.Of {
		if m.phase == Early {
			m.comes(goesOn)
		}
	}
}

// Runs says that the handler gets messages of one grant, of a batch perhaps once more.
func (h *Hand) Runs(now time.Time, ms ...*Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !ms[0].phase.isWithHandler() {
		ms[0].grant.began = now
	}
	for _, m := range ms {
		if m.phase.isWithHandler() {
			m.comes(returned)
		}
		m.comes(runs)
	}
}

// noteFull notes in which lanes no other message can be handled, because messages that are
// held, or were, have all slots of the lane or all workers. over says that a message is done that
// had a slot: those that are only let go come again. It needs mu held.
func (h *Hand) noteFull(over bool, now time.Time) {
	all := 0
	for _, l := range h.lanes {
		all += l.wereHeld
	}
	for _, l := range h.lanes {
		switch full := all >= h.slots || l.wereHeld >= l.Slots; {
		case full:
			l.full.begins(now)
		case over:
			l.full = lasting{}
		default:
			l.full.breaks(now)
		}
	}
}

// Handler is a handler at work.
type Handler struct {
	Lane  *Lane
	Began time.Time
	Of    []*Message
}

// Handlers returns the handlers at work that have begun until then.
func (h *Hand) Handlers(until time.Time) (all []Handler) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range h.every {
		if g.began.After(until) {
			continue
		}
		if ms := withHandler(g.Of); len(ms) > 0 {
			all = append(all, Handler{g.Lane, g.began, ms})
		}
	}
	return all
}

// Running returns those of the messages that a handler has.
func (h *Hand) Running(ms ...*Message) []*Message {
	h.mu.Lock()
	defer h.mu.Unlock()
	return withHandler(ms)
}

// withHandler needs mu held.
func withHandler(ms []*Message) (some []*Message) {
	for _, m := range ms {
		if m.phase.isWithHandler() {
			some = append(some, m)
		}
	}
	return some
}
