package conformance

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// patience is how long a condition may take to come true on a busy machine.
const patience = 10 * time.Minute

// scaled is the schedule of most tests: the user's minutes as milliseconds.
var scaled = delay.Schedule{150 * time.Millisecond, 300 * time.Millisecond, 450 * time.Millisecond, 600 * time.Millisecond}

// runID keeps the names of a run apart from those of others on the same broker.
var (
	runID = strings.ToLower(rand.Text()[:6])
	names atomic.Int64
)

// env is what one test has to itself on one broker: connections, and names
// that nobody else uses.
type env struct {
	*testing.T
	suite   suite
	node    *node
	version string // of the column, such as "4.0"
	column  string // in the table, such as "4.0 quorum"
	queue   topology.QueueType
	prefix  string
	conn    *connection.Conn
	raw     *amqp.Connection

	mu       sync.Mutex
	look     *amqp.Channel // for passive declarations and the like
	producer *producer.Producer
}

func newEnv(t *testing.T, s suite, version string, queueType topology.QueueType) *env {
	t.Helper()
	e := &env{
		T: t, suite: s, node: s.nodes[version], version: version, column: s.prefix + version + " " + string(queueType), queue: queueType,
		prefix: fmt.Sprintf("conf-%s-%d", runID, names.Add(1)),
	}
	var err error
	// With heartbeats as by default, a connection that rests for 30 s on a busy machine is lost.
	if e.raw, err = amqp.DialConfig(e.node.AMQPURL(), amqp.Config{Heartbeat: time.Minute, Locale: "en_US"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.raw.CloseDeadline(time.Now().Add(5 * time.Second)) })
	e.conn = e.connect(e.node.AMQPURL())
	if e.producer, err = producer.New(e.conn, producer.Config{Timeout: patience}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.noError("close the producer", e.producer.Close()) })
	return e
}

// connect opens a Conn of the SDK.
func (e *env) connect(url string) *connection.Conn {
	e.Helper()
	conn, err := connection.Open(e.Context(), connection.Config{URLs: []string{url}, Name: e.prefix, OpenTimeout: patience, Logger: e.log()})
	if err != nil {
		e.Fatal(err)
	}
	e.closeLater(conn)
	return conn
}

// closeLater closes a Conn at the end of the test. A broker that is too busy to answer the
// goodbye within the 5 s of Close is no fault.
func (e *env) closeLater(conn *connection.Conn) {
	e.Cleanup(func() {
		began := time.Now()
		if err := conn.Close(); err != nil && time.Since(began) < 5*time.Second {
			e.Errorf("close the connection: %v", err)
		}
	})
}

// name returns a name for a queue or exchange that is this test's alone.
func (e *env) name(what string) string { return e.prefix + "." + what }

func (e *env) noError(what string, err error) {
	e.Helper()
	if err != nil {
		e.Errorf("%s: %v", what, err)
	}
}

// until waits for a condition.
func (e *env) until(what string, done func() bool) {
	e.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	// Soon at first, and then seldom: to look costs the broker and the journals more than a
	// message does.
	for pause := 5 * time.Millisecond; !done(); pause = min(2*pause, 50*time.Millisecond) {
		select {
		case <-time.After(pause):
		case <-deadline.C:
			e.Fatalf("after %v still not: %s", patience, what)
		}
	}
}

// workQueue returns a work queue with the scaled schedule, which is declared
// and deleted by the test.
func (e *env) workQueue(what string, change ...func(*topology.WorkQueue)) topology.WorkQueue {
	w := topology.WorkQueue{Name: e.name(what), Type: e.queue, Waits: scaled}
	for _, c := range change {
		c(&w)
	}
	return w
}

func waits(s ...time.Duration) func(*topology.WorkQueue) {
	return func(w *topology.WorkQueue) { w.Waits = s }
}

// lastShared is the longest grain of exact delays that tests share, and grains counts the longer ones, which a test
// has to itself.
const lastShared = 40 * time.Millisecond

var grains atomic.Int64

// ownDelays returns exact delays that the test may delete, or set policies on: their queues, and the stranded one
// among them, belong to their grain, and no other test has it.
func (e *env) ownDelays(maximum time.Duration) topology.Delays {
	return topology.Delays{Grain: lastShared + time.Duration(grains.Add(1))*time.Millisecond, Max: maximum}
}

