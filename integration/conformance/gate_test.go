package conformance

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// testsPerBroker is how many tests use one broker at a time. Nearly all of a test's time is
// waiting. Many more at a time make the brokers late, and the tests no sooner done.
const testsPerBroker = 8

// longTests begin before the others, or the run would end with them alone.
var longTests = []string{
	"TestAcksOfAStopArrive",
	"TestAddedWait",
	"TestAMessageHeldThroughLostConnectionsStopsNobody",
	"TestCrashLoopSparesNeighbours",
	"TestDelayedToNobody",
	"TestExpirationDoesNotShortenWaits",
	"TestHealthWantsPermissionToRead",
	"TestHealthyAre",
	"TestKeysThatComeToAnIdleQueue",
	"TestOldFormPolicy",
	"TestOrderOfLanes",
	"TestOrderOfNativePriorities",
	"TestPermissionsToConsumeLanesAndShards",
	"TestPermissionsToDeclare",
	"TestRemovedWait",
}

// gate lets testsPerBroker tests at a time use a broker. The zero gate is open.
type gate struct {
	mu           sync.Mutex
	inside       int
	long, others []chan struct{} // tests that wait, each closed at its turn
}

// enter waits for the turn of a test, which ends with the test.
func (g *gate) enter(t *testing.T) {
	t.Helper()
	began := time.Now()
	name, _, _ := strings.Cut(t.Name(), "/")
	turn := make(chan struct{})
	g.mu.Lock()
	if slices.Contains(longTests, name) {
		g.long = append(g.long, turn)
	} else {
		g.others = append(g.others, turn)
	}
	g.admit()
	g.mu.Unlock()
	<-turn
	t.Cleanup(g.leave)
	t.Logf("waited %v for its turn", time.Since(began).Round(time.Millisecond))
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.admit()
}

// admit begins the turns for which there is room. g.mu is held.
func (g *gate) admit() {
	for ; g.inside < testsPerBroker && len(g.long)+len(g.others) > 0; g.inside++ {
		from := &g.others
		if len(g.long) > 0 {
			from = &g.long
		}
		close((*from)[0])
		*from = (*from)[1:]
	}
}
