package main

import (
	"sync"
	"time"
)

// outage is one fault and how the service came back from it: what counts are
// messages whose first Publish began after the fault was lifted, so that nothing
// that was on its way before can look like a recovery.
type outage struct {
	fault         fault
	begun, lifted time.Time
	from          int           // the first of those messages
	confirmed     time.Duration // from lifted to the first that is confirmed; 0: none yet
	handled       time.Duration // likewise
	overtaken     bool          // by the next fault, before that
}

func (o outage) over() bool { return o.confirmed > 0 && o.handled > 0 }

// outages are those of a run, in the order of time. In between it is calm: no
// fault stands, and the service has come back from the last one. It is safe for
// concurrent use.
type outages struct {
	mu        sync.Mutex
	all       []outage
	calmSince time.Time // zero: it is not
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
	o.all = append(o.all, outage{fault: f, begun: now})
	o.endCalm(now)
}

// lift notes that the last fault is over; the next message will be from.
func (o *outages) lift(from int, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	last := &o.all[len(o.all)-1]
	last.lifted, last.from = now, from
}

func (o *outages) confirmed(n int, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.calmSince.IsZero() {
		o.inCalm++
	}
	o.recover(n, now, func(of *outage) *time.Duration { return &of.confirmed })
}

func (o *outages) handled(n int, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.recover(n, now, func(of *outage) *time.Duration { return &of.handled })
}

// recover needs o.mu held.
func (o *outages) recover(n int, now time.Time, which func(*outage) *time.Duration) {
	for i := len(o.all) - 1; i >= 0; i-- {
		one := &o.all[i]
		if one.lifted.IsZero() || n < one.from {
			continue
		}
		if *which(one) > 0 {
			return // and so have all before it
		}
		*which(one) = max(now.Sub(one.lifted), 1)
		if i == len(o.all)-1 && one.over() && !o.ended {
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
