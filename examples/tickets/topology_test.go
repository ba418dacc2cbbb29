package main

import (
	"fmt"
	"testing"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
)

// What is chosen for a broker must be something that it can declare.
func TestDeskFitsBroker(t *testing.T) {
	for version, priority := range map[string]uint8{"3.10.8": 0, "3.13.7": 0, "4.0.5": 0, "4.2.0": 0, "4.3.6": 9} {
		v, err := connection.ParseVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		d := newDesk(v, defaultScale)
		if _, err := topology.NewPlan(v, d.specs()...); err != nil {
			t.Errorf("broker %s: %v", version, err)
		}
		if d.vipPriority != priority {
			t.Errorf("broker %s: priority of VIPs is %d, want %d", version, d.vipPriority, priority)
		}
	}
}

func TestScaled(t *testing.T) {
	if got, want := fmt.Sprint(scaled(1)), fmt.Sprint(delay.Default()); got != want {
		t.Errorf("scaled(1) = %s, want %s", got, want)
	}
	for scale := 1; scale <= 600; scale++ {
		if err := scaled(scale).Validate(); err != nil {
			t.Errorf("scaled(%d): %v", scale, err)
		}
	}
}
