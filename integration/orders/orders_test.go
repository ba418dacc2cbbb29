package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A short life, so that the long one can be relied on to run.
func TestAShortLifeLosesNothing(t *testing.T) {
	if nodes.Given() {
		t.Log("NOT RUN: AMQP_URL is set: that broker is not ours to break")
		return
	}
	s := settings{queueType: topology.Quorum, orders: 1500, rate: 100, failures: 30, rollouts: 2}
	if err := run(t.Context(), s, t.Output()); err != nil {
		t.Error(err)
	}
}

func TestFaultyFlagsAreRefusedWithAllTheirFaults(t *testing.T) {
	_, err := parseFlags([]string{"-version", "2.8", "-type", "stream", "-orders", "0", "-rate", "0", "-failures", "101", "-rollouts", "-1", "x"})
	if joined, ok := err.(interface{ Unwrap() []error }); !ok || len(joined.Unwrap()) != 7 {
		t.Errorf("parseFlags = %v, want seven faults", err)
	}
	if s, err := parseFlags(nil); err != nil || s.orders != 20_000 || s.queueType != topology.Quorum {
		t.Errorf("the defaults are %+v, %v", s, err)
	}
}

func TestTheShareOfFailuresIsTheWantedOne(t *testing.T) {
	w := newScenario(settings{orders: 5000, failures: 30})
	failed, exhausted := 0, 0
	for range w.orders {
		id := w.account.Next()
		ever := true
		for attempt := 1; attempt <= 5; attempt++ {
			if w.fails(id, attempt) {
				failed++
			} else {
				ever = false
			}
		}
		if ever {
			exhausted++
		}
	}
	if exhausted < 5 || exhausted > 25 { // 0.3 to the power of 5, of 5000, is 12
		t.Errorf("%d orders fail five times, want about 12", exhausted)
	}
	if share := 100 * failed / (5 * w.orders); share < 29 || share > 31 {
		t.Errorf("%d %% of the attempts fail, want 30", share)
	}
}
