package account

import (
	"slices"
)

// Lost returns the ids of the messages that are safe and have ended nowhere.
func (a *Account) Lost() (ids []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.counts.Open == 0 {
		return nil
	}
	for n, m := range a.messages {
		if m.history != nil && m.safe && len(m.ends) == 0 {
			ids = append(ids, a.id(n))
		}
	}
	return ids
}

// Cause is where a further end of a message came from.
type Cause string

// The causes. What tells them apart: each call of Publish has a number that
// travels with the message, the producer says when it may have sent it twice, and
// the broker marks what it delivers again.
const (
	DeliveredAgain Cause = "delivered again: the session was lost before the broker had the ack"
	CalledAgain    Cause = "published again by the caller: the first call ended unconfirmed"
	SentAgain      Cause = "sent again by the producer within one call: the first try was cut off"
	MovedAgain     Cause = "moved on twice after a failed attempt: the move was not confirmed, or not the ack of what was moved"
	Either         Cause = "delivered again, or sent again by the producer: there was reason for both"
	Unexplained    Cause = "unexplained"
)

// Causes in the order in which to print them.
var Causes = []Cause{DeliveredAgain, CalledAgain, SentAgain, Either, MovedAgain, Unexplained}

// Doubles are the messages that have ended more than once.
type Doubles struct {
	Messages int
	Ends     int           // beyond the first of each
	By       map[Cause]int // of these ends
	Strange  []string      // ids of messages with one that is Unexplained
}

// Doubled returns which messages have ended more than once, and why.
func (a *Account) Doubled() Doubles {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := Doubles{By: map[Cause]int{}}
	for n, m := range a.messages {
		if m.history == nil || len(m.ends) < 2 {
			continue
		}
		d.Messages++
		strange := false
		for i := 1; i < len(m.ends); i++ {
			why := m.explain(i)
			d.Ends++
			d.By[why]++
			strange = strange || why == Unexplained
		}
		if strange {
			d.Strange = append(d.Strange, a.id(n))
		}
	}
	return d
}

// explain returns where an end after the first came from.
func (h *history) explain(i int) Cause {
	e := h.ends[i]
	fresh := !slices.ContainsFunc(h.ends[:i], func(before End) bool { return before.Call == e.Call })
	// Later on the broker's mark may come from a dead-lettering.
	first := e.Attempt <= 1 && e.Place != Letter
	ranBefore := 0 // how often the attempt before that of e failed
	for _, r := range h.runs {
		if r.Failed && r.Attempt == e.Attempt-1 {
			ranBefore++
		}
	}
	switch {
	case fresh:
		return CalledAgain
	case h.twice && first && e.Redelivered:
		return Either
	case h.twice:
		return SentAgain
	case e.Redelivered && (first || e.Place != Letter && ranBefore < 2):
		return DeliveredAgain
	case !first:
		return MovedAgain
	}
	return Unexplained
}
