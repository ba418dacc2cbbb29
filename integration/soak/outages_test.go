package main

import (
	"testing"
	"time"
)

var noon = time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time {
	return noon.Add(time.Duration(seconds * float64(time.Second)))
}

func TestAConfirmCountsOnlyOfACallThatBeganAfterTheFault(t *testing.T) {
	o := newOutages(noon)
	o.begin(fault{kind: latency, lasts: time.Second}, at(1))
	o.confirmed(9, at(1.5)) // while it stands
	o.lift(10, at(2))
	o.confirmed(9, at(2.1)) // was on its way before
	o.confirmed(10, at(2.5))
	o.confirmed(11, at(2.6))
	if got := o.since(0)[0].confirmed; got != 500*time.Millisecond {
		t.Errorf("confirmed after %v, want 500ms", got)
	}
}

// What a client has received before a cut is handled after it.
func TestAfterAFaultThatDoesNotStandAnotherSessionCounts(t *testing.T) {
	o := newOutages(noon)
	o.handled(1, at(0.5))
	o.begin(fault{kind: cut}, at(1))
	o.lift(10, at(1))
	o.handled(1, at(1.1))
	o.handled(0, at(1.2)) // of a session that has ended
	o.handled(2, at(2))
	if got := o.since(0)[0].handled; got != time.Second {
		t.Errorf("handled after %v, want 1s", got)
	}
}

func TestAfterAFaultThatStoodTheSameSessionMayGoOn(t *testing.T) {
	o := newOutages(noon)
	o.handled(1, at(0.5))
	o.begin(fault{kind: latency, lasts: time.Second}, at(1))
	o.handled(1, at(1.5)) // while it stands
	o.lift(10, at(2))
	o.handled(1, at(2.25))
	if got := o.since(0)[0].handled; got != 250*time.Millisecond {
		t.Errorf("handled after %v, want 250ms", got)
	}
}

func TestAFaultThatComesBeforeTheRecoveryOvertakesIt(t *testing.T) {
	o := newOutages(noon)
	o.begin(fault{kind: cut}, at(1))
	o.lift(10, at(1))
	o.confirmed(10, at(2))
	o.begin(fault{kind: reset}, at(3))
	o.lift(20, at(4))
	o.confirmed(20, at(5))
	o.handled(1, at(5))
	o.begin(fault{kind: cut}, at(6))
	all := o.since(0)
	if !all[0].overtaken || all[1].overtaken {
		t.Errorf("overtaken: %t and %t, want the first", all[0].overtaken, all[1].overtaken)
	}
	if all[0].confirmed != time.Second || all[0].handled != 4*time.Second || all[1].handled != time.Second {
		t.Errorf("outages are %+v: the first is over after 1 s and 4 s, the second after 1 s", all)
	}
}

func TestCalmIsBetweenARecoveryAndTheNextFault(t *testing.T) {
	o := newOutages(noon)
	o.confirmed(1, at(1)) // in calm
	o.begin(fault{kind: throttle}, at(2))
	o.confirmed(2, at(3))
	o.lift(3, at(4))
	o.confirmed(3, at(5))
	o.handled(1, at(6))
	o.confirmed(4, at(7)) // in calm
	o.end(at(8))
	o.confirmed(5, at(9))
	perSecond, calm := o.inCalmPerSecond()
	if calm != 4*time.Second || perSecond != 0.5 {
		t.Errorf("%v messages a second in %v of calm, want 0.5 in 4s", perSecond, calm)
	}
}

func TestNoCalmBeginsAfterTheEnd(t *testing.T) {
	o := newOutages(noon)
	o.begin(fault{kind: cut}, at(1))
	o.end(at(2))
	o.lift(1, at(3))
	o.confirmed(1, at(4))
	o.handled(1, at(4))
	o.confirmed(2, at(5))
	if perSecond, calm := o.inCalmPerSecond(); calm != time.Second || perSecond != 0 {
		t.Errorf("%v messages a second in %v of calm, want none in the first second", perSecond, calm)
	}
}
