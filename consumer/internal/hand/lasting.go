package hand

import (
	"time"

	"github.com/rehop/rehop/consumer/internal/durations"
)

// lasting is since when a lane has been so that Health tells of it. Messages that go back to their
// queue after a while, because they are held or wait for their keys, come again, and the lane is so
// again. Such a gap is no end unless it lasts for durations.StandsStill.
type lasting struct {
	since time.Time // zero: it is not so
	gap   time.Time // since when it is not, while the messages come again
}

// begins notes that it is so.
func (l *lasting) begins(now time.Time) { *l = lasting{since: earlier(l.at(now), now)} }

// breaks notes that it is not so, while the messages come again.
func (l *lasting) breaks(now time.Time) {
	if !l.since.IsZero() && l.gap.IsZero() {
		l.gap = now
	}
}

// isNow reports whether it is so, and there is no gap.
func (l *lasting) isNow() bool { return !l.since.IsZero() && l.gap.IsZero() }

// at returns since when it has been so, the zero time if it is over.
func (l *lasting) at(now time.Time) time.Time {
	if !l.gap.IsZero() && now.Sub(l.gap) >= durations.StandsStill {
		return time.Time{}
	}
	return l.since
}
