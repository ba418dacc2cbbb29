package main

import (
	"maps"
	"slices"
)

// cause is where a further end of a message came from.
type cause string

// The causes. What tells them apart: each call of Publish has a number that
// travels with the message, the producer says when it may have sent it twice, and
// the broker marks what it delivers again.
const (
	deliveredAgain cause = "delivered again: the session was lost before the broker had the ack"
	calledAgain    cause = "published again by the caller: the first call ended unconfirmed"
	sentAgain      cause = "sent again by the producer within one call: the first try was cut off"
	movedAgain     cause = "moved on twice after a failed attempt: the move was not confirmed, or not the ack of what was moved"
	either         cause = "delivered again, or sent again by the producer: there was reason for both"
	unexplained    cause = "unexplained"
)

var causes = []cause{deliveredAgain, calledAgain, sentAgain, either, movedAgain, unexplained}

// explain returns where e came from, an end after the earlier ones of the same
// message. ranBefore is how often the attempt before that of e was run.
func explain(r record, earlier []end, e end, ranBefore int) cause {
	fresh := !slices.ContainsFunc(earlier, func(before end) bool { return before.send == e.send })
	// Later on the broker's mark may come from a dead-lettering.
	first := e.attempt <= 1 && e.place != deadLetter
	switch {
	case fresh:
		return calledAgain
	case r.repeated && first && e.redelivered:
		return either
	case r.repeated:
		return sentAgain
	case e.redelivered && (first || e.place != deadLetter && ranBefore < 2):
		return deliveredAgain
	case !first:
		return movedAgain
	}
	return unexplained
}

// duplicates counts the further ends of all messages by their cause, and
// returns the messages with one that has none.
func (l *ledger) duplicates() (of map[cause]int, strange []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of = map[cause]int{}
	for _, n := range slices.Sorted(maps.Keys(l.more)) {
		all := append([]end{l.records[n].first}, l.more[n]...)
		for i, e := range all[1:] {
			ranBefore := 0
			for _, f := range l.failures[n] {
				if f.attempt == e.attempt-1 {
					ranBefore++
				}
			}
			why := explain(l.records[n], all[:i+1], e, ranBefore)
			of[why]++
			if why == unexplained {
				strange = append(strange, n)
			}
		}
	}
	return of, strange
}
