package hand

import "time"

// start returns where the next message of the lane begins on the scale that all lanes
// share. A lane that had no messages for a while has saved nothing up. It needs mu held.
func (l *Lane) start() float64 { return max(l.end, l.hand.start) }

// took notes that so many messages of a lane were taken. It needs mu held.
func (h *Hand) took(l *Lane, n int, now time.Time) {
	l.due, l.moved = now.Add(time.Duration(n)*l.Every), now
	if !h.strict {
		h.start = max(h.start, l.end)
		l.end = h.start + float64(n)/float64(l.Share)
	}
}
