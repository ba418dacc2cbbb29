package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/rehop/rehop/topology"
)

// plan is a scenario. It follows from its seed.
type plan struct {
	seed      uint64
	version   string
	kind      topology.QueueType
	keepOrder bool
	messages  int
	twice     int           // of 1,000 messages, those that are published twice
	every     time.Duration // between two messages
	latency   time.Duration // of a statement
	slow      time.Duration // the work of a handler, in its transaction
	trouble   int           // of 1,000 messages, those whose first runs fail
	batch     int
	poll      time.Duration // of Forward
	refuses   int           // of 1,000 COMMITs, those that fail
	processes []processPlan
	faults    []fault
}

// processPlan are the lives of a process. The last one ends with the trial.
type processPlan struct {
	lives       []life
	concurrency int
}

// life ends at a statement, by a kill, or after a time, by a stop; or with the trial.
type life struct {
	fuse  int
	after bool // the statement happens, and its answer does not come
	stops time.Duration
	pause time.Duration // to the next one
}

// fault is something that breaks, and for how long.
type fault struct {
	kind      string
	at, lasts time.Duration
}

var faultKinds = []string{"cut", "kill", "stall", "database"}

func newPlan(seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, 1))
	upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
	p := plan{
		seed: seed, version: []string{"3.10", "4.0", "4.3"}[r.IntN(3)], kind: []topology.QueueType{topology.Quorum, topology.Classic}[r.IntN(2)],
		keepOrder: r.IntN(2) == 0, messages: 3 + r.IntN(25), twice: r.IntN(400), every: upTo(100 * time.Millisecond),
		trouble: r.IntN(700), batch: 1 + r.IntN(10), poll: time.Second + upTo(4*time.Second), refuses: max(0, r.IntN(160)-80),
	}
	if r.IntN(2) == 0 {
		p.latency = upTo(5 * time.Millisecond)
	}
	if r.IntN(2) == 0 {
		p.slow = upTo(30 * time.Millisecond)
	}
	for range 1 + r.IntN(2) {
		process := processPlan{concurrency: 1 + r.IntN(6)}
		for range r.IntN(5) {
			l := life{pause: upTo(5 * time.Second)}
			if r.IntN(4) == 0 {
				l.stops = upTo(10 * time.Second)
			} else {
				l.fuse, l.after = 12+r.IntN(120), r.IntN(2) == 0
			}
			process.lives = append(process.lives, l)
		}
		process.lives = append(process.lives, life{})
		p.processes = append(p.processes, process)
	}
	for range r.IntN(4) {
		p.faults = append(p.faults, fault{faultKinds[r.IntN(len(faultKinds))], upTo(15 * time.Second), 10*time.Millisecond + upTo(20*time.Second)})
	}
	return p
}

func (p plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s, KeepOrder %v; %d messages every %v, %d of 1,000 twice; statements take %v, handlers %v; %d of 1,000 in trouble; batches of %d; Forward looks every %v; %d of 1,000 COMMITs fail",
		p.version, p.kind, p.keepOrder, p.messages, p.every, p.twice, p.latency, p.slow, p.trouble, p.batch, p.poll, p.refuses)
	for _, process := range p.processes {
		fmt.Fprintf(&b, "\n  process, %d at a time: %+v", process.concurrency, process.lives)
	}
	for _, f := range p.faults {
		fmt.Fprintf(&b, "\n  %s at %v for %v", f.kind, f.at, f.lasts)
	}
	return b.String()
}
