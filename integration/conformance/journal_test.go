package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/topology"
)

// journal is a handler that writes down what it is given, and what became of it.
type journal struct {
	does func(ctx context.Context, d *consumer.Delivery) error

	prefetch atomic.Int64 // of its consumer

	mu      sync.Mutex
	entries []*entry
	settled map[string][]settled
	ends    map[string][]string // the same, told with times
	pending map[string]int      // copies that are not confirmed, by id; nil: not counted
}

// settled is a report of how an attempt ended.
type settled struct {
	attempt int
	how     consumer.Settlement
}

// entry is one run of the handler.
type entry struct {
	consumer.Delivery
	began, ended time.Time
	err, cause   error // what it returned, and the cause of its ctx
}

func newJournal(does func(ctx context.Context, d *consumer.Delivery) error) *journal {
	return &journal{does: does, settled: map[string][]settled{}, ends: map[string][]string{}}
}

func (j *journal) handle(ctx context.Context, d *consumer.Delivery) error {
	en := &entry{Delivery: *d, began: time.Now()}
	defer func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		en.ended, en.cause = time.Now(), context.Cause(ctx)
		j.entries = append(j.entries, en)
	}()
	en.err = j.does(ctx, d)
	return en.err
}

// countCopies makes the journal count copies, before it is used.
func (j *journal) countCopies() { j.pending = map[string]int{} }

// unconfirmed returns the messages with a copy that was not confirmed. It may have
// arrived, as the original comes again, or another copy.
func (j *journal) unconfirmed() map[string]bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	ids := map[string]bool{}
	for id, n := range j.pending {
		if n > 0 {
			ids[id] = true
		}
	}
	return ids
}

func (j *journal) trace() consumer.Trace {
	t := consumer.Trace{Settled: func(_ context.Context, at consumer.Settled) {
		d, s := at.Delivery, at.Settlement
		j.mu.Lock()
		defer j.mu.Unlock()
		s.Wait = 0 // WaitNumber says it
		j.settled[d.ID] = append(j.settled[d.ID], settled{d.Attempt, s})
		j.ends[d.ID] = append(j.ends[d.ID], fmt.Sprintf("%s attempt %d: %v", time.Now().Format(clock), d.Attempt, s))
	}}
	t.Fetching = func(f consumer.Fetching) { j.prefetch.Store(int64(f.Prefetch)) }
	if j.pending != nil {
		count := func(by int) func(context.Context, consumer.Copied) {
			return func(_ context.Context, c consumer.Copied) {
				j.mu.Lock()
				defer j.mu.Unlock()
				j.pending[c.Delivery.ID] += by
			}
		}
		t.Copied, t.Confirmed = count(1), count(-1)
	}
	return t
}

// of returns the runs for a message that have ended, in their order; "" for all.
func (j *journal) of(id string) []entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []entry
	for _, en := range j.entries {
		if id == "" || en.ID == id {
			found = append(found, *en)
		}
	}
	slices.SortStableFunc(found, func(a, b entry) int { return a.began.Compare(b.began) })
	return found
}

// settlements returns how the deliveries of a message were settled, by their attempts;
// "" for all. A report may come after that of the next attempt.
func (j *journal) settlements(id string) []consumer.Settlement {
	j.mu.Lock()
	defer j.mu.Unlock()
	if id != "" {
		return inOrder(j.settled[id])
	}
	var all []consumer.Settlement
	for _, reports := range j.settled {
		all = append(all, inOrder(reports)...)
	}
	return all
}

// done returns how many messages were done. What goes back to its queue unhandled, as at a
// stop, was settled and is not done.
func (j *journal) done() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for _, reports := range j.settled {
		if slices.ContainsFunc(reports, func(r settled) bool { return r.how.Disposition == consumer.DispositionDone }) {
			n++
		}
	}
	return n
}

func inOrder(reports []settled) (all []consumer.Settlement) {
	reports = slices.Clone(reports)
	slices.SortStableFunc(reports, func(a, b settled) int { return a.attempt - b.attempt })
	for _, r := range reports {
		all = append(all, r.how)
	}
	return all
}

// reached reports whether a message was settled at a place.
func (j *journal) reached(id string, place consumer.Disposition) bool {
	return slices.ContainsFunc(j.settlements(id), func(s consumer.Settlement) bool { return s.Disposition == place })
}

// settledAs reports whether a message was settled at a place, and all of its settlements are
// told: the last may be told before the one that it followed.
func (j *journal) settledAs(id string, settlements int, place consumer.Disposition) bool {
	return j.reached(id, place) && len(j.settlements(id)) >= settlements
}

// attempts returns the attempt numbers of a message.
func (j *journal) attempts(id string) []int {
	var numbers []int
	for _, en := range j.of(id) {
		numbers = append(numbers, en.Attempt)
	}
	return numbers
}

const clock = "05.000" // seconds

// story tells what was seen of a message.
func (j *journal) story(id string) string {
	var b strings.Builder
	for _, en := range j.of(id) {
		fmt.Fprintf(&b, "\n\t%s attempt %d begins", en.began.Format(clock), en.Attempt)
		if en.Redelivered {
			b.WriteString(", redelivered")
		}
		fmt.Fprintf(&b, ", carries %d, dead-lettered %v", en.History.Carried(en.Queue), en.History.Deaths)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, end := range j.ends[id] {
		b.WriteString("\n\t" + end)
	}
	return b.String()
}

// checkAttempts checks that a message was handled as attempts 1 to n, each
// after its wait.
func (e *env) checkAttempts(j *journal, w topology.WorkQueue, id string, n int) {
	e.Helper()
	want := make([]int, n)
	for i := range want {
		want[i] = i + 1
	}
	if got := j.attempts(id); !slices.Equal(got, want) {
		e.Errorf("message %q was handled as attempts %v, want %v%s", id, got, want, j.story(id))
		return
	}
	runs := j.of(id)
	for i := range runs {
		if got, want := runs[i].LastAttempt, i == len(w.Waits); got != want {
			e.Errorf("message %q, attempt %d: LastAttempt is %v, want %v", id, i+1, got, want)
		}
		if i > 0 {
			e.checkWait(e.T, id, i+1, runs[i].began.Sub(runs[i-1].ended), w.Waits[i-1])
		}
	}
}
