package connection_test

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

// load is how a work keeps its connection busy. The zero load is a light one.
type load struct {
	pace        time.Duration // between two messages; 50 ms if 0
	onDemand    bool          // messages are published by the test alone
	body        int           // bytes of each
	concurrency int           // of the consumer; 10 if 0
	handler     consumer.Handler
}

// work is a producer and a consumer on one connection, and a ledger of what
// they do.
type work struct {
	conn   *connection.Conn
	queue  string
	load   load
	ledger *ledger

	ctx    context.Context // ends when the test gives up
	cancel context.CancelFunc
	out    *producer.Producer

	finish    func() // lets no further Publish begin
	published atomic.Int64
	callers   sync.WaitGroup

	stopping  context.Context // of the consumers
	stop      context.CancelFunc
	consumers sync.WaitGroup
	mu        sync.Mutex
	errs      []error
}

// newWork prepares a work for the length of the test. The queue exists.
func newWork(t *testing.T, conn *connection.Conn, queue string, ld load) *work {
	t.Helper()
	if ld.pace == 0 {
		ld.pace = 50 * time.Millisecond
	}
	if ld.concurrency == 0 {
		ld.concurrency = 10
	}
	if ld.handler == nil {
		ld.handler = func(context.Context, *consumer.Delivery) error { return nil }
	}
	w := &work{conn: conn, queue: queue, load: ld, ledger: newLedger(), finish: func() {}}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.stopping, w.stop = context.WithCancel(w.ctx)
	out, err := producer.New(conn, producer.Config{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	w.out = out
	t.Cleanup(func() { w.end(w.cancel) })
	return w
}

// startWork declares a work queue, publishes to it and consumes it, and its
// dead-letter queue too. It returns when messages flow.
func startWork(t *testing.T, conn *connection.Conn, queue topology.WorkQueue, ld load) *work {
	t.Helper()
	if err := topology.Declare(t.Context(), conn, queue); err != nil {
		t.Fatal(err)
	}
	w := newWork(t, conn, queue.Name, ld)
	w.consume(t, queue)
	w.readLetters(t, queue.DeadLetterQueue())
	w.begin(t)
	return w
}

// startPlainWork does so with a queue that has nothing beside it, which costs a
// broker less.
func startPlainWork(t *testing.T, conn *connection.Conn, queue string, ld load) *work {
	t.Helper()
	w := newWork(t, conn, queue, ld)
	w.declare(t)
	w.consume(t, topology.Route{Queue: queue})
	w.begin(t)
	return w
}

func (w *work) declare(t *testing.T) {
	t.Helper()
	s := sessionOf(t, w.conn, connection.Consume)
	err := s.Do(t.Context(), func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(w.queue, true, false, false, false, nil)
		return err
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
}

func (w *work) begin(t *testing.T) {
	t.Helper()
	if w.load.onDemand {
		w.publishSoon("")
		w.delivered(t)
		return
	}
	w.publish()
	w.flow(t)
}

// publishSoon publishes one message in the background.
func (w *work) publishSoon(messageType string) {
	w.callers.Go(func() { _ = w.publishOne(w.ctx, messageType) }) // the ledger has the error
}

// delivered waits until the messages of publishSoon have ended.
func (w *work) delivered(t *testing.T) {
	t.Helper()
	w.callers.Wait()
	poll.Until(t, slack*returned, w.queue+": all messages have ended", func() bool { return len(w.ledger.lost()) == 0 })
}

// publishOne publishes a message and writes down what became of it.
func (w *work) publishOne(ctx context.Context, messageType string) error {
	m := producer.Message{
		Key: w.queue, Type: messageType, Body: make([]byte, w.load.body),
		ID: fmt.Sprintf("%s/%d", w.queue, w.published.Add(1)),
	}
	w.ledger.publishing(m.ID)
	_, err := w.out.Publish(ctx, m)
	w.ledger.published(m.ID, err)
	return err
}

// publish starts callers of Publish, enough of them to keep the pace while each
// waits for its confirm.
func (w *work) publish() {
	const callers = 8
	end := make(chan struct{})
	w.finish = sync.OnceFunc(func() { close(end) })
	ticker := time.NewTicker(w.load.pace)
	var mine sync.WaitGroup
	for range callers {
		mine.Go(func() {
			for {
				select {
				case <-ticker.C:
				case <-end:
					return
				}
				_ = w.publishOne(w.ctx, "") // the ledger has the error
			}
		})
	}
	w.callers.Go(func() {
		mine.Wait()
		ticker.Stop()
	})
}

func (w *work) consume(t *testing.T, from topology.Source) {
	t.Helper()
	w.run(t, from, w.load.concurrency, func(ctx context.Context, d *consumer.Delivery) error {
		w.ledger.begin()
		err := w.load.handler(ctx, d)
		if err == nil {
			w.ledger.handle(d.ID)
		}
		return err
	})
}

func (w *work) readLetters(t *testing.T, from topology.Source) {
	t.Helper()
	w.run(t, from, 10, func(_ context.Context, d *consumer.Delivery) error {
		w.ledger.letter(d.ID, d.History.Failure.Cause)
		return nil
	})
}

func (w *work) run(t *testing.T, from topology.Source, concurrency int, handler consumer.Handler) {
	t.Helper()
	c, err := consumer.New(w.conn, from, handler, consumer.Config{Concurrency: concurrency})
	if err != nil {
		t.Fatal(err)
	}
	w.consumers.Go(func() {
		if err := c.Run(w.stopping); err != nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.errs = append(w.errs, err)
		}
	})
}

// flow returns when a message that is published from now on has been handled.
func (w *work) flow(t *testing.T) { w.recovered(t, time.Now()) }

// recovered returns how long after t0 a message was handled whose Publish was
// called after t0.
func (w *work) recovered(t *testing.T, t0 time.Time) time.Duration {
	t.Helper()
	var ended time.Time
	poll.Until(t, slack*returned, w.queue+": messages flow", func() (ok bool) {
		ended, ok = w.ledger.tripAfter(t0)
		return ok
	})
	return ended.Sub(t0)
}

// settle lets no further message in, waits for those under way, ends the work
// and accounts for all messages. Publish may have failed with one of allowed.
func (w *work) settle(t *testing.T, r *row, allowed ...error) {
	t.Helper()
	w.finish()
	w.callers.Wait()
	const patience = 30 * time.Second // without any event, for a message that is missing
	poll.Until(t, 90*time.Second, w.queue+": all messages have ended", func() bool {
		quiet := time.Since(w.ledger.quietSince())
		if len(w.ledger.lost()) > 0 {
			return quiet > patience
		}
		return quiet > 100*time.Millisecond && w.ready(t) == 0
	})
	w.end(func() {})
	for _, err := range w.errs {
		t.Error(err)
	}
	r.accounts(w.ledger, allowed...)
}

// end ends everything that the work has started; twice is once.
func (w *work) end(first func()) {
	first()
	w.finish()
	w.callers.Wait()
	w.stop()
	w.consumers.Wait()
	if err := w.out.Close(); err != nil {
		w.errs = append(w.errs, err)
	}
	w.cancel()
}

// ready returns how many messages lie in the queue, duplicates included.
func (w *work) ready(t *testing.T) (n int) {
	t.Helper()
	s := sessionOf(t, w.conn, connection.Consume)
	err := s.Do(t.Context(), func(ch *amqp.Channel) error {
		q, err := ch.QueueDeclarePassive(w.queue, true, false, false, false, nil)
		n = q.Messages
		return err
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	return n
}
