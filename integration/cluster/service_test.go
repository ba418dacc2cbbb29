package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/account"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/integration/queues"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

const (
	instances = 3                     // of the service, each with connections of its own to any node
	callers   = 8                     // of Publish, in each instance
	pace      = 15 * time.Millisecond // of an instance, between two messages
)

// exhausted is the type of messages that fail until no attempt is left. All
// others succeed in the last one.
const exhausted = "exhausted"

var errFailed = errors.New("failed on purpose")

// service publishes to a work queue and consumes it, from several instances.
type service struct {
	queue   topology.WorkQueue
	account *account.Account
	seen    flow

	ctx       context.Context // of the consumers
	cancel    context.CancelFunc
	consumers sync.WaitGroup
	finish    func() // lets no further Publish begin
	callers   sync.WaitGroup
	conns     []*connection.Conn

	mu   sync.Mutex
	errs []error
}

func startService(t *testing.T, urls []string, w topology.WorkQueue, pace time.Duration) *service {
	t.Helper()
	s := &service{queue: w, account: account.New(w.Name, w.Waits, 0)}
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
		s.consume(t, conn, w, s.account.Handler(fmt.Sprintf("instance %d", i+1), s.handler(i)), consumer.Config{Concurrency: 50, Traces: []consumer.Trace{s.account.Trace()}})
		s.consume(t, conn, w.DeadLetterQueue(), s.account.Letters, consumer.Config{Concurrency: 20})
		out, err := producer.New(conn, producer.Config{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		s.publish(i, out, pace, end)
	}
	return s
}

func (s *service) handler(instance int) consumer.Handler {
	return func(_ context.Context, d *consumer.Delivery) error {
		s.seen.handles(instance, d.Attempt)
		if d.LastAttempt && d.Type != exhausted {
			return nil
		}
		return errFailed
	}
}

func (s *service) consume(t *testing.T, conn *connection.Conn, from topology.Source, handler consumer.Handler, cfg consumer.Config) {
	t.Helper()
	c, err := consumer.New(conn, from, handler, cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.consumers.Go(func() { s.fault(c.Run(s.ctx)) })
}

// publish keeps callers busy at the pace of one instance. The last of them
// closes the producer.
func (s *service) publish(instance int, out *producer.Producer, pace time.Duration, end chan struct{}) {
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
				m := producer.Message{RoutingKey: s.queue.Name, ID: s.account.Next()}
				if s.account.Number(m.ID)%10 == 0 {
					m.Type = exhausted
				}
				if s.account.Publish(context.Background(), out, m) == nil {
					s.seen.confirmed(instance)
				}
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
	before := s.seen.retried()
	poll.Until(t, time.Minute, s.queue.Name+": messages come back "+what, func() bool { return s.seen.retried() >= before+enough })
}

// settle lets no further message in and returns when all have ended somewhere,
// or when that is not to be expected any more.
func (s *service) settle(t *testing.T, conn *connection.Conn) {
	t.Helper()
	s.finish()
	s.callers.Wait()
	const silence = 45 * time.Second // many times what is sent again after, and many waits
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := s.account.Rest(ctx, silence, func(ctx context.Context) (int, error) {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		return queues.Ready(ctx, conn, queues.Of(s.queue)...)
	}); err != nil {
		t.Error(err)
	}
}
