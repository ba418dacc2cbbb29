package model

import (
	"slices"
	"time"
)

// window is how many dead letters an at-least-once queue has under way.
const window = 32

// discards are the dead letters of an at-least-once queue: each stays until
// all the queues it goes to have taken it.
type discards struct {
	q        *Queue
	waiting  fifo
	reasons  map[*entry]string
	underway []*discard
}

// discard is a dead letter under way.
type discard struct {
	e      *entry
	reason string
	again  time.Time // zero while queues have yet to answer
	gone   bool
	stuck  bool // goes to its own queue, and 3.10 does not recognise the confirm
}

func (d *discards) add(e *entry, reason string) {
	if d.reasons == nil {
		d.reasons = map[*entry]string{}
	}
	d.reasons[e] = reason
	d.waiting.push(e)
	d.q.b.touch(d.q)
}

func (d *discards) len() int { return d.waiting.len() + len(d.underway) }

func (d *discards) bytes() int {
	n := d.waiting.bytes()
	for _, l := range d.underway {
		n += l.e.size()
	}
	return n
}

func (d *discards) clear() {
	for _, l := range d.underway {
		l.gone = true
	}
	*d = discards{q: d.q}
}

// send sends on what the window allows.
func (d *discards) send() {
	for d.waiting.len() > 0 && len(d.underway) < window {
		e := d.waiting.pop()
		l := &discard{e: e, reason: d.reasons[e]}
		delete(d.reasons, e)
		d.underway = append(d.underway, l)
		d.try(l)
	}
}

func (d *discards) try(l *discard) {
	l.again = time.Time{}
	m, queues := d.q.b.redirect(d.q, l.e, l.reason)
	if len(queues) == 0 {
		d.answered(l, false)
		return
	}
	l.stuck = !d.q.b.atLeast(4, 0) && slices.Contains(queues, d.q)
	d.q.b.put(queues, m, &receipt{worker: d, letter: l}, d)
}

// answered removes a dead letter that has arrived; any other is tried again
// later.
func (d *discards) answered(l *discard, taken bool) {
	if l.gone || l.stuck || d.q.deleted {
		return
	}
	if !taken {
		l.again = d.q.b.now.Add(d.q.b.opt.DeadLetterTimeout)
		d.q.b.touch(d.q)
		return
	}
	l.gone = true
	for i, o := range d.underway {
		if o == l {
			d.underway = append(d.underway[:i], d.underway[i+1:]...)
			break
		}
	}
	d.q.tell()
	d.q.b.touch(d.q)
}

func (d *discards) retry() {
	for _, l := range append([]*discard(nil), d.underway...) {
		if !l.gone && !l.again.IsZero() && !l.again.After(d.q.b.now) {
			d.try(l)
		}
	}
}

func (d *discards) next() (at time.Time) {
	for _, l := range d.underway {
		at = earlier(at, l.again)
	}
	return at
}
