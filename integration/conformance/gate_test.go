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

// longTests begin before the others, the longest first, or the run would end with them alone.
var longTests = []string{
	"TestPermissionsToConsumeLanes",
	"TestPermissionsToConsumeShards",
	"TestPermissionsToConsume",
	"TestADeclarationThatRepairsMakesNoLettersByRepublish",
	"TestPermissionsToDeclare",
	"TestPermissionsOfAService",
	"TestPermissionsToRetryAfterExactDelays",
	"TestOldFormPolicy",
	"TestKeysThatComeToAnIdleQueue",
	"TestCrashLoopSparesNeighbours",
	"TestOrderOfNativePriorities",
	"TestOrderOfLanes",
	"TestADeclarationThatRepairsMakesNoLetters",
	"TestAMessageHeldThroughLostConnectionsStopsNobody",
	"TestExpirationDoesNotShortenWaits",
	"TestHealthWantsPermissionToRead",
	"TestDelayedToNobody",
	"TestHealthyAre",
	"TestAddedWait",
	"TestRemovedWait",
	"TestAcksOfAStopArrive",
}

// gate lets testsPerBroker tests at a time use a broker. The zero gate is open.
type gate struct {
	mu      sync.Mutex
	inside  int
	waiting []turn // the next one first
}

// turn is closed when its test may begin.
type turn struct {
	rank  int // its place among the long tests
	begin chan struct{}
}

// enter waits for the turn of a test, which ends with the test.
func (g *gate) enter(t *testing.T) {
	t.Helper()
	began := time.Now()
	name, _, _ := strings.Cut(t.Name(), "/")
	mine := turn{slices.Index(longTests, name), make(chan struct{})}
	if mine.rank < 0 {
		mine.rank = len(longTests)
	}
	g.mu.Lock()
	behind := slices.IndexFunc(g.waiting, func(other turn) bool { return other.rank > mine.rank })
	if behind < 0 {
		behind = len(g.waiting)
	}
	g.waiting = slices.Insert(g.waiting, behind, mine)
	g.admit()
	g.mu.Unlock()
	<-mine.begin
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
	for ; g.inside < testsPerBroker && len(g.waiting) > 0; g.inside++ {
		close(g.waiting[0].begin)
		g.waiting = g.waiting[1:]
	}
}
