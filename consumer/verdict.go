package consumer

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// move is what is done with a delivery.
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

// verdict is what is done with a delivery, and with which particulars.
type verdict struct {
	move      move
	rung      int          // of moveNack and moveWait, from 1
	notBefore time.Time    // of moveWait, when its wait alone is too short
	unspent   bool         // of moveWait: it was not handled, no attempt is spent
	cause     xdeath.Cause // of moveDeadLetter
}

// decide returns what is done with a delivery whose handler has returned.
// interrupted says that the handler was told to stop before it returned.
func decide(route topology.Route, raw amqp.Delivery, d *Delivery, o Outcome, interrupted bool, now time.Time) verdict {
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
	case o.Action == ActionRetryAfter:
		return waitFor(route, o.After, now)
	}
	if nackIsDue(route, raw, d) {
		return verdict{move: moveNack, rung: d.Attempt}
	}
	return verdict{move: moveWait, rung: d.Attempt}
}

// nackIsDue reports whether a nack without requeue brings the delivery to the
// wait that its attempt is due, with nothing on it that would count wrongly
// when it comes back.
func nackIsDue(route topology.Route, raw amqp.Delivery, d *Delivery) bool {
	keys := []string{raw.RoutingKey}
	if !route.Returned(raw.Exchange) {
		if d.History.Queue == route.Queue || d.History.Failure.Cause != "" {
			return false // another life's headers, which a nack would take along
		}
		keys = append(keys, xdeath.CC(raw.Headers)...)
	}
	return route.NackLandsOn(keys...) == d.Attempt &&
		d.History.Attempt(route.Queue, true) == d.Attempt
}

// waitFor returns the verdict that keeps a message waiting for at least after.
// Without a wait that long it goes to the longest and is sent on from there.
func waitFor(route topology.Route, after time.Duration, now time.Time) verdict {
	if rung, ok := route.Waits.AtLeast(after); ok {
		return verdict{move: moveWait, rung: rung}
	}
	longest := 0
	for i, w := range route.Waits {
		if w > route.Waits[longest] {
			longest = i
		}
	}
	return verdict{move: moveWait, rung: longest + 1, notBefore: now.Add(after)}
}

// tooEarly returns the verdict for a delivery that has not waited long enough
// yet, and false for all others. No attempt is spent on it.
func tooEarly(route topology.Route, raw amqp.Delivery, d *Delivery, now time.Time) (verdict, bool) {
	until := d.History.NotBefore
	if len(route.Waits) == 0 || !until.After(now) || d.History.Queue != route.Queue ||
		(route.Ours() && !route.Returned(raw.Exchange)) {
		return verdict{}, false
	}
	v := waitFor(route, until.Sub(now), now)
	v.notBefore, v.unspent = until, true
	return v, true
}
