package conformance

import (
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/integration/matrix"
)

// lateness collects how late the waits of all tests ended, for the report.
var lateness latenessByColumn

type latenessByColumn struct {
	mu   sync.Mutex
	late map[string][]time.Duration
}

func (l *latenessByColumn) add(column string, late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.late == nil {
		l.late = map[string][]time.Duration{}
	}
	l.late[column] = append(l.late[column], late)
}

func (l *latenessByColumn) note(m *matrix.Matrix, prefix string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, version := range matrix.Versions {
		for _, queueType := range matrix.Types {
			late := l.late[prefix+version+" "+queueType]
			if len(late) == 0 {
				continue
			}
			slices.Sort(late)
			at := func(q float64) time.Duration {
				return late[int(math.Ceil(q*float64(len(late))))-1].Round(100 * time.Microsecond)
			}
			m.Note("late     %-13s %5d waits: median %v, p99 %v, max %v (of handlers beside those of %d other tests)",
				version+" "+queueType, len(late), at(0.5), at(0.99), at(1), testsPerBroker-1)
		}
	}
}

// clockGrain is what a wait may seem too short by: brokers keep time in whole
// milliseconds, and cut off the rest.
const clockGrain = time.Millisecond

// checkWait checks the time between the end of an attempt and the start of the
// next against the wait between them.
func (e *env) checkWait(t *testing.T, id string, attempt int, gap, wait time.Duration) {
	t.Helper()
	if gap < wait-clockGrain {
		t.Errorf("message %q: attempt %d came after %v, want no sooner than %v", id, attempt, gap, wait)
	}
	// No promise of speed: beyond this something was forgotten, and found by chance.
	if limit := 4*wait + 30*time.Second; gap > limit {
		t.Errorf("message %q: attempt %d came after %v, want within %v for a wait of %v", id, attempt, gap, limit, wait)
	}
	lateness.add(e.column, gap-wait)
}
