package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

const (
	instances = 3 // of the service, each with connections of its own to any node
	callers   = 8 // of Publish, in each instance
	pace      = 15 * time.Millisecond
)

// exhausted is the type of messages that fail until no attempt is left. All
// others succeed in the last one.
const exhausted = "exhausted"

var errFailed = errors.New("failed on purpose")

// service publishes to a work queue and consumes it, from several instances.
type service struct {
	queue  topology.WorkQueue
	ledger *ledger

	ctx       context.Context // of the consumers
	cancel    context.CancelFunc
	consumers sync.WaitGroup
	published atomic.Int64
	finish    func() // lets no further Publish begin
	callers   sync.WaitGroup
	conns     []*connection.Conn

	mu   sync.Mutex
	errs []error
}

func startService(t *testing.T, urls []string, w topology.WorkQueue) *service {
	t.Helper()
	s := &service{queue: w, ledger: newLedger(w.Waits)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	end := make(chan struct{})
	s.finish = sync.OnceFunc(func() { close(end) })
	t.Cleanup(func() { _ = s.stop() }) // again: the first call has told
	for i := range instances {
		conn, err := connection.Open(t.Context(), connection.Config{URLs: urls, Name: fmt.Sprintf("instance %d", i+1)})
		if err != nil {
			t.Fatal(err)
		}
		s.conns = append(s.conns, conn)
		s.consume(t, conn, w, s.handler(i), 50)
		s.consume(t, conn, w.DeadLetterQueue(), s.letter, 20)
		out, err := producer.New(conn, producer.Config{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		s.publish(i, out, end)
	}
	return s
}

func (s *service) handler(instance int) consumer.Handler {
	return func(_ context.Context, d *consumer.Delivery) error {
		end := s.ledger.begin(instance, d.ID, d.Attempt)
		wait, retried := s.queue.Waits.After(d.Attempt)
		if !retried && d.Type != exhausted {
			end(time.Time{})
			return nil
		}
		end(time.Now().Add(wait))
		return errFailed
	}
}

func (s *service) letter(_ context.Context, d *consumer.Delivery) error {
	s.ledger.letter(d.ID, d.History.Failure.Cause)
	return nil
}

func (s *service) consume(t *testing.T, conn *connection.Conn, from topology.Source, handler consumer.Handler, concurrency int) {
	t.Helper()
	c, err := consumer.New(conn, from, handler, consumer.Config{Concurrency: concurrency})
	if err != nil {
		t.Fatal(err)
	}
	s.consumers.Go(func() { s.fault(c.Run(s.ctx)) })
}

// publish keeps callers busy at the pace of one instance. The last of them
// closes the producer.
func (s *service) publish(instance int, out *producer.Producer, end chan struct{}) {
	ticker := time.NewTicker(pace)
	var mine sync.WaitGroup
	for range callers {
		mine.Go(func() {
			for {
				select {
				case <-end:
					return
				case <-ticker.C:
				}
				n := s.published.Add(1)
				m := producer.Message{Key: s.queue.Name, ID: fmt.Sprintf("%s/%d", s.queue.Name, n)}
				if n%10 == 0 {
					m.Type = exhausted
				}
				_, err := out.Publish(context.Background(), m)
				s.ledger.published(instance, m.ID, err)
			}
		})
	}
	s.callers.Go(func() {
		mine.Wait()
		ticker.Stop()
		s.fault(out.Close())
	})
}

func (s *service) fault(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.errs = append(s.errs, err)
	}
}

// stop ends everything, senders first, and returns what went wrong.
func (s *service) stop() error {
	s.finish()
	s.callers.Wait()
	s.cancel()
	s.consumers.Wait()
	for _, conn := range s.conns {
		conn.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.errs...)
}

// flow waits until so many more retries have run.
func (s *service) flow(t *testing.T, what string) {
	t.Helper()
	const enough = 300
	before := s.ledger.retried()
	poll.Until(t, time.Minute, s.queue.Name+": messages come back "+what, func() bool { return s.ledger.retried() >= before+enough })
}

// settle lets no further message in and returns when all have ended somewhere,
// or when that is not to be expected any more.
func (s *service) settle(t *testing.T, conn *connection.Conn) {
	t.Helper()
	s.finish()
	s.callers.Wait()
	quiet := func() bool {
		idle, since := s.ledger.idle()
		return idle && time.Since(since) > time.Second && len(s.ledger.lost()) == 0 && ready(t.Context(), conn, s.queue) == 0
	}
	const patience = 45 * time.Second // many times what is sent again after, and many waits
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !quiet() {
		select {
		case <-tick.C:
		case <-late:
			t.Errorf("%s is not at rest after %v, with %d messages in its queues", s.queue.Name, patience, ready(t.Context(), conn, s.queue))
			return
		}
	}
}

// ready returns how many messages lie in the queues of w, -1 if nobody says.
func ready(ctx context.Context, conn *connection.Conn, w topology.WorkQueue) (sum int) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	session, err := conn.Session(ctx, connection.Consume)
	if err != nil {
		return -1
	}
	defer func() { _ = session.Close() }() // or lost, and the next call says so
	for _, name := range queuesOf(w) {
		err := session.Do(ctx, func(ch *amqp.Channel) error {
			q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
			sum += q.Messages
			return err
		})
		if err != nil {
			return -1
		}
	}
	return sum
}

func queuesOf(w topology.WorkQueue) []string {
	all := []string{w.Name, w.DeadLetterQueue().Name}
	for i := range w.Waits {
		all = append(all, w.WaitQueue(i+1))
	}
	return all
}
