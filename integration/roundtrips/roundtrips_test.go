package roundtrips

import (
	"testing"
)

// rows are what is counted. Each begins on a fresh Conn that Open has returned,
// as a program does that has just been started.
var rows = []struct {
	name   string
	wanted float64 // the promise
	bound  float64 // what is asserted: the promise once it is kept
	run    func(*bench) (measured, error)
}{
	{"Open", 3, 3, (*bench).open},
	{"Declare, first", 10, 10, (*bench).declareFirst},
	{"Declare, again", 6, 6, (*bench).declareAgain},
	{"first Publish of a producer", 4, 4, (*bench).publish},
	{"Run to the first delivery", 6, 6, (*bench).deliver},
	{"Run to the hundredth delivery, Prefetch 100", 8, 8, (*bench).prefetched},
	{"stop of an idle consumer", 2, 2, (*bench).stop},
}

func TestRoundTrips(t *testing.T) {
	b := start(t)
	t.Logf("RabbitMQ %s, one quorum work queue with four waits", b.version)
	t.Logf("%12s %8s %8s", "round trips", "wanted", "asserted")
	for _, row := range rows {
		enough := row.bound + 0.5 // half of one for a machine that has other work
		n, err := b.count(0, enough, row.run)
		if err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		t.Logf("%12.1f %8.0f %8.0f  %s", n, row.wanted, row.bound, row.name)
		if n > enough {
			t.Errorf("%s takes %.1f round trips, want at most %.0f", row.name, n, row.bound)
		}
	}
}
