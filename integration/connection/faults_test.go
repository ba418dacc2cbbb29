package connection_test

import (
	"slices"
	"testing"
)

// fault is a row of the table, on each version.
type fault struct {
	name string
	run  func(t *testing.T, n *node, r *row)
}

// ofNetwork are the faults of which the broker's other clients notice nothing,
// those that take the longest first.
var ofNetwork = slices.Concat(
	passwords,
	slowLinks,
	deadAddresses,
	blackHoles,
	lostSockets,
	cutFrames,
	calls,
)

// ofBroker are the faults that hit all clients of a broker.
var ofBroker = []fault{
	{"memory alarm", memoryAlarm},
	{"memory alarm beyond a delivery limit", alarmBeyondTheLimit},
	{"closed by the broker again and again", forcedCloses},
	{"broker frozen", brokerFrozen},
	{"broker killed and started again", brokerKilled},
	{"broker stopped and started again", brokerStopped},
}

func TestFaults(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, version string) {
		t.Parallel()
		n := nodeOf(t, version)
		t.Run("of the network", func(t *testing.T) {
			for _, f := range ofNetwork {
				t.Run(f.name, func(t *testing.T) {
					t.Parallel()
					f.run(t, n, newRow(t, version, f.name))
				})
			}
		})
		for _, f := range ofBroker {
			t.Run(f.name, func(t *testing.T) { f.run(t, n, newRow(t, version, f.name)) })
		}
	})
}
