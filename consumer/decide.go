package consumer

import (
	"cmp"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/consumer/internal/hand"
	"github.com/rehop/rehop/consumer/internal/work"
	"github.com/rehop/rehop/internal/copies"
	"github.com/rehop/rehop/internal/errortype"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/levels"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/internal/transport"
	"github.com/rehop/rehop/xdeath"
)

// terms are the facts that the deliveries of one session share. They are values. The
// decision on a delivery is a pure function of the terms, the delivery, the result of its
// handler, the time, and whether the handler was told to stop.
type terms struct {
	route   route.Facts
	account string // the session has logged in with
	frame   int    // size that the session has agreed on, 0 for no limit
	host    string
	inPlace bool // Config.RetryInPlace
	ordered bool // messages go back with the end of the channel

	version connection.Version // of the broker

	// holds is how long the delivery of this decision can still be held; 0 for a Settler, which
	// holds nothing, and before the handler has the delivery.
	holds time.Duration
}

// decision is how a delivery is settled, and where its message is then.
type decision struct {
	work.Instruction
	settlement Settlement    // once the instruction is carried out
	skew       time.Duration // how long before its due time it is back from its wait
}

// isUnspent reports whether a message waits whose attempt is not spent.
func (d *decision) isUnspent() bool {
	return d.Move == hand.Copy && !d.IsLetter() && d.Retry.At.IsZero()
}

// belongs reports whether the headers of rehop that came with a message through this
// exchange are about this life of the message.
func (t *terms) belongs(exchange string) bool {
	return t.route.Kind != route.Work || t.route.Returned(exchange)
}

// decide returns the decision on a delivery after its handler has returned.
// interrupted says that the handler was told to stop before it returned.
func (t *terms) decide(raw amqp.Delivery, d *Delivery, res result, interrupted bool, now time.Time) decision {
	v := t.decideHandled(raw, d, res, interrupted, now)
	if (v.Move == hand.Copy || v.Move == work.Hold) && t.isScarce(d) {
		v.Instead = t.toTheEnd(raw, d)
	}
	return v
}

// leave returns the instruction that leaves a message to its queue until the broker confirms copies; nil
// if it is not scarce, or no nearer to its delivery limit when it goes back. From 4.3 on a nack does not
// count, and the end of the channel does.
func (t *terms) leave(d *Delivery) *work.Instruction {
	if !t.isScarce(d) || !t.ordered && t.version.AtLeast(4, 3) {
		return nil
	}
	return &requeue.Instruction
}

// isScarce reports whether a message should not go back to its queue, because each return
// may count towards the delivery limit, and it has used up half of that. From 4.0 on a
// quorum queue that others declared has the same limit by default, and a classic queue
// counts nothing.
func (t *terms) isScarce(d *Delivery) bool {
	limit := t.route.DeliveryLimit
	if limit == 0 && (t.route.Existing || t.route.Kind == route.Foreign) && t.version.AtLeast(4, 0) {
		limit = route.DeliveryLimit
	}
	return limit > 0 && d.History.DeliveryCount >= limit/2
}

// toTheEnd returns the instruction that brings a message to the end of its queue by a copy,
// which has no returns behind it.
func (t *terms) toTheEnd(raw amqp.Delivery, d *Delivery) *work.Instruction {
	return &work.Instruction{Move: hand.Copy, To: t.route.End(d.Attempt), Retry: t.unspent(raw, d), Limit: header.Limit(t.frame), Instead: t.leave(d)}
}

// unbegun returns the instruction for a message that no worker has had, and that should not go back. One
// that is not due goes where it has to wait on, or keeps its due time.
func (t *terms) unbegun(raw amqp.Delivery, d *Delivery, now time.Time) *work.Instruction {
	i := t.toTheEnd(raw, d)
	early, ok := t.decideEarly(raw, d, now)
	switch {
	case !ok:
	case early.Move == hand.Copy:
		early.Instead = i.Instead
		return &early.Instruction
	default: // a worker would hold it
		i.Retry.Due = now.Add(early.Keep)
	}
	return i
}

