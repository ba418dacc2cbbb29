package consumer

import "time"

// How many messages the broker sends ahead, where Config.Prefetch leaves it to
// the consumer: as many as are handled at a time, and in addition what the
// handlers do in bufferedTime, so that quick handlers do not wait for the
// network and slow ones do not hoard what other consumers could handle.
const (
	bufferedTime = 100 * time.Millisecond
	maxPrefetch  = 2000

	// A buffered message that has waited for so long is in the wrong hands: the
	// handlers have become slow.
	staleAfter = 10 * bufferedTime

	// So long no message may have come that was delivered before: after a crash
	// all that was sent ahead counts towards the delivery limit.
	calmAfter = time.Second

	// Or so many messages were handled since, and all that were delivered before
	// are among them: the one that a crash was due to is not in hand.
	calmMessages = 100

	// How long the prefetch stays small after it has been too large.
	cautiousFor = time.Minute
)

// pace is what the prefetch of a session follows.
type pace struct {
	base  int  // Config.Concurrency, or Config.Prefetch
	fixed bool // it stays so

	began    time.Time // of the measuring
	handled  int64     // at that time
	unsteady time.Time // when a message came last that had been delivered before
	since    int64     // handled until then
	cautious time.Time // until when the prefetch stays small
}

// redelivered notes that a message came that had been delivered before.
func (p *pace) redelivered(handled int64, now time.Time) { p.unsteady, p.since = now, handled }

// calm reports whether a crash is unlikely enough to have more sent ahead. unproved
// is how many messages that were delivered before no handler has returned from.
func (p *pace) calm(handled int64, unproved int, now time.Time) bool {
	return now.Sub(p.unsteady) >= calmAfter || unproved == 0 && handled-p.since >= calmMessages
}

// wanted returns the prefetch for now, given how many messages have been handled
// so far, how many that were delivered before no handler has returned from, and how
// long the oldest one has waited for a handler.
func (p *pace) wanted(prefetch int, handled int64, unproved int, waited time.Duration, now time.Time) int {
	elapsed := now.Sub(p.began)
	if p.fixed || elapsed < bufferedTime {
		return prefetch
	}
	rate := float64(handled-p.handled) / elapsed.Seconds()
	p.began, p.handled = now, handled
	if prefetch > p.base && waited >= staleAfter {
		p.cautious = now.Add(cautiousFor)
		return p.base
	}
	if now.Before(p.cautious) || !p.calm(handled, unproved, now) {
		return prefetch
	}
	ahead := min(p.base+int(rate*bufferedTime.Seconds()), max(p.base, maxPrefetch))
	if ahead < 2*prefetch {
		return prefetch // widening costs three round trips, in which nothing is sent
	}
	return ahead
}

// unclearedFor is how long a handler may be at work on a suspect message that is
// alone in hand. Then others come too.
const unclearedFor = time.Minute

// carefulPrefetch is the prefetch of a session that has met suspect messages only:
// one at a time, besides those of which a handler has returned once (cleared) and
// which are held. A crash charges the guilty one then and none of its neighbours,
// and a held one takes up its own room and nobody else's.
func carefulPrefetch(base, cleared int) int { return min(base, cleared+1) }
