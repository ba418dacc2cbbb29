package topology_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// What a call takes on a broker whose answers take a second, when all else takes no
// time.
func TestRoundTrips(t *testing.T) {
	for _, version := range []string{"3.10", "4.3"} {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, err := rehoptest.NewBroker(rehoptest.Config{Version: version})
				if err != nil {
					t.Fatal(err)
				}
				defer b.Close()
				conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: b.Dial})
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				timed := func(w *topology.WorkQueue) { w.Engine = topology.EngineRepublish }
				w, changed := orders(timed), orders(timed, waiting(time.Minute, 6*time.Minute, 10*time.Minute, 20*time.Minute))
				declare := func(w topology.WorkQueue) func() error {
					return func() error { return topology.Declare(t.Context(), conn, topology.Exchange{Name: "shop"}, w) }
				}
				resolve := func(w topology.WorkQueue) func() error {
					return func() error { return second(topology.Resolve(t.Context(), conn, w)) }
				}
				for _, step := range []struct {
					rule string
					do   func() error
					most float64
				}{
					{"Declare, first", declare(w), 4},
					{"Declare, again", declare(w), 4},
					{"Resolve", resolve(w), 4},
					{"Declare with a changed wait", declare(changed), 8},
					{"Resolve with a changed wait", resolve(changed), 8},
				} {
					b.Slow(time.Second)
					began := time.Now()
					err := step.do()
					took := time.Since(began)
					b.Slow(0)
					if err != nil {
						t.Fatalf("%s: %v", step.rule, err)
					}
					if trips := math.Round(took.Seconds()); trips > step.most || trips < 2 {
						t.Errorf("%s took %v round trips, want at most %v", step.rule, trips, step.most)
					} else {
						t.Logf("%s: %v", step.rule, trips)
					}
				}
			})
		})
	}
}

// The round trips grow with the work queues only as far as a few channels share
// them.
func TestRoundTripsOfManyWorkQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := rehoptest.NewBroker(rehoptest.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: b.Dial})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var specs []topology.Spec
		for i := range 80 {
			specs = append(specs, topology.WorkQueue{Name: "work." + string(rune('a'+i%26)) + string(rune('a'+i/26)), Waits: delay.Default()})
		}
		b.Slow(time.Second)
		defer b.Slow(0)
		began := time.Now()
		plan, err := topology.DeclarePlan(t.Context(), conn, specs...)
		if err != nil {
			t.Fatal(err)
		}
		if trips := time.Since(began).Seconds(); trips > 30 {
			t.Errorf("80 work queues took %v round trips, want at most 30", trips)
		}
		if got := len(b.Queues()); got != len(topology.PlannedQueues(plan)) || got != 80*6 {
			t.Errorf("%d queues were declared, want %d", got, 80*6)
		}
	})
}