func (t *terms) decideHandled(raw amqp.Delivery, d *Delivery, res result, interrupted bool, now time.Time) decision {
	switch res.outcome.Action {
	case ActionDone, ActionDiscard:
		return done
	}
	if interrupted {
		return requeue
	}
	hasPlace, spent := !t.route.DeadLetter.IsZero(), d.Attempt > len(t.route.Waits)
	switch action := res.outcome.Action; {
	case action == ActionSnooze:
		return t.snooze(res.outcome.After, raw, d, now)
	case action == ActionRetryAfter && !hasPlace && spent && res.outcome.After > 0 && res.outcome.After >= t.holds:
		return t.later(res.outcome.After, raw, d, t.unspent(raw, d), now) // held, it would go back too early
	case action == ActionHoldFor && res.outcome.After > 0:
		if !t.ordered && (res.outcome.After >= t.holds || res.gone) { // held, it would go back too early
			return t.snooze(res.outcome.After, raw, d, now)
		}
		return hold(res.outcome.After)
	case action == ActionHold, action == ActionHoldFor, !hasPlace && (spent || action == ActionDeadLetter):
		return hold(res.outcome.After)
	case action == ActionDeadLetter:
		return t.letter(raw, d, res, cmp.Or(res.outcome.Cause, rehop.CausePermanent), now)
	case spent:
		return t.letter(raw, d, res, rehop.CauseExhausted, now)
	}
	wait := t.route.Waits[d.Attempt-1].For
	switch here := max(res.outcome.After, wait); {
	case t.inPlace && here < t.holds && !res.gone: // else it would go back first, and its count begin anew; or it has no goroutine
		return hold(here)
	case res.outcome.Action == ActionRetryAfter && res.outcome.After > 0:
		return t.waitFor(res.outcome.After, raw, d, t.copyOf(raw, d, now), now)
	case t.nackIsDue(raw, d):
		return decision{Instruction: work.Instruction{Move: hand.Nack},
			settlement: Settlement{Disposition: DispositionWait, WaitNumber: d.Attempt, Wait: wait}}
	}
	return t.waitIn(d.Attempt, t.copyOf(raw, d, now))
}

// decideUnhandled returns the decision on a delivery that its handler does not get,
// and why, and false for all others. tookAway says that the broker took the message
// away from a handler for its age.
func (t *terms) decideUnhandled(raw amqp.Delivery, d *Delivery, tookAway bool, now time.Time) (decision, result, bool) {
	if why, ok := raw.Headers[transport.HeaderUnreadable].(string); ok && !t.route.DeadLetter.IsZero() {
		res := resultOf(&unreadableError{why}, Outcome{Action: ActionDeadLetter})
		v := t.letter(raw, d, res, rehop.CauseUnreadable, now)
		v.Instead = t.leave(d)
		return v, res, true
	}
	if h := &d.History; !h.NotBefore.IsZero() || !h.Due.IsZero() || len(h.Deaths) > 0 {
		if early, ok := t.decideEarly(raw, d, now); ok {
			early.Instead = t.leave(d)
			return early, result{}, true
		}
	}
	if tookAway {
		// Run again it would be taken away again. It is run all the same where there is
		// no other place for it.
		res := resultOf(ErrConsumerTimeout, Outcome{Action: ActionRetry})
		if v := t.decide(raw, d, res, false, now); v.Move != work.Hold {
			return v, res, true
		}
	}
	return decision{}, result{}, false
}

var (
	done    = decision{Instruction: work.Instruction{Move: hand.Ack}, settlement: Settlement{Disposition: DispositionDone}}
	requeue = decision{Instruction: work.Instruction{Move: hand.Requeue}, settlement: Settlement{Disposition: DispositionRequeued}}
)

// hold returns the decision that keeps a message for a while and has it handled then.
func hold(least time.Duration) decision {
	return decision{Instruction: work.Instruction{Move: work.Hold, Keep: least}, settlement: requeue.settlement}
}

// snooze returns the decision that puts a message off whose handler asked for it.
func (t *terms) snooze(after time.Duration, raw amqp.Delivery, d *Delivery, now time.Time) decision {
	c := t.unspent(raw, d)
	c.Snoozed = now
	v := t.later(after, raw, d, c, now)
	v.settlement.Snoozed = true
	return v
}

