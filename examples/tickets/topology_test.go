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
	for version, queues := range map[string]int{"3.10.8": 2, "3.13.7": 2, "4.0.5": 2, "4.2.0": 2, "4.3.6": 1} {
		v, err := connection.ParseVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		d := newSetup(v, defaultScale)
		if _, err := topology.NewPlan(v, d.specs()...); err != nil {
			t.Errorf("broker %s: %v", version, err)
		}
		if len(d.queues) != queues || d.letters.Name != "tickets.sms.dlq" {
			t.Errorf("broker %s: %d work queues, want %d; letters are in %q", version, len(d.queues), queues, d.letters.Name)
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
