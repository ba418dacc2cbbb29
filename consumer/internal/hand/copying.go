package hand

import (
	"container/heap"
	"slices"
	"time"
)

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
	r := resting{m, at}
	if r.isOver() || !now.Before(at) {
		r.copyAgain(out)
		return
	}
	heap.Push(&m.In.lane.resting, r)
	h.wakeAt(at, out)
}

// resting is a message whose copy is sent again at a time.
type resting struct {
	*Message
	at time.Time
}

// isOver reports whether the session of the message ends.
func (r resting) isOver() bool { return r.In.Stop.Err() != nil || r.In.Copying.Err() != nil }

func (r resting) copyAgain(out *Out) {
	r.comes(copyDue)
	out.Copy = append(out.Copy, r.Message)
}

// rests are messages whose copies are sent again, a heap by time: there may be many, and each has
// a time of its own.
type rests []resting

func (r rests) Len() int           { return len(r) }
func (r rests) Less(i, j int) bool { return r[i].at.Before(r[j].at) }
func (r rests) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *rests) Push(x any)        { *r = append(*r, x.(resting)) } //nolint:forcetypeassert // CopyLater pushes it

// Pop is called by package heap.
func (r *rests) Pop() any {
	last := len(*r) - 1
	x := (*r)[last]
	(*r)[last] = resting{}
	*r = (*r)[:last]
	return x
}

// restsDue has the copies sent again whose time has come. It needs mu held.
func (l *Lane) restsDue(now time.Time, out *Out) {
	for len(l.resting) > 0 && !now.Before(l.resting[0].at) {
		heap.Pop(&l.resting).(resting).copyAgain(out) //nolint:forcetypeassert // CopyLater pushes it
	}
	if len(l.resting) > 0 {
		l.hand.wakeAt(l.resting[0].at, out)
	}
}

// restsOver has the copies given up, or sent once more, whose session ends. It needs mu held.
func (l *Lane) restsOver(out *Out) {
	l.resting = slices.DeleteFunc(l.resting, func(r resting) bool {
		over := r.isOver()
		if over {
			r.copyAgain(out)
		}
		return over
	})
	heap.Init(&l.resting)
}
