package intake

import (
	"errors"
	"time"

	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/consumer/internal/hand"
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

// OneAtATime has one message in hand at a time, as where a lost session counts for all messages in hand. In order
// that lasts until no message is left that has come before. Else it lasts until handlers keep up.
func (b *Bound) OneAtATime(ordered bool, handled int64, now time.Time) {
	b.set(1, handled, now)
	b.suspects = ordered
}

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

// halve has at most half of a prefetch in hand, or as many messages as workers have if these are more: messages
// have waited too long for them.
func (b *Bound) halve(prefetch, taken int, handled int64, now time.Time) {
	b.set(max(prefetch/2, min(prefetch, taken)), handled, now)
}

// ending is how a session in order has ended.
type ending struct {
	why   error
	alone bool // it had one message in hand at a time
	vain  bool // messages have waited too long although they have gone back for it before, or handlers were told to end
}

// ends sets the bound of the next sessions in order. prefetch is the one without a bound.
//
// If messages have waited too long, none are sent ahead in two cases: the messages that go back have used up
// a part of their delivery limit that way, or handlers had to be told to end. A quorum queue hands
// messages that have come back out before all others, and so in their order only if none comes
// back again before the next session has had them all. So the prefetch stays the same at first,
// and then is so small that none waits. For messages that are held a small prefetch would be no
// help, and other keys would stand still: there is no bound after them.
func (b *Bound) ends(e ending, prefetch int, handled int64, now time.Time) {
	suspects := errors.Is(e.why, hand.ErrSuspects)
	// One message that comes back alone is not worth it: deathsOf takes the renewals from the deaths of every message.
	if hand.Renews(e.why) && (!suspects || !e.alone) {
		b.renewals++
	}
	switch {
	case suspects:
		b.OneAtATime(true, handled, now)
	case errors.Is(e.why, hand.ErrCleared):
		b.suspects, b.most = false, 0
	case errors.Is(e.why, hand.ErrKeptUp):
		b.rise(prefetch, handled, now)
	case errors.Is(e.why, hand.ErrHeld):
		b.Lift()
	case errors.Is(e.why, hand.ErrWaited) && e.vain:
		b.set(1, handled, now)
	}
}
