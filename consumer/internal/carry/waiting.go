package carry

import (
	"math"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/internal/copies"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/xdeath"
)

// waiting is a message of a wait queue that its carrier has in hand.
type waiting struct {
	raw   amqp.Delivery
	since time.Time // it is in hand
	due   time.Time // its wait is over; the zero time, which is at once, if nothing says when
	at    time.Time // it is brought back; later than due after a failure
	tries int       // that failed

	ahead   time.Duration // how far beyond its wait the due time was that it came with; 0: it was not
	arrival arrival       // set if it was
}

// newWaiting returns a message that has just arrived from a queue where each waits for
// wait, 0 if that is not known. The message is due at most wait after it first came into
// hand, even if its header names a later time.
func newWaiting(raw amqp.Delivery, now time.Time, wait time.Duration, earlier bounds) *waiting {
	history, _ := xdeath.Parse(raw.Headers) // the consumer of the work queue logs what is malformed
	w := &waiting{raw: raw, since: now, due: history.Due}
	latest := now.Add(wait)
	if bound, ok := earlier[arrival{raw.MessageId, w.due}]; ok && bound.Before(latest) {
		latest = bound
	}
	if wait > 0 && w.due.After(latest) {
		w.arrival = arrival{raw.MessageId, w.due}
		w.ahead, w.due = w.due.Sub(latest), latest
	}
	w.at = w.due
	return w
}

// arrival tells one arrival of a message in a wait queue from all others: a message
// that comes there again has another due time. Messages without an id that have the same
// due time came there at the same time, and share their bound.
type arrival struct {
	id  string
	due time.Time
}

// bounds are the times when messages are due whose own due time is too late.
type bounds map[arrival]time.Time

// boundsOf returns the bounds of the messages that were in hand. Without them a message
// that is given back before its wait is over would be bounded anew each time, and never
// come back before its own due time.
func boundsOf(hand []*waiting) bounds {
	b := bounds{}
	for _, w := range hand {
		if w.ahead == 0 {
			continue
		}
		if bound, ok := b[w.arrival]; !ok || w.due.Before(bound) {
			b[w.arrival] = w.due
		}
	}
	return b
}

// publishing returns the copy for the work queue. Its due time is taken off: the
// carrier's clock has decided, and another one, behind by milliseconds, must not
// have it wait once more. A message that has longer to wait keeps it: the time between
// its two dates is the same on every clock.
func (w *waiting) publishing(user string) amqp.Publishing {
	p := copies.Back(w.raw, user)
	if _, ok := p.Headers[header.NotBefore]; !ok {
		delete(p.Headers, header.Due)
	}
	return p
}

// failed puts off the next try, for longer each time.
func (w *waiting) failed(now time.Time) {
	w.at = now.Add(min(durations.FirstCopyPause<<min(w.tries, 10), durations.LongestCopyPause))
	w.tries++
}

// next looks at what is in hand: what is to be published now, in the order of its
// due times, and if that is nothing, when to look again. over says that something
// has been in hand for as long as hold and must be given back.
func next(hand []*waiting, now time.Time, hold time.Duration) (ready []*waiting, again time.Time, over bool) {
	for _, w := range hand {
		if !w.at.After(now) {
			ready = append(ready, w)
			continue
		}
		end := w.since.Add(hold)
		if !end.After(now) {
			over = true
		}
		if w.at.Before(end) {
			end = w.at
		}
		if again.IsZero() || end.Before(again) {
			again = end
		}
	}
	slices.SortStableFunc(ready, func(x, y *waiting) int { return x.due.Compare(y.due) })
	return ready, again, over
}

// fitting returns the prefetch for messages like those in hand: fewer if their
// bodies are too large together, and more if the hand is full of small ones.
func fitting(hand []*waiting, prefetch int) int {
	bytes, fit := 0, 0
	for _, w := range hand {
		if bytes += len(w.raw.Body); bytes <= maxBytes {
			fit++
		}
	}
	switch {
	case bytes > maxBytes && len(hand) > 1:
		return max(fit, 1)
	case len(hand) >= prefetch && bytes < maxBytes/4:
		return min(2*prefetch, maxPrefetch)
	}
	return prefetch
}

// remove returns what is in hand without what is done, and the frames that ack
// the latter: all up to a delivery tag, 0 for none, and single ones.
func remove(hand, done []*waiting) (left []*waiting, upTo uint64, single []uint64) {
	gone := make(map[*waiting]bool, len(done))
	for _, w := range done {
		gone[w] = true
	}
	open := uint64(math.MaxUint64) // the lowest tag that is not settled
	for _, w := range hand {       // in the order of their tags
		if !gone[w] {
			left = append(left, w)
			open = min(open, w.raw.DeliveryTag)
		}
	}
	for _, w := range done {
		if tag := w.raw.DeliveryTag; tag < open {
			upTo = max(upTo, tag)
		} else {
			single = append(single, tag)
		}
	}
	return left, upTo, single
}
