package consumer

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// move is how a delivery is settled.
type move uint8

const (
	_              move = iota // the zero value settles nothing
	moveAck                    // done with it
	moveNack                   // the broker brings it to the wait that is due
	moveWait                   // a confirmed copy to a wait, then ack
	moveDeadLetter             // a confirmed copy to the dead-letter queue, then ack
	moveHold                   // keep it and handle it again
	moveRequeue                // give it back to the queue
)

// verdict is a move with its parameters.
type verdict struct {
	move      move
	rung      int           // of moveNack and moveWait, from 1; 0: exact
	exact     exact         // of moveWait without a rung
	notBefore time.Time     // of moveWait, when its wait alone is too short
	due       time.Time     // of moveWait, when a wait was cut short
	unspent   bool          // of moveWait: it was not handled, no attempt is spent
	holdFor   time.Duration // of moveWait: so long before it is moved
	cause     xdeath.Cause  // of moveDeadLetter
}

// decide returns the verdict on a delivery after its handler has returned.
// interrupted says that the handler was told to stop before it returned, frame is
// the largest frame of its session.
func decide(route way, frame int, raw amqp.Delivery, d *Delivery, o Outcome, interrupted bool, now time.Time) verdict {
	switch o.Action {
	case ActionDone, ActionDiscard:
		return verdict{move: moveAck}
	}
	if interrupted {
		return verdict{move: moveRequeue}
	}
	lastPlace := !route.DeadLetter.IsZero()
	switch {
	case o.Action == ActionRequeue:
		return verdict{move: moveHold}
	case o.Action == ActionDeadLetter && lastPlace:
		return verdict{move: moveDeadLetter, cause: xdeath.CausePermanent}
	case o.Action == ActionDeadLetter:
		return verdict{move: moveHold}
	case d.Attempt > len(route.Waits) && lastPlace:
		return verdict{move: moveDeadLetter, cause: xdeath.CauseExhausted}
	case d.Attempt > len(route.Waits):
		return verdict{move: moveHold}
	case o.Action == ActionRetryAfter && o.After > 0:
		return waitFor(route, o.After, raw.Priority, now)
	}
	if nackIsDue(route, frame, raw, d) {
		return verdict{move: moveNack, rung: d.Attempt}
	}
	return verdict{move: moveWait, rung: d.Attempt}
}

// nackIsDue reports whether a nack without requeue brings the delivery to the
// wait that its attempt is due. Nothing on it may count wrongly when it comes back,
// and its headers must leave room for what the broker adds: headers that are too
// large end the connection of every consumer.
func nackIsDue(route way, frame int, raw amqp.Delivery, d *Delivery) bool {
	if route.Engine() != topology.Ladder ||
		xdeath.HeaderNeed(amqp.Publishing{Headers: raw.Headers})+hopBytes > xdeath.HeaderLimit(frame) {
		return false
	}
	keys := []string{raw.RoutingKey}
	if !route.facts.Returned(raw.Exchange) {
		if d.History.Queue == route.Queue || d.History.Failure.Cause != "" {
			return false // another life's headers, which a nack would take along
		}
		keys = append(keys, xdeath.CC(raw.Headers)...)
	}
	return route.facts.NackLandsOn(keys...) == d.Attempt &&
		d.History.Attempt(route.Queue, true) == d.Attempt
}

// hopBytes is more than what a nack and a wait add to the headers where every
// name is of the greatest length: two entries of x-death, and the first and last
// deaths. CC apart, which HeaderNeed counts.
const hopBytes = 4 << 10

// waitFor returns the verdict that keeps a message waiting for at least after:
// through exact delays, if there are any and no wait of the schedule is as short.
// Without a wait that long it goes to the longest and is sent on from there.
func waitFor(route way, after time.Duration, priority uint8, now time.Time) verdict {
	after = min(after, maxDate)
	rung, ok := route.Waits.AtLeast(after)
	if e, found := route.exactly(after, priority); found && (!ok || e.takes < route.Waits[rung-1]) {
		return verdict{move: moveWait, exact: e}
	}
	if ok {
		return verdict{move: moveWait, rung: rung}
	}
	if furthest := route.furthest(); furthest > 0 {
		e, _ := route.exactly(furthest, priority)
		return verdict{move: moveWait, exact: e, notBefore: now.Add(after)}
	}
	longest := 0
	for i, w := range route.Waits {
		if w > route.Waits[longest] {
			longest = i
		}
	}
	return verdict{move: moveWait, rung: longest + 1, notBefore: now.Add(after)}
}

