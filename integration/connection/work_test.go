package connection_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/account"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/integration/queues"
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

// work is a producer and a consumer on one connection, and an account of what
// they do.
type work struct {
	conn    *connection.Conn
	queue   string
	load    load
	account *account.Account
	trips   trips

	ctx    context.Context // ends when the test gives up
	cancel context.CancelFunc
	out    *producer.Producer

	finish  func() // lets no further Publish begin
	callers sync.WaitGroup

	stopping  context.Context // of the consumers
	stop      context.CancelFunc
	consumers sync.WaitGroup
	mu        sync.Mutex
	errs      []error
	failed    []error // of the calls of Publish
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
	w := &work{conn: conn, queue: queue, load: ld, account: account.New(queue, nil, 0), finish: func() {}}
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
	w.callers.Go(func() { _ = w.publishOne(w.ctx, messageType) }) // it is noted
}

// delivered waits until the messages of publishSoon have ended.
func (w *work) delivered(t *testing.T) {
	t.Helper()
	w.callers.Wait()
	poll.Until(t, slack*returned, w.queue+": all messages have ended", func() bool { return w.account.Counts().Open == 0 })
}

// publishOne publishes a message and writes down what became of it.
func (w *work) publishOne(ctx context.Context, messageType string) error {
	m := producer.Message{RoutingKey: w.queue, Type: messageType, Body: make([]byte, w.load.body), ID: w.account.Next()}
	w.trips.begin(m.ID)
	err := w.account.Publish(ctx, w.out, m)
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.failed = append(w.failed, err)
	}
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
				_ = w.publishOne(w.ctx, "") // it is noted
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
	w.run(t, from, consumer.Config{Concurrency: w.load.concurrency, Traces: []consumer.Trace{w.account.Trace()}}, w.account.Handler("", func(ctx context.Context, d *consumer.Delivery) error {
		err := w.load.handler(ctx, d)
		if err == nil {
			w.trips.end(d.ID)
		}
		return err
	}))
}

func (w *work) readLetters(t *testing.T, from topology.Source) {
	t.Helper()
	w.run(t, from, consumer.Config{Concurrency: 10}, w.account.Letters)
}

func (w *work) run(t *testing.T, from topology.Source, cfg consumer.Config, handler consumer.Handler) {
	t.Helper()
	c, err := consumer.New(w.conn, from, handler, cfg)
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
		ended, ok = w.trips.after(t0)
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
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	if err := w.account.Rest(ctx, patience, func(ctx context.Context) (int, error) {
		return queues.Ready(ctx, w.conn, w.queue)
	}); err != nil {
		t.Error(err)
	}
	w.end(func() {})
	for _, err := range w.errs {
		t.Error(err)
	}
	r.accounts(w.account, w.failed, allowed...)
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
