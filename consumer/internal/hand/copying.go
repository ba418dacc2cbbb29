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