// later returns the decision that puts a message off for the first time.
func (t *terms) later(after time.Duration, raw amqp.Delivery, d *Delivery, c copies.RetryCopy, now time.Time) decision {
	if len(t.route.Waits) == 0 && t.route.Furthest() == 0 {
		c.NotBefore = now.Add(min(after, maxDate)) // it goes round in its own queue until then
	}
	return t.putOff(after, raw, d, c, now)
}

// letter returns the decision that dead-letters a message.
func (t *terms) letter(raw amqp.Delivery, d *Delivery, res result, cause rehop.Cause, now time.Time) decision {
	return decision{settlement: Settlement{Disposition: DispositionDeadLetter, Cause: cause}, Instruction: work.Instruction{
		Move: hand.Copy, To: t.route.DeadLetter, Limit: header.Limit(t.frame),
		Letter: copies.Letter{
			Queue: t.route.Queue, Returned: t.belongs(raw.Exchange), Attempts: d.Attempt, FirstFailed: d.firstFailed, User: t.account,
			Failure: xdeath.Failure{
				Cause: cause, Error: res.text, ErrorType: errortype.Of(res.err), Stack: res.stack(), At: now, Host: t.host,
			},
		},
	}}
}

// copyOf returns what a copy says of a message whose attempt is spent.
func (t *terms) copyOf(raw amqp.Delivery, d *Delivery, now time.Time) copies.RetryCopy {
	return copies.RetryCopy{
		Queue: t.route.Queue, Returned: t.belongs(raw.Exchange), Attempts: d.Attempt, At: now, FirstFailed: d.firstFailed, User: t.account,
		Letter: t.route.Kind == route.Letters && d.Attempt == 1, // else a work queue of this name has copied it for its next attempt
	}
}

// unspent returns what a copy says of a message whose attempt is not.
func (t *terms) unspent(raw amqp.Delivery, d *Delivery) copies.RetryCopy {
	c := t.copyOf(raw, d, time.Time{}) // nothing has failed
	c.Attempts--
	return c
}

// waitIn returns the decision that sends a message to a wait of the schedule.
func (t *terms) waitIn(number int, c copies.RetryCopy) decision {
	wait := t.route.Waits[number-1]
	v := t.waitAt(route.Exact{To: wait.At, Takes: wait.For}, c)
	v.settlement.WaitNumber = number
	if t.route.Kind != route.Work {
		v.Wait = 0 // nobody knows how long their queue keeps it
	}
	if t.route.Unseen && t.route.Engine != route.Carry {
		v.Expire = wait.For + durations.UnseenGrace // the broker brings it back if nobody carries it
	}
	return v
}

func (t *terms) waitAt(e route.Exact, c copies.RetryCopy) decision {
	return decision{settlement: Settlement{Disposition: DispositionWait, Wait: e.Takes}, Instruction: work.Instruction{
		Move: hand.Copy, To: e.To, Wait: e.Takes, Retry: c, Limit: header.Limit(t.frame)}}
}

// maxDate is how far ahead a message may be put off. A date beyond it is a
// mistake, and no reason to send a message round and round.
const maxDate = 366 * 24 * time.Hour

// waitFor returns the decision that keeps a message waiting for at least after:
// through exact delays, if there are any and no wait of the schedule is as short.
// Without a wait that long it goes to the longest and is sent on from there.
func (t *terms) waitFor(after time.Duration, raw amqp.Delivery, d *Delivery, c copies.RetryCopy, now time.Time) decision {
	after = min(after, maxDate)
	number, ok := t.route.AtLeast(after)
	if e, found := t.route.Exactly(after, raw.Priority); found && (!ok || e.Takes < t.route.Waits[number-1].For) {
		return t.waitAt(e, c)
	}
	if ok {
		return t.waitIn(number, c)
	}
	if c.NotBefore.IsZero() {
		c.NotBefore = now.Add(after)
	}
	if furthest := t.route.Furthest(); furthest > 0 {
		e, _ := t.route.Exactly(furthest, raw.Priority)
		return t.waitAt(e, c)
	}
	longest := 0
	for i, w := range t.route.Waits {
		if w.For > t.route.Waits[longest].For {
			longest = i
		}
	}
	return t.waitIn(longest+1, c)
}