// declare declares and returns the plan; all of it is deleted at the end.
func (e *env) declare(specs ...topology.Spec) topology.Plan {
	e.Helper()
	plan, err := topology.DeclarePlan(e.Context(), e.conn, specs...)
	if err != nil {
		e.Fatal(err)
	}
	e.deleteLater(plan)
	return plan
}

// resolve returns the route by which a consumer on conn reads a work queue.
func (e *env) resolve(conn *connection.Conn, w topology.WorkQueue) route.Facts {
	e.Helper()
	source, err := route.Of(w)
	if err != nil {
		e.Fatal(err)
	}
	found, err := source.Routes[0].Broker.Resolve(e.Context(), conn)
	if err != nil {
		e.Fatal(err)
	}
	return found
}

func (e *env) deleteLater(plan topology.Plan) {
	e.deleteAtEnd(plan.Queues(), plan.Exchanges())
}

func (e *env) deleteAtEnd(queues, exchanges []string) {
	e.Cleanup(func() {
		ch, err := e.raw.Channel()
		if err != nil {
			e.Errorf("clean up: %v", err)
			return
		}
		defer ch.Close()
		for _, q := range queues {
			_, err := ch.QueueDelete(q, false, false, false)
			e.noError("delete queue "+q, err)
		}
		for _, x := range exchanges {
			e.noError("delete exchange "+x, ch.ExchangeDelete(x, false, false))
		}
	})
}

// publish publishes confirmed, to a queue unless an exchange is given, and
// returns the id.
func (e *env) publish(m producer.Message) string {
	e.Helper()
	receipt, err := e.producer.Publish(e.Context(), m)
	if err != nil {
		e.Fatal(err)
	}
	return receipt.ID
}

// publishAll publishes all at once, where one after the other would wait for each confirm,
// and returns their ids.
func (e *env) publishAll(messages []producer.Message) []string {
	e.Helper()
	receipts, err := e.producer.PublishAll(e.Context(), messages)
	if err != nil {
		e.Fatal(err)
	}
	ids := make([]string, len(receipts))
	for i, r := range receipts {
		ids[i] = r.ID
	}
	return ids
}

// send publishes n messages to a queue and returns their ids.
func (e *env) send(queue string, n int) []string {
	e.Helper()
	messages := make([]producer.Message, n)
	for i := range messages {
		messages[i] = producer.Message{RoutingKey: queue, ID: fmt.Sprintf("%s-%d", e.prefix, names.Add(1)), Body: []byte("body")}
	}
	return e.publishAll(messages)
}

// running is a consumer whose Run has been called.
type running struct {
	*consumer.Consumer
	stop func() error
}

// consume runs a consumer until stop, or the end of the test.
func (e *env) consume(source topology.Source, j *journal, cfg consumer.Config) *running {
	e.Helper()
	return e.consumeOn(e.conn, source, j, cfg)
}

func (e *env) consumeOn(conn *connection.Conn, source topology.Source, j *journal, cfg consumer.Config) *running {
	e.Helper()
	if cfg.Concurrency == 0 {
		cfg.Concurrency = 10
	}
	if cfg.Logger == nil {
		cfg.Logger = e.log()
	}
	cfg.Traces = []consumer.Trace{j.trace()}
	c, err := consumer.New(conn, source, j.handle, cfg)
	e.noError("make the consumer", err)
	return e.run(c)
}

// consumeBatches runs a consumer of batches, whose settlements are in the journal.
func (e *env) consumeBatches(source topology.Source, j *journal, handler consumer.BatchHandler, batch consumer.Batch, cfg consumer.Config) *running {
	e.Helper()
	cfg.Traces = []consumer.Trace{j.trace()}
	c, err := consumer.NewBatch(e.conn, source, handler, batch, cfg)
	e.noError("make the consumer", err)
	return e.run(c)
}

func (e *env) run(c *consumer.Consumer) *running {
	e.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	r := &running{c, sync.OnceValue(func() error {
		cancel()
		return <-ended
	})}
	e.Cleanup(func() { e.noError("run the consumer", r.stop()) })
	return r
}

// log is shown with the output of a test that fails.
func (e *env) log() *slog.Logger { return slog.New(slog.NewTextHandler(e.Output(), nil)) }

// halt stops a consumer in the middle of a test.
func (e *env) halt(r *running) {
	e.Helper()
	if err := r.stop(); err != nil {
		e.Fatalf("run the consumer: %v", err)
	}
}
