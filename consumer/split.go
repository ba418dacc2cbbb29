package consumer

import "math/bits"

// split says with which part of a batch the consumer calls the handler next, if the call with
// all of it fails and does not tell which messages are at fault. It halves the parts that fail, the largest
// first, so that a few messages at fault have few others in their parts at the end.
type split struct {
	next  []span // to be called with, in this order
	calls int    // that are left
}

// span is messages of a batch: from one to before another.
type span struct{ from, to int }

// newSplit returns the split of n messages after the call with all. An exhaustive one has
// calls enough to leave each message alone.
func newSplit(n int, exhaustive bool) split {
	if exhaustive {
		return split{calls: 2*n - 2}
	}
	return split{calls: mostCalls(n) - 1}
}

// mostCalls returns how many calls one message at fault needs among n at most: one with
// all, and two for each time that a part is halved.
func mostCalls(n int) int { return 1 + 2*bits.Len(uint(n-1)) } //nolint:gosec // a batch has a message

// take returns the part for the next call, and false if there is none, or no call is
// left.
func (s *split) take() (p span, ok bool) {
	if len(s.next) == 0 || s.calls == 0 {
		return span{}, false
	}
	p = s.next[0]
	s.next = s.next[1:]
	s.calls--
	return p, true
}

// failed halves a part: a call has failed and has not told which of its messages are at
// fault. A part of one message, all others of whose call have errors of their own, is called
// alone.
func (s *split) failed(p span) {
	if p.to-p.from == 1 {
		s.next = append(s.next, p)
		return
	}
	half := p.from + (p.to-p.from+1)/2
	s.next = append(s.next, span{p.from, half}, span{half, p.to})
}
