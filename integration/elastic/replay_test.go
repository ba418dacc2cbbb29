package elastic_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/store/elastic"
	"github.com/rehop/rehop/topology"
)

func connect(t testing.TB) *connection.Conn {
	t.Helper()
	b, err := theBroker()
	must(t, err)
	conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{b.AMQPURL()}})
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func publisher(t testing.TB, conn *connection.Conn, fallback ...producer.Sink) *producer.Producer {
	t.Helper()
	p, err := producer.New(conn, producer.Config{Fallback: fallback})
	must(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// channel is a plain one.
func channel(t testing.TB) *amqp.Channel {
	t.Helper()
	b, err := theBroker()
	must(t, err)
	conn, err := amqp.Dial(b.AMQPURL())
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	must(t, err)
	return ch
}

// TestReplay: what was confirmed is in its queue once and in the index no more;
// what a full queue refuses stays.
func TestReplay(t *testing.T) {
	ch := channel(t)
	work, err := ch.QueueDeclare("elastic-work", true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
	must(t, err)
	full, err := ch.QueueDeclare("elastic-full", true, false, false, false, amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	must(t, err)
	s, p := onServer(t), publisher(t, connect(t))
	_, err = p.Publish(t.Context(), producer.Message{RoutingKey: full.Name, ID: "first"})
	must(t, err)
	const n = 250
	for i := range n {
		d := dead(i)
		d.History.Queue = work.Name
		must(t, s.Collect(t.Context(), d))
	}
	must(t, s.Put(t.Context(), producer.Message{RoutingKey: full.Name, ID: "too many"}, producer.ErrNacked))
	finds(t, s, elastic.Query{Limit: 1000}, n+1)

	report, err := s.Replay(t.Context(), nil, elastic.Query{All: true}, store.ReplayOptions{DryRun: true})
	if report.Matched != n+1 || report.Sent != 0 || err != nil {
		t.Errorf("dry run: %+v, %v", report, err)
	}
	calls := 0
	report, err = s.Replay(t.Context(), p, elastic.Query{All: true}, store.ReplayOptions{Progress: func(store.ReplayReport) { calls++ }})
	if err != nil || report.Matched != n+1 || report.Sent != n || report.Failed != 1 || report.Changed != 0 || !errors.Is(report.Last, producer.ErrNacked) || calls < 3 {
		t.Errorf("%+v, %v, %d calls of Progress", report, err, calls)
	}
	got := map[string]int{}
	deliveries, err := ch.Consume(work.Name, "", true, false, false, false, nil)
	must(t, err)
	late := time.After(time.Minute)
	for range n {
		select {
		case d := <-deliveries:
			got[d.MessageId]++
			if d.Headers["x-rehop-replays"] != int64(1) || d.Headers["tenant"] != "acme" {
				t.Errorf("%s: headers %v", d.MessageId, d.Headers)
			}
		case <-late:
			t.Fatalf("%d messages arrived, want %d", len(got), n)
		}
	}
	for i := range n {
		if id := fmt.Sprintf("d-%03d", i); got[id] != 1 {
			t.Errorf("%s arrived %d times", id, got[id])
		}
	}
	if left := finds(t, s, elastic.Query{}, 1); left[0].Message.ID != "too many" {
		t.Errorf("left: %+v", left)
	}
}

// comesBack is a publisher whose messages are dead letters again at once.
type comesBack struct {
	s    *elastic.Store
	sent int
}

func (c *comesBack) PublishAll(ctx context.Context, messages []producer.Message) ([]producer.Receipt, error) {
	receipts := make([]producer.Receipt, len(messages))
	for i, m := range messages {
		d := dead(0)
		d.ID, d.Exchange, d.RoutingKey = m.ID, m.Exchange, m.RoutingKey+"'" // a document of its own
		if err := c.s.Collect(ctx, d); err != nil {
			return nil, err
		}
		receipts[i] = producer.Receipt{ID: m.ID, Place: producer.PlaceQueue}
	}
	c.sent += len(messages)
	return receipts, nil
}

func TestReplayTriesEachLetterOnce(t *testing.T) {
	s := onServer(t)
	const n = 30
	for i := range n {
		must(t, s.Collect(t.Context(), dead(i)))
	}
	finds(t, s, elastic.Query{Limit: 1000}, n)
	p := &comesBack{s: s}
	report, err := s.Replay(t.Context(), p, elastic.Query{All: true}, store.ReplayOptions{Rate: 50})
	if err != nil || report.Matched != n || report.Sent != n || p.sent != n {
		t.Errorf("%+v, %v; %d messages, want %d", report, err, p.sent, n)
	}
}

// TestDeadLetters: a message that its handler gave up goes to the dead-letter queue,
// to the index, and by a replay to its work queue again. A canary that dies again
// stops the replay of the rest; when the handler is mended, one that does not lets
// the rest go.
func TestDeadLetters(t *testing.T) {
	const n = 10
	conn := connect(t)
	queue := topology.WorkQueue{Name: "elastic-orders"}
	must(t, topology.Declare(t.Context(), conn, queue))
	s := onServer(t)
	run := func(queue topology.Source, handler consumer.Handler) (stop func()) {
		c, err := consumer.New(conn, queue, handler, consumer.Config{Concurrency: 10})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		return func() { cancel(); must(t, <-done) }
	}
	var mended atomic.Bool
	handled := make(chan string, 100)
	defer run(queue, func(_ context.Context, d *consumer.Delivery) error {
		if !mended.Load() {
			return consumer.DeadLetter(errors.New("no stock"))
		}
		handled <- d.ID
		return nil
	})()
	defer run(queue.DeadLetterQueue(), func(ctx context.Context, d *consumer.Delivery) error {
		if err := gone(ctx, s, d.ID); err != nil {
			return consumer.Hold(err)
		}
		return s.Collect(ctx, d)
	})()
	p := publisher(t, conn)
	for i := range n {
		_, err := p.Publish(t.Context(), producer.Message{RoutingKey: queue.Name, ID: fmt.Sprint("o", i), Body: []byte("b")})
		must(t, err)
	}
	found := finds(t, s, elastic.Query{Queue: queue.Name, Text: "stock"}, n)
	if l := found[0]; l.Attempts != 1 || l.Error != "no stock" || l.Message.RoutingKey != queue.Name || string(l.Message.Body) != "b" {
		t.Errorf("%+v", l)
	}
	report, err := s.Replay(t.Context(), p, elastic.Query{Queue: queue.Name}, store.ReplayOptions{Canary: 10 * time.Second})
	if !errors.Is(err, store.ErrCanary) || report.Sent != 1 {
		t.Fatalf("the canary dies: %+v, %v", report, err)
	}
	finds(t, s, elastic.Query{}, n) // it is here once more

	mended.Store(true)
	report, err = s.Replay(t.Context(), p, elastic.Query{Queue: queue.Name}, store.ReplayOptions{Canary: time.Second})
	if err != nil || report.Matched != n || report.Sent != n || report.Failed != 0 || report.Changed != 0 {
		t.Fatalf("the canary lives: %+v, %v", report, err)
	}
	finds(t, s, elastic.Query{}, 0)
	got := map[string]int{}
	late := time.After(time.Minute)
	for range n {
		select {
		case id := <-handled:
			got[id]++
		case <-late:
			t.Fatalf("handled %v, want %d messages", got, n)
		}
	}
	for i := range n {
		if id := fmt.Sprint("o", i); got[id] != 1 {
			t.Errorf("%s was handled %d times", id, got[id])
		}
	}
}

// gone waits until no letter has the message id. The server has no versions and
// does not keep the order of a delete and a write of one document that follow each
// other at once, so that the delete of a replay could take the letter that comes back.
func gone(ctx context.Context, s *elastic.Store, id string) error {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		if n, err := s.Count(ctx, elastic.Query{MessageIDs: []string{id}}); n == 0 || err != nil {
			return err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// TestFallback: what has no queue goes to the index, and the receipt says so.
func TestFallback(t *testing.T) {
	s := onServer(t)
	p := publisher(t, connect(t), s)
	receipt, err := p.Publish(t.Context(), producer.Message{RoutingKey: "no such queue", ID: "lost"})
	if err != nil || receipt.Place != producer.PlaceFallback || receipt.Sink != "elastic" || receipt.MaybeDuplicate {
		t.Errorf("%+v, %v", receipt, err)
	}
	finds(t, s, elastic.Query{RoutingKey: "no such queue", Cause: receipt.Cause}, 1)
	// A Publisher whose fallback is the index itself moves nothing.
	report, err := s.Replay(t.Context(), p, elastic.Query{All: true}, store.ReplayOptions{})
	if err != nil || report.Sent != 0 || report.Failed != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	finds(t, s, elastic.Query{}, 1)
}
