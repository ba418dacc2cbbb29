package intake

import (
	"time"

	"github.com/rehop/rehop/consumer/internal/durations"
)

const (
	// riseMessages is how many times the bound must have been handled before.
	riseMessages = 8

	// riseShare is the share of the time between two tries in which all keys may stand
	// still for a larger bound: until the handlers of an ordered session have returned.
	riseShare = 8
)

// Bound bounds the prefetch for the sessions of one Run, one after the other. The zero value
// is no bound.
type Bound struct {
	most    int // 0: no bound
	since   time.Time
	handled int64         // at that time
	after   time.Duration // until a larger one is tried

	suspects bool // it is 1 until all suspects have been handled
	renewals int  // sessions that ended to begin anew while messages came back that may not be settled
}

// of returns what the bound leaves of a prefetch.
func (b *Bound) of(prefetch int) int {
	if b.most == 0 {
		return prefetch
	}
	return min(prefetch, b.most)
}

// set sets the bound, to 1 at least.
func (b *Bound) set(most int, handled int64, now time.Time) {
	b.most, b.since, b.handled, b.after = max(1, most), now, handled, durations.BoundRises
}

// OneAtATime has one message in hand at a time, until none is left that has come before, as where consumers may
// have died of them.
func (b *Bound) OneAtATime(handled int64, now time.Time) {
	b.set(1, handled, now)
	b.suspects = true
}

// Least has one message in hand at a time, and more as the handlers keep up.
func (b *Bound) Least(handled int64, now time.Time) { b.set(1, handled, now) }

// Lift takes the bound away, but not that of suspects: a crash would count against all messages
// in hand.
func (b *Bound) Lift() {
	if !b.suspects {
		b.most = 0
	}
}

// mayRise reports whether the handlers keep up with the bound. age is that of the message
// that waits longest, and limit how old it may become.
func (b *Bound) mayRise(handled int64, age, limit time.Duration, now time.Time) bool {
	return b.most > 0 && now.Sub(b.since) >= b.after && age < limit/4 && handled-b.handled >= int64(riseMessages*b.most)
}

// mayAwait reports whether handlers may still be awaited for a larger bound. With a bound of
// 1 nothing else could be handled meanwhile.
func (b *Bound) mayAwait(d time.Duration) bool { return b.most == 1 || d < b.after/riseShare }

// stay has a larger bound tried later.
func (b *Bound) stay(now time.Time) { b.since, b.after = now, 2*b.after }

// rise doubles the bound.
func (b *Bound) rise(prefetch int, handled int64, now time.Time) {
	b.set(2*b.most, handled, now)
	if b.most >= prefetch {
		b.most = 0
	}
}
