package hand

import "time"

// copying counts the slots of a lane that are taken by messages whose copies are to be confirmed.
type copying struct {
	slots    int
	messages int
	taken    int       // slots; a message that no worker had counts as one
	full     time.Time // since when all are taken; zero: they are not
}

// began notes one more message whose copy is to be confirmed.
func (c *copying) began(m *Message, now time.Time) {
	c.messages++
	if m.grant != nil {
		if m.grant.copying++; m.grant.copying > 1 {
			return
		}
	}
	if c.taken++; c.taken == c.slots {
		c.full = now
	}
}

// ended notes that a copy is confirmed or given up.
func (c *copying) ended(m *Message) {
	c.messages--
	if m.grant != nil {
		if m.grant.copying--; m.grant.copying > 0 {
			return
		}
	}
	if c.taken--; c.taken < c.slots {
		c.full = time.Time{}
	}
}

// CopyLater says that the copy of a message is not confirmed. The message is in Out.Copy at that
// time, or as soon as its session ends.
func (h *Hand) CopyLater(m *Message, at, now time.Time, out *Out) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m.comes(unconfirmed)
	l := m.In.lane
	l.resting = append(l.resting, resting{m, at})
	l.lookAtResting(now, out)
}

// resting is a message whose copy is sent again at a time.
type resting struct {
	*Message
	at time.Time
}

// lookAtResting looks which copies are to be sent again, or given up because their session ends.
// It needs mu held.
func (l *Lane) lookAtResting(now time.Time, out *Out) {
	kept := l.resting[:0]
	for _, u := range l.resting {
		if now.Before(u.at) && u.In.Stop.Err() == nil && u.In.Copying.Err() == nil {
			kept = append(kept, u)
			l.hand.wakeAt(u.at, out)
			continue
		}
		u.comes(copyDue)
		out.Copy = append(out.Copy, u.Message)
	}
	clear(l.resting[len(kept):])
	l.resting = kept
}
