package carry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

var errFailed = errors.New("failed on purpose")

// run is one run of the handler.
type run struct {
	ID         string
	Attempt    int
	Began, End time.Time
}

// ledger is what has become of the messages of one work queue. Each attempt but
// the last one fails.
type ledger struct {
	waits []time.Duration

	mu    sync.Mutex
	safe  []string
	runs  map[string][]run
	count map[int]int // runs, by attempt
}

func newLedger(w topology.WorkQueue) *ledger {
	return &ledger{waits: w.Waits, runs: map[string][]run{}, count: map[int]int{}}
}

// last is the attempt that succeeds.
func (l *ledger) last() int { return len(l.waits) + 1 }

func (l *ledger) add(r run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[r.ID] = append(l.runs[r.ID], r)
	l.count[r.Attempt]++
}

// runsOf returns how often an attempt has run.
func (l *ledger) runsOf(attempt int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count[attempt]
}

// done returns how many messages have succeeded.
func (l *ledger) done() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range l.safe {
		if slices.ContainsFunc(l.runs[id], func(r run) bool { return r.Attempt == l.last() }) {
			n++
		}
	}
	return n
}

// handle is a Handler.
func (l *ledger) handle(_ context.Context, d *consumer.Delivery) error {
	r := run{ID: d.ID, Attempt: d.Attempt, Began: time.Now()}
	defer func() {
		r.End = time.Now()
		l.add(r)
	}()
	return outcome(d.Attempt, l.last())
}

func outcome(attempt, last int) error {
	if attempt < last {
		return errFailed
	}
	return nil
}

// publish publishes messages, all confirmed.
func (l *ledger) publish(t *testing.T, conn *connection.Conn, w topology.WorkQueue, n int) {
	t.Helper()
	out, err := producer.New(conn, producer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	var messages []producer.Message
	for i := range n {
		messages = append(messages, producer.Message{RoutingKey: w.Name, ID: fmt.Sprint(i), Body: []byte("order")})
	}
	receipts, err := out.PublishAll(t.Context(), messages)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range receipts {
		l.safe = append(l.safe, r.ID)
	}
}

// summary is of all that has come back: how late it was, and how often an attempt
// ran once more.
type summary struct {
	lost, doubled int
	early         []string
	late          []time.Duration // of each message and attempt, sorted
	wrong         []string
}

// check compares the runs of each message with what must have happened. The first
// run of an attempt may not begin before the wait since the end of some run of the
// attempt before is over.
func (l *ledger) check() (s summary) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range l.safe {
		byAttempt := map[int][]run{}
		for _, r := range l.runs[id] {
			byAttempt[r.Attempt] = append(byAttempt[r.Attempt], r)
			if r.Attempt < 1 || r.Attempt > l.last() {
				s.wrong = append(s.wrong, fmt.Sprintf("message %s: attempt %d", id, r.Attempt))
			}
		}
		if len(byAttempt[l.last()]) == 0 {
			s.lost++
		}
		for attempt := 1; attempt <= l.last(); attempt++ {
			runs := byAttempt[attempt]
			s.doubled += max(0, len(runs)-1)
			if attempt == 1 || len(runs) == 0 {
				continue
			}
			before := byAttempt[attempt-1]
			if len(before) == 0 {
				s.wrong = append(s.wrong, fmt.Sprintf("message %s: attempt %d without the one before", id, attempt))
				continue
			}
			began := slices.MinFunc(runs, func(x, y run) int { return x.Began.Compare(y.Began) }).Began
			// The copy says when it was made, which is between the begin and the
			// settlement of the earliest run.
			ended := slices.MinFunc(before, func(x, y run) int { return x.Began.Compare(y.Began) }).Began
			late := began.Sub(ended.Add(l.waits[attempt-2]))
			if late < 0 {
				s.early = append(s.early, fmt.Sprintf("message %s: attempt %d came %v early", id, attempt, -late))
			}
			s.late = append(s.late, late)
		}
	}
	slices.Sort(s.late)
	return s
}

// end fails the test if a message is lost or early, and logs the rest.
func (l *ledger) end(t *testing.T, what string) summary {
	t.Helper()
	s := l.check()
	if s.lost > 0 {
		t.Errorf("%s: %d of %d messages lost", what, s.lost, len(l.safe))
	}
	for _, faults := range [][]string{s.early, s.wrong} {
		if len(faults) > 0 {
			t.Errorf("%s: %d faults, the first: %s", what, len(faults), faults[0])
		}
	}
	if n := len(s.late); n > 0 {
		t.Logf("%s: %d messages, 0 early, %d lost, %d runs doubled; late p50 %v, p99 %v, max %v", what, len(l.safe), s.lost, s.doubled,
			s.late[n/2].Round(time.Millisecond), s.late[n*99/100].Round(time.Millisecond), s.late[n-1].Round(time.Millisecond))
	}
	return s
}

// consume runs a consumer until stop.
func consume(t *testing.T, conn *connection.Conn, w topology.WorkQueue, l *ledger, trace consumer.Trace) (stop func()) {
	t.Helper()
	c, err := consumer.New(conn, w, l.handle, consumer.Config{Concurrency: 50, Traces: []consumer.Trace{trace}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}
