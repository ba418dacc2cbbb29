package faults

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
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

const laterBy = 3 * time.Second

func typeOf(outcome string, attempt int) string { return outcome + "@" + strconv.Itoa(attempt) }

var errFailed = errors.New("failed on purpose")

// outcome returns what the handler returns for an attempt, and for a failure
// when the next attempt is due.
func outcome(waits delay.Schedule, messageType string, attempt int, now time.Time) (due time.Time, err error) {
	what, at, _ := strings.Cut(messageType, "@")
	from, _ := strconv.Atoi(at)
	wait, _ := waits.After(attempt)
	switch {
	case attempt < from, what == fail:
		return now.Add(wait), errFailed
	case what == permanent:
		return now, consumer.DeadLetter(errFailed)
	case what == later && attempt == from:
		return now.Add(laterBy), consumer.RetryAfter(laterBy, errFailed)
	}
	return time.Time{}, nil
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
func startWork(t *testing.T, conn *connection.Conn, w topology.WorkQueue, l *ledger, concurrency int, letters bool) *work {
	t.Helper()
	s := &work{conn: conn, queue: w}
	var err error
	s.consumer, err = consumer.New(conn, w, func(_ context.Context, d *consumer.Delivery) error {
		end := l.begin(d.ID, run{attempt: d.Attempt, redelivered: d.Redelivered})
		due, err := outcome(w.Waits, d.Type, d.Attempt, time.Now())
		end(err == nil, due)
		return err
	}, consumer.Config{Concurrency: concurrency, Trace: consumer.Trace{
		Copied:    func(*consumer.Delivery, topology.Address) { s.copied.Add(1) },
		Confirmed: func(*consumer.Delivery, topology.Address) { s.confirmed.Add(1) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.run(s.consumer)
	t.Cleanup(func() { _ = s.stop() }) // again: the first call has told
	if letters {
		s.readLetters(t, l)
	}
	return s
}

func (s *work) readLetters(t *testing.T, l *ledger) {
	t.Helper()
	reader, err := consumer.New(s.conn, s.queue.DeadLetterQueue(), func(_ context.Context, d *consumer.Delivery) error {
		l.letter(d.ID, letter{cause: d.History.Failure.Cause, attempts: d.History.FinalAttempts})
		return nil
	}, consumer.Config{Concurrency: 50})
	if err != nil {
		t.Fatal(err)
	}
	s.run(reader)
}

// readWait takes what lies in the first wait queue, for a schedule whose wait
// never ends in this test.
func (s *work) readWait(t *testing.T, l *ledger) {
	t.Helper()
	reader, err := consumer.New(s.conn, topology.Route{Queue: s.queue.WaitQueue(1)}, func(_ context.Context, d *consumer.Delivery) error {
		l.park(d.ID, d.History.Carried(s.queue.Name))
		return nil
	}, consumer.Config{Concurrency: 50})
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

// settle returns when every message has ended somewhere and no queue holds one,
// or when nothing has moved for quiet. An error says that neither came in time.
func (s *work) settle(ctx context.Context, l *ledger, quiet time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	empty := 0
	var before time.Time
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("queue %s is still not at rest: %w", s.queue.Name, context.Cause(ctx))
		}
		idle, last := l.idle()
		ready, err := ready(ctx, s.conn, s.queue)
		if err != nil || ready > 0 || !idle || last != before {
			empty, before = 0, last
			continue
		}
		empty++
		if empty >= 3 && len(l.lost()) == 0 || time.Since(last) > quiet {
			return nil
		}
	}
}

// ready returns how many messages lie in the queues of w.
func ready(ctx context.Context, conn *connection.Conn, w topology.WorkQueue) (int, error) {
	queues := []string{w.Name, w.DeadLetterQueue().Name}
	for rung := range w.Waits {
		queues = append(queues, w.WaitQueue(rung+1))
	}
	return messages(ctx, conn, queues...)
}

// messages returns how many messages lie in queues. It leaves out those that
// a consumer has, or an at-least-once dead-lettering.
func messages(ctx context.Context, conn *connection.Conn, queues ...string) (sum int, err error) {
	session, err := conn.Session(ctx, connection.Consume)
	if err != nil {
		return 0, err
	}
	defer func() { _ = session.Close() }() // or lost, and the next call says so
	for _, name := range queues {
		err := session.Do(ctx, func(ch *amqp.Channel) error {
			q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
			sum += q.Messages
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return sum, nil
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
func startPublishing(conn *connection.Conn, w topology.WorkQueue, l *ledger, messageType string, limit int64, paced bool) *publishing {
	p := &publishing{end: make(chan struct{})}
	out, err := producer.New(conn, producer.Config{Timeout: time.Minute})
	if err != nil {
		p.fault = err
		return p
	}
	ticker := time.NewTicker(2 * time.Millisecond)
	turns := ticker.C
	if !paced {
		always := make(chan time.Time)
		close(always)
		turns = always
	}
	var callers sync.WaitGroup
	for range 32 {
		callers.Go(func() {
			for {
				select {
				case <-p.end:
					return
				case <-turns:
				}
				n := p.count.Add(1)
				if n > limit {
					return
				}
				id := fmt.Sprintf("%s/burst-%d", w.Name, n)
				_, err := out.Publish(context.Background(), producer.Message{Key: w.Name, ID: id, Type: messageType, Body: []byte(id)})
				l.published(id, err)
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
func publish(t *testing.T, conn *connection.Conn, w topology.WorkQueue, l *ledger, messageType string, n int) (ids []string) {
	t.Helper()
	out, err := producer.New(conn, producer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	var l0 int
	l.read(func() { l0 = len(l.safe) })
	for i := range n {
		id := fmt.Sprintf("%s/%d", w.Name, l0+i+1)
		_, err = out.Publish(t.Context(), producer.Message{Key: w.Name, ID: id, Type: messageType})
		l.published(id, err)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// deleteAll removes what a plan has declared.
func deleteAll(t *testing.T, conn *connection.Conn, plan topology.Plan) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	session, err := conn.Session(ctx, connection.Consume)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = session.Close() }() // nothing is in flight on it
	err = session.Do(ctx, func(ch *amqp.Channel) error {
		for _, q := range plan.Queues {
			if _, err := ch.QueueDelete(q.Name, false, false, false); err != nil {
				return err
			}
		}
		for _, e := range plan.Exchanges {
			if err := ch.ExchangeDelete(e.Name, false, false); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