// nackIsDue reports whether a nack without requeue brings the delivery to the
// wait that its attempt is due. Nothing on it may count wrongly when it comes back,
// and its headers must leave room for what the broker adds: headers that are too
// large end the connection of every consumer.
func (t *terms) nackIsDue(raw amqp.Delivery, d *Delivery) bool {
	if t.route.Engine != route.Nack ||
		header.Need(amqp.Publishing{Headers: raw.Headers})+hopBytes > header.Limit(t.frame) {
		return false
	}
	keys := []string{raw.RoutingKey}
	if !t.route.Returned(raw.Exchange) {
		if d.History.Queue == t.route.Queue || d.History.Failure.Cause != "" {
			return false // another life's headers, which a nack would take along
		}
		keys = append(keys, header.Texts(raw.Headers[header.CC])...)
	}
	return t.route.NackLandsOn(keys...) == d.Attempt &&
		d.History.Attempt(t.route.Queue, true) == d.Attempt
}

// hopBytes is more than what a nack and a wait add to the headers where every
// name is of the greatest length: two entries of x-death, and the first and last
// deaths. CC apart, which header.Need counts.
const hopBytes = 4 << 10

// decideEarly returns the decision on a delivery that has not waited long enough yet,
// and false for all others. No attempt is spent on it. It comes too early when its
// RetryAfter is longer than its wait, or its wait was cut short: by a policy for the
// wait queue, by hand, or because its wait queue was missing. A consumer of the same
// queue with another schedule may have put it off, so it comes too early also where
// there is no wait.
func (t *terms) decideEarly(raw amqp.Delivery, d *Delivery, now time.Time) (decision, bool) {
	c := t.unspent(raw, d)
	if lacks := t.lacksAfterNack(raw, d); lacks > 0 {
		c.Due = now.Add(lacks)
		return t.putOff(lacks, raw, d, c, now), true
	}
	if !t.isDated(raw, &d.History) {
		return decision{}, false
	}
	early := func(t time.Time) bool { return t.After(now) && t.Sub(now) <= maxDate }
	whole, known := t.whole(raw, &d.History)
	if h := &d.History; !h.NotBefore.IsZero() {
		if !early(h.NotBefore) {
			return decision{}, false
		}
		c.NotBefore = h.NotBefore // on the same clock: else it would drift each time that the message comes to another
		lacks, ahead := h.NotBefore.Sub(now), t.aheadBy(h, whole, known, now)
		if ahead > 0 {
			lacks = h.NotBefore.Sub(h.Due)
		}
		if lacks <= 0 {
			return decision{}, false
		}
		v := t.putOff(lacks, raw, d, c, now)
		v.Ahead, v.skew = ahead, ahead
		return v, true
	}
	skew := durations.MaxSkew
	if t.route.Engine == route.Carry {
		skew = 0 // what carriers bring back has no due time any more
	}
	if !early(d.History.Due.Add(-skew)) {
		return decision{}, false
	}
	skew = d.History.Due.Sub(now)
	lacks := skew
	if whole > 0 { // another clock may have written the date: the message lacks no more than all of its wait
		lacks = min(lacks, whole)
	}
	c.Due = now.Add(lacks)
	v := t.waitOn(lacks, raw, d, c, now)
	v.skew = skew
	return v, true
}

// isDated reports whether the dates in the headers count for this queue. In a dead-letter
// queue the dates of a letter that a consumer has put off there count, although its headers
// name the queue where the message failed. Two kinds of messages in a dead-letter queue bring
// dates that are over: the copy for a next attempt, which the broker has dead-lettered, and
// the message from a producer's delay, which has no NotBefore.
func (t *terms) isDated(raw amqp.Delivery, h *xdeath.History) bool {
	letter := header.IsLetter(raw.Headers)
	if t.route.Kind == route.Letters && !header.IsCopy(raw.Headers) {
		return letter || !h.NotBefore.IsZero()
	}
	return !letter && h.Queue == t.route.Queue && t.belongs(raw.Exchange)
}