// maxDate is how far ahead a message may be put off. A date beyond it is a
// mistake, and no reason to send a message round and round.
const maxDate = 366 * 24 * time.Hour

// tooEarly returns the verdict for a delivery that has not waited long enough
// yet, and false for all others. No attempt is spent on it. It comes too early
// when its RetryAfter is longer than its wait, or its wait was cut short: by a
// policy for the wait queue, by hand, or because its wait queue was missing. A consumer of the same queue with another
// schedule may have put it off, so it comes too early also where there is no wait.
func tooEarly(route way, raw amqp.Delivery, d *Delivery, now time.Time) (verdict, bool) {
	if left := strayed(route, raw, d); left > 0 {
		v := putOff(route, left, raw.Priority, d.Attempt, now)
		v.due, v.unspent = now.Add(left), true
		return v, true
	}
	if d.History.Queue != route.Queue || route.facts.Ours && !route.facts.Returned(raw.Exchange) {
		return verdict{}, false
	}
	early := func(t time.Time) bool { return t.After(now) && t.Sub(now) <= maxDate }
	if until := d.History.NotBefore; early(until) {
		v := putOff(route, until.Sub(now), raw.Priority, d.Attempt, now)
		v.notBefore, v.unspent = until, true
		return v, true
	}
	skew := maxSkew
	if route.Engine() == topology.Carry {
		skew = 0 // what carriers bring back has no due time any more
	}
	if until := d.History.Due; early(until.Add(-skew)) {
		v := putOff(route, until.Sub(now), raw.Priority, d.Attempt, now)
		v.due, v.unspent = until, true
		return v, true
	}
	return verdict{}, false
}

// strayed returns how much longer than it did a message should have waited that was
// nacked while its wait queue was missing: the broker then brings it to the first one.
// Such a message was nacked last, because a copy has no deaths of before, and a
// nack leads to the wait of its attempt.
func strayed(route way, raw amqp.Delivery, d *Delivery) time.Duration {
	rung, due := route.facts.Rung(raw.RoutingKey), d.Attempt-1
	if !route.facts.Returned(raw.Exchange) || rung == 0 || rung >= due || due > len(route.Waits) || d.History.Count(route.Queue, xdeath.Rejected) == 0 {
		return 0
	}
	return route.Waits[due-1] - route.Waits[rung-1]
}

// putOff returns the verdict that keeps a message waiting which is not due yet.
// Without any place to wait in, it is held for a while and goes to the end of its
// own queue: a copy, because each return of the message itself may count towards
// the delivery limit.
func putOff(route way, left time.Duration, priority uint8, attempt int, now time.Time) verdict {
	if len(route.Waits) > 0 || route.furthest() > 0 {
		return waitFor(route, left, priority, now)
	}
	return verdict{move: moveWait, exact: exact{to: route.end(attempt)}, holdFor: min(left, turnOver)}
}

// turnOver is how long a message that is not due yet keeps the others of its
// queue from a slot.
const turnOver = 10 * time.Second

// maxSkew is how far the clocks of two consumers may be apart before a message
// that one of them sent to a wait with a TTL seems early to the other: it would
// wait once more.
const maxSkew = time.Second

// suspicious reports whether consumers have died so often while they had this
// message that half its delivery limit, or more, is used up. Until a session has
// met a message that is not, the broker hands out one at a time: a crash then counts
// against the guilty message alone and not against those that were fetched with it.
//
// No version tells a crash from a lost connection: both count. A message that is
// held through many reconnects is suspect too; it is cleared once its handler has
// returned.
func suspicious(queue string, half int, raw amqp.Delivery, v connection.Version) bool {
	if len(raw.Headers) == 0 {
		return false // most messages, and all that come for the first time
	}
	history, _ := xdeath.Parse(raw.Headers) // what is malformed is logged when it is handled
	crashes := history.DeliveryCount
	if !v.AtLeast(4, 3) {
		crashes -= history.Count(queue, xdeath.Rejected) // counted too, on 4.0 to 4.2
	}
	return crashes >= half
}
