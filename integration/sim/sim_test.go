package sim

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	howLong  = flag.Duration("for", 0, "how long scenarios are run; 0: the first 2000, so that a change is judged by the same ones on every machine")
	first    = flag.Uint64("first", 1, "seed of the first scenario; the others follow")
	onlyKind = flag.String("kind", "", "the only kind of scenarios to run, see kinds; \"\": any")
	only     = flag.Uint64("seed", 0, "the only scenario to run; 0: many")
	times    = flag.Int("times", 20, "how often the scenario of -seed is run: what the scheduler chooses differs")
	enough   = flag.Int("violations", 1, "scenarios with violations, after which no more are run")
	verbose  = flag.Bool("scenarios", false, "print each scenario before it runs")
	smaller  = flag.Bool("shrink", true, "look for the shortest run that shows a violation")

	// A bubble's clock stands while a goroutine waits for a mutex, and while one is
	// busy.
	hung = flag.Duration("hung", 3*time.Minute, "how long a scenario may take by the clock of the wall; one that takes longer does not come to an end")
)

func TestSim(t *testing.T) {
	s := &simulation{t: t, began: time.Now(), next: *first, heap: heap()}
	if *only != 0 {
		s.next = *only
	}
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
	if now := heap(); now > s.heap+leakBound {
		t.Errorf("%d MB are in use after all scenarios, and were %d MB before the first", now>>20, s.heap>>20)
	}
	t.Log(s)
}

// heap returns how much memory is in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// heapAbove returns how much memory is in use if that is more than bound, and 0 if not. It collects
// garbage only where there is more than that with the garbage: to collect it after each of 2000 scenarios takes long.
func heapAbove(bound uint64) uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapAlloc <= bound {
		return 0
	}
	if now := heap(); now > bound {
		return now
	}
	return 0
}

// How much more memory than before the first scenario may be in use.
const (
	heapBound = 512 << 20 // when one has ended and others run
	leakBound = 64 << 20  // when all have ended
)

// simulation is many scenarios.
type simulation struct {
	t     *testing.T
	began time.Time
	heap  uint64

	mu                               sync.Mutex
	next                             uint64
	scenarios, broken                int
	messages, runs, letters, doubled int
	faults                           int
	simulated                        time.Duration
	slowest                          time.Duration
	slowestSeed                      uint64
}

// fixed is how many scenarios are run where no time is given.
const fixed = 2000

// seed returns the next one, until there are no more or the time is up.
func (s *simulation) seed() (seed uint64, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seed = s.next
	if *only != 0 {
		return seed, s.scenarios < *times && s.broken < *enough
	}
	s.next++
	more = seed < *first+fixed
	if *howLong > 0 {
		more = time.Since(s.began) < *howLong
	}
	return seed, more && s.broken < *enough
}

// one runs a scenario.
func (s *simulation) one(t *testing.T, p plan) {
	if *verbose {
		fmt.Fprintf(os.Stderr, "seed %d\n%v\n", p.seed, p)
	}
	began := time.Now()
	r := runPlan(t, p)
	took := time.Since(began)
	if now := heapAbove(s.heap + heapBound); now > 0 {
		r.violations = append(r.violations, fmt.Sprintf("%d MB are in use after the scenario, and were %d MB before the first", now>>20, s.heap>>20))
	}

	s.mu.Lock()
	s.scenarios++
	s.messages += r.counts.Numbered
	s.runs += r.counts.Runs
	s.letters += r.counts.Letters
	s.doubled += r.doubled
	s.faults += r.faults
	s.simulated += r.simulated
	if took > s.slowest {
		s.slowest, s.slowestSeed = took, p.seed
	}
	broken := len(r.violations) > 0
	if broken {
		s.broken++
	}
	s.mu.Unlock()
	if !broken {
		return
	}
	t.Errorf("violations, -seed %d -kind %q:\n%v\n%s", p.seed, *onlyKind, p, r.text())
	if !*smaller {
		t.Log(r.stories)
		return
	}
	small, r := shrink(t, p, r)
	t.Errorf("the shortest run that still shows it:\n%v\n%s\n%s", small, r.text(), r.stories)
}

func (s *simulation) String() string {
	took := time.Since(s.began)
	days := s.simulated.Hours() / 24
	return fmt.Sprintf("%d scenarios in %v: %.1f simulated days, %.1f a minute; %d messages, %d runs of handlers, %d letters, %d doubled; %d faults; heap %d MB; the slowest took %v (seed %d); violations in %d",
		s.scenarios, took.Round(time.Second), days, days/took.Minutes(), s.messages, s.runs, s.letters, s.doubled, s.faults, heap()>>20, s.slowest.Round(time.Millisecond), s.slowestSeed, s.broken)
}

// runPlan runs a plan in a bubble.
func runPlan(t *testing.T, p plan) (r result) {
	late := time.AfterFunc(*hung, func() {
		fmt.Fprintf(os.Stderr, "seed %d does not end: the bubble's clock stands, or something turns in circles\n%v\n", p.seed, p)
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
		os.Exit(2)
	})
	defer late.Stop()
	defer func() {
		if v := recover(); v != nil {
			r.violations = append(r.violations, fmt.Sprint("the bubble ends with goroutines that are left: ", v))
		}
	}()
	synctest.Test(t, func(*testing.T) { r = newTrial(p).run() })
	return r
}