// aheadBy returns how far the clock is ahead that the dates of a message are taken from, and
// 0 if that is not certain. By the clock of this machine the message is back from its wait
// before it was sent there. Where whole is a bound and not known, the clock is ahead by as much
// as that wait cannot explain.
func (t *terms) aheadBy(h *xdeath.History, whole time.Duration, known bool, now time.Time) time.Duration {
	if !known && len(t.route.Waits) == 0 { // it goes round in its queue
		whole, known = 0, true
	}
	const unit = time.Millisecond                   // of dates in headers, rounded up
	unknown := whole == 0 && len(t.route.Waits) > 0 // no routing key says where it has been
	ahead := h.Due.Sub(now)
	switch {
	case h.Due.IsZero(), unknown, ahead <= whole+unit:
		return 0
	case known:
		return ahead
	}
	return ahead - whole
}

// waitOn returns the decision on a message that lacks a part of its wait. A wait of the
// schedule that is more than twice as long would be too much: then the message goes to
// the longest one that is no longer than what it lacks, and without any it is held.
func (t *terms) waitOn(lacks time.Duration, raw amqp.Delivery, d *Delivery, c copies.RetryCopy, now time.Time) decision {
	number, ok := t.route.AtLeast(lacks)
	_, exact := t.route.Exactly(lacks, raw.Priority)
	if !ok || exact || t.route.Waits[number-1].For <= 2*lacks {
		return t.putOff(lacks, raw, d, c, now)
	}
	if shorter, ok := t.route.AtMost(lacks); ok {
		return t.waitIn(shorter, c)
	}
	if lacks > durations.TurnOver {
		return t.putOff(lacks, raw, d, c, now)
	}
	return hold(lacks)
}

// whole returns how long the wait is that a message is back from, or the exact delay; 0
// if that is not known. Of a wait that the schedule has no more the message itself says how
// long it was at most: it went there after its first failure, and after it was first put off.
func (t *terms) whole(raw amqp.Delivery, h *xdeath.History) (whole time.Duration, known bool) {
	switch number := t.route.WaitNumber(raw.RoutingKey); {
	case number == 0:
		return levels.Taken(raw.Exchange, raw.RoutingKey), true
	case number <= len(t.route.Waits):
		return t.route.Waits[number-1].For, true
	}
	for _, before := range []time.Time{h.FirstFailed, h.FirstSnoozed} {
		if most := h.Due.Sub(before); !before.IsZero() && most > 0 && (whole == 0 || most < whole) {
			whole = most
		}
	}
	return whole, whole == 0
}

// lacksAfterNack returns the part of its wait that a nacked message still lacks. If the
// wait queue of an attempt is missing, the broker moves the message to the first wait
// queue. The routing key names the wait that the message has left. The attempt number
// gives the wait that was due. The message was nacked and not copied, because a copy has
// no deaths. If the first wait for nacks belongs to another schedule, the past wait is
// not known and counts as none.
func (t *terms) lacksAfterNack(raw amqp.Delivery, d *Delivery) time.Duration {
	number, due := t.route.WaitNumber(raw.RoutingKey), d.Attempt-1
	if !t.route.Returned(raw.Exchange) || number == 0 || number >= due || due > len(t.route.Waits) || d.History.Count(t.route.Queue, xdeath.ReasonRejected) == 0 {
		return 0
	}
	if whole := t.route.Waits[due-1].For; !t.route.Waits[number-1].Nack {
		return whole
	}
	return t.route.Waits[due-1].For - t.route.Waits[number-1].For
}

// putOff returns the decision that keeps a message waiting which is not due yet.
// Without any place to wait in, it is held for a while and goes to the end of its
// own queue: a copy, because each return of the message itself may count towards
// the delivery limit.
func (t *terms) putOff(lacks time.Duration, raw amqp.Delivery, d *Delivery, c copies.RetryCopy, now time.Time) decision {
	if len(t.route.Waits) > 0 || t.route.Furthest() > 0 {
		return t.waitFor(lacks, raw, d, c, now)
	}
	v := t.waitAt(route.Exact{To: t.route.End(d.Attempt)}, c)
	v.Keep, v.settlement = min(lacks, durations.TurnOver), requeue.settlement
	return v
}
