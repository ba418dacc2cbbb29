package sim

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite" // the database
)

var (
	howLong = flag.Duration("for", 0, "how long scenarios are run; 0: the first 60, so that a change is judged by the same ones on every machine")
	first   = flag.Uint64("first", 1, "seed of the first scenario; the others follow")
	only    = flag.Uint64("seed", 0, "the only scenario to run; 0: many")
	times   = flag.Int("times", 20, "how often the scenario of -seed is run: what the scheduler chooses differs")
	hung    = flag.Duration("hung", 2*time.Minute, "how long a scenario may take by the clock of the wall; one that takes longer does not come to an end")
)

// fixed is how many scenarios are run where no time is given.
const fixed = 60

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// simulation is many scenarios.
type simulation struct {
	began time.Time

	mu                     sync.Mutex
	next                   uint64
	scenarios, broken      int
	effects, runs          int
	skipped, kills, faults int64
	simulated, slowest     time.Duration
}

// TestSim: the effect of each message happens once.
func TestSim(t *testing.T) {
	s := &simulation{began: time.Now(), next: *first}
	t.Run("scenarios", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for seed, more := s.seed(); more; seed, more = s.seed() {
					s.one(t, newPlan(seed))
				}
			})
		}
	})
	t.Logf("%d scenarios in %v, the slowest in %v: %.1f simulated hours; %d effects of %d runs, %d messages that came again were skipped; %d kills, %d other faults; violations in %d",
		s.scenarios, time.Since(s.began).Round(time.Second/10), s.slowest.Round(time.Millisecond), s.simulated.Hours(), s.effects, s.runs, s.skipped, s.kills, s.faults, s.broken)
	// Scenarios in which nothing happens would find nothing.
	if s.broken == 0 && *only == 0 && (s.skipped == 0 || s.kills == 0) {
		t.Errorf("%d messages were skipped and %d processes killed, want some", s.skipped, s.kills)
	}
}

// seed returns the next one, until there are no more or the time is up.
func (s *simulation) seed() (seed uint64, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *only != 0 {
		return *only, s.scenarios < *times && s.broken == 0
	}
	seed = s.next
	s.next++
	more = seed < *first+fixed
	if *howLong > 0 {
		more = time.Since(s.began) < *howLong
	}
	return seed, more && s.broken == 0
}

// one runs a scenario.
func (s *simulation) one(t *testing.T, p plan) {
	began := time.Now()
	r := runPlan(t, p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scenarios++
	s.effects += r.effects
	s.runs += r.runs
	s.skipped += r.skipped
	s.kills += r.kills
	s.faults += int64(len(p.faults))
	s.simulated += r.simulated
	s.slowest = max(s.slowest, time.Since(began))
	if len(r.violations) > 0 {
		s.broken++
		t.Errorf("violations, -seed %d:\n%v\nviolation: %s", p.seed, p, strings.Join(r.violations, "\nviolation: "))
	}
}

// runPlan runs a plan in a bubble.
func runPlan(t *testing.T, p plan) (r result) {
	late := time.AfterFunc(*hung, func() {
		fmt.Fprintf(os.Stderr, "seed %d does not end: the bubble's clock stands, or something turns in circles\n%v\n", p.seed, p)
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
		os.Exit(2)
	})
	defer late.Stop()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if r, err = newTrial(p).run(); err != nil {
			t.Error(err)
		}
	})
	return r
}
