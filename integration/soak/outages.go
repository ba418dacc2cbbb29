package main

import (
	"sync"
	"time"
)

// outage is one fault and how the service came back from it.
type outage struct {
	fault         fault
	begun, lifted time.Time
	confirmed     time.Duration // from lifted to the first message that is confirmed; 0: none yet
	handled       time.Duration // likewise
	overtaken     bool          // by the next fault, before that

	// What was on its way before must not look like a recovery: a call of
	// Publish counts that began after the fault was lifted, and after a fault that does
	// not stand, a run of the handler in another session.
	message int // the first that was published after it was lifted
	session int // the last before it began
}

func (o outage) over() bool { return o.confirmed > 0 && o.handled > 0 }

// outages are those of a run, in the order of time. In between it is calm: no
// fault stands, and the service has come back from the last one. It is safe for
// concurrent use.
type outages struct {
	mu        sync.Mutex
	all       []outage
	open      int // all before this index are over
	session   int // of the consumer, the latest
	calmSince time.Time
	calm      time.Duration
	inCalm    int  // messages confirmed in calm
	ended     bool // no message comes due any more
}

func newOutages(now time.Time) *outages { return &outages{calmSince: now} }

func (o *outages) begin(f fault, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if last := len(o.all) - 1; last >= 0 && !o.all[last].over() {
		o.all[last].overtaken = true
	}
	o.all = append(o.all, outage{fault: f, begun: now, session: o.session})
	o.endCalm(now)
}

// lift notes that the last fault is over; the next message to be published is known.
func (o *outages) lift(message int, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	last := &o.all[len(o.all)-1]
	last.lifted, last.message = now, message
}

func (o *outages) confirmed(message int, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.calmSince.IsZero() {
		o.inCalm++
	}
	for i := range o.all[o.open:] {
		one := &o.all[o.open+i]
		if one.confirmed == 0 && !one.lifted.IsZero() && message >= one.message {
			one.confirmed = max(now.Sub(one.lifted), 1)
		}
	}
	o.advance(now)
}

// handled notes that a message is handled in a session, counted from 1.
func (o *outages) handled(session int, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.session = max(o.session, session)
	for i := range o.all[o.open:] {
		one := &o.all[o.open+i]
		if one.handled == 0 && !one.lifted.IsZero() && (one.fault.lasts > 0 || session > one.session) {
			one.handled = max(now.Sub(one.lifted), 1)
		}
	}
	o.advance(now)
}

// advance needs o.mu held.
func (o *outages) advance(now time.Time) {
	for o.open < len(o.all) && o.all[o.open].over() {
		o.open++
		if o.open == len(o.all) && !o.ended {
			o.calmSince = now
		}
	}
}

// end closes the account of calm time.
func (o *outages) end(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.endCalm(now)
	o.ended = true
}

// endCalm needs o.mu held.
func (o *outages) endCalm(now time.Time) {
	if !o.calmSince.IsZero() {
		o.calm += now.Sub(o.calmSince)
		o.calmSince = time.Time{}
	}
}

// since returns the outages from an index on.
func (o *outages) since(i int) []outage {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]outage(nil), o.all[i:]...)
}

// inCalmPerSecond returns how many messages were confirmed a second while it was
// calm, and how long that was.
func (o *outages) inCalmPerSecond() (perSecond float64, calm time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.calm == 0 {
		return 0, 0
	}
	return float64(o.inCalm) / o.calm.Seconds(), o.calm
}
