package schedule

import "time"

// start returns where the next message of the lane begins on the scale that all lanes
// share. A lane that had no messages for a while has saved nothing up. It needs mu held.
func (l *Lane) start() float64 { return max(l.end, l.schedule.start) }

// took notes that so many messages of a lane were taken. It needs s.mu held.
func (s *Schedule) took(l *Lane, n int, now time.Time) {
	l.due, l.moved = now.Add(time.Duration(n)*l.Every), now
	if !s.strict {
		s.start = max(s.start, l.end)
		l.end = s.start + float64(n)/float64(l.Share)
	}
}
