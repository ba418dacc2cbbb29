package faults

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/account"
	"github.com/rehop/rehop/integration/queues"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// What happens to a message is its Type: an outcome, and the attempt from which
// on it applies; every attempt before fails.
const (
	done      = "done"
	fail      = "fail"      // until no attempt is left
	permanent = "permanent" // DeadLetter
	later     = "later"     // RetryAfter(laterBy), then done
)

const laterBy = 7 * time.Second

func typeOf(outcome string, attempt int) string { return outcome + "@" + strconv.Itoa(attempt) }

var errFailed = errors.New("failed on purpose")

// outcome returns what the handler returns for an attempt.
func outcome(messageType string, attempt int) error {
	what, at, _ := strings.Cut(messageType, "@")
	from, _ := strconv.Atoi(at)
	switch {
	case attempt < from, what == fail:
		return errFailed
	case what == permanent:
		return consumer.DeadLetter(errFailed)
	case what == later && attempt == from:
		return consumer.RetryAfter(laterBy, errFailed)
	}
	return nil
}

// work is a consumer of a work queue and one of its dead-letter queue, which
// write down what they see. They run until stop.
type work struct {
	conn     *connection.Conn
	queue    topology.WorkQueue
	consumer *consumer.Consumer

	copied, confirmed atomic.Int64 // by the consumer's Trace

	ctx    context.Context // of the consumers
	cancel context.CancelFunc
	ended  sync.WaitGroup
	mu     sync.Mutex
	errs   []error
}

// startWork begins to consume. letters says whether the dead-letter queue is
// read too.
func startWork(t *testing.T, conn *connection.Conn, w topology.WorkQueue, a *account.Account, concurrency int, letters bool) *work {
	t.Helper()
	s := &work{conn: conn, queue: w}
	trace := a.Trace()
	trace.Copied = func(context.Context, consumer.Copied) { s.copied.Add(1) }
	trace.Confirmed = func(context.Context, consumer.Copied) { s.confirmed.Add(1) }
	var err error
	s.consumer, err = consumer.New(conn, w, a.Handler("", func(_ context.Context, d *consumer.Delivery) error {
		return outcome(d.Type, d.Attempt)
	}), consumer.Config{Concurrency: concurrency, Traces: []consumer.Trace{trace}})
	if err != nil {
		t.Fatal(err)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.run(s.consumer)
	t.Cleanup(func() { _ = s.stop() }) // again: the first call has told
	if letters {
		s.read(t, w.DeadLetterQueue(), a.Letters)
	}
	return s
}

// read empties a queue, until stop.
func (s *work) read(t *testing.T, from topology.Source, handler consumer.Handler) {
	t.Helper()
	reader, err := consumer.New(s.conn, from, handler, consumer.Config{Concurrency: 50})
	if err != nil {
		t.Fatal(err)
	}
	s.run(reader)
}

func (s *work) run(c *consumer.Consumer) {
	s.ended.Go(func() {
		if err := c.Run(s.ctx); err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.errs = append(s.errs, err)
		}
	})
}

// stop returns when the consumers have ended, and what they returned.
func (s *work) stop() error {
	s.cancel()
	s.ended.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.errs...)
}

// inFlight returns how many copies were written and not confirmed.
func (s *work) inFlight() int64 { return s.copied.Load() - s.confirmed.Load() }

// settle waits until all is at rest, or nothing has moved for quiet.
func (s *work) settle(ctx context.Context, a *account.Account, quiet time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	return a.Rest(ctx, quiet, func(ctx context.Context) (int, error) {
		return queues.Ready(ctx, s.conn, queues.Of(s.queue)...)
	})
}

// publishing is a number of goroutines that publish to a queue.
type publishing struct {
	count atomic.Int64
	end   chan struct{}
	once  sync.Once
	ended sync.WaitGroup
	fault error
}

// startPublishing publishes messages until stop or the limit. A paced one
// sends 500 a second.
func startPublishing(conn *connection.Conn, w topology.WorkQueue, a *account.Account, messageType string, limit int64, paced bool) *publishing {
	p := &publishing{end: make(chan struct{})}
	out, err := producer.New(conn, producer.Config{Timeout: time.Minute})
	if err != nil {
		p.fault = err
		return p
	}
	ticker := time.NewTicker(2 * time.Millisecond)
	ticks := ticker.C
	if !paced {
		always := make(chan time.Time)
		close(always)
		ticks = always
	}
	var callers sync.WaitGroup
	for range 32 {
		callers.Go(func() {
			for {
				select {
				case <-p.end:
					return
				case <-ticks:
				}
				if p.count.Add(1) > limit {
					return
				}
				id := a.Next()
				_ = a.Publish(context.Background(), out, producer.Message{RoutingKey: w.Name, ID: id, Type: messageType, Body: []byte(id)}) // the account has the error
			}
		})
	}
	p.ended.Go(func() {
		callers.Wait()
		ticker.Stop()
		p.fault = out.Close()
	})
	return p
}

// finish lets no further call begin.
func (p *publishing) finish() { p.once.Do(func() { close(p.end) }) }

// stop waits for the calls in progress.
func (p *publishing) stop() error {
	p.finish()
	p.ended.Wait()
	return p.fault
}

// publish publishes n messages of a type and returns their ids. All are safe.
func publish(t *testing.T, conn *connection.Conn, w topology.WorkQueue, a *account.Account, messageType string, n int) (ids []string) {
	t.Helper()
	out, err := producer.New(conn, producer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	for range n {
		id := a.Next()
		if err := a.Publish(t.Context(), out, producer.Message{RoutingKey: w.Name, ID: id, Type: messageType}); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// deleteAll removes what a plan has declared.
func deleteAll(t *testing.T, conn *connection.Conn, plan topology.Plan) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := queues.Delete(ctx, conn, plan); err != nil {
		t.Error(err)
	}
}

// few keeps a list of ids readable.
func few(ids []string) string {
	if len(ids) > 8 {
		return strings.Join(ids[:8], " ") + " and more"
	}
	return strings.Join(ids, " ")
}
