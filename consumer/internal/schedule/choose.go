// Package schedule decides which message a free worker handles next, and has the
// goroutines of the workers.
package schedule

import "time"

// state is what a lane has when a worker is free.
type state uint8

const (
	nothing  state = iota // no message, or a limit keeps it
	expected              // no message yet, and likely one in its queue
	ready                 // a message
)

// offer is a lane at the moment when a worker is free.
type offer struct {
	state state

	// until is when the state changes by itself: when a rate lets the next message
	// go, or when none is expected any more. Zero: not by time alone.
	until time.Time

	// start is where the next message of the lane begins on the scale that all
	// lanes share; each message is 1/share long.
	start float64
}

// choose returns the lane whose message is handled next, or -1 if there is none
// now, and then when to look again, the zero time if time alone changes nothing. The
// lanes are given highest first.
//
// Strictly, that is the highest lane with a message; by shares, the one whose
// message starts first, of equals the highest. A message that is expected is waited
// for as if it were there, because one handler does not take long to be idle, and a
// lower message may keep it for long.
func choose(strict bool, lanes []offer) (lane int, again time.Time) {
	best := -1
	for i, o := range lanes {
		switch {
		case o.state == nothing:
			again = earlier(again, o.until)
		case best < 0, !strict && o.start < lanes[best].start:
			best = i
		}
	}
	if best < 0 {
		return -1, again
	}
	if lanes[best].state == expected {
		return -1, earlier(again, lanes[best].until)
	}
	return best, time.Time{}
}

// earlier returns the earlier of two times that are not zero.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
