package main

import (
	"testing"
	"time"
)

// A short soak, so that the long one can be relied on to run.
func TestAShortSoakLosesNothing(t *testing.T) {
	rep, err := run(t.Context(), settings{duration: 15 * time.Second, rate: 500, faultEvery: 2 * time.Second, seed: 9}, t.Output())
	if err != nil {
		t.Error(err)
	}
	c := rep.counts
	if c.Numbered == 0 || c.Safe != c.Numbered || c.Handled+c.Letters+c.Found < c.Safe {
		t.Errorf("counts are %+v: all that was published is to be confirmed, and to end somewhere", c)
	}
	if c.Letters == 0 || c.Runs <= c.Handled {
		t.Errorf("counts are %+v: some messages are to fail and to be dead-lettered", c)
	}
	recovered := 0
	for _, o := range rep.outages {
		if o.over() {
			recovered++
		}
	}
	if recovered < 3 {
		t.Errorf("of %d faults %d were recovered from, want 3 or more: %v", len(rep.outages), recovered, rep.outages)
	}
	if t.Failed() {
		t.Logf("repeat with -duration 15s -rate 500 -seed 9")
	}
}
