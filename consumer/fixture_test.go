package consumer_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

var errBroken = errors.New("broken")

// fixture is a broker in the process, a work queue, and what a consumer has told.
type fixture struct {
	*testing.T
	version string
	broker  *rehoptest.Broker
	conn    *connection.Conn
	orders  topology.WorkQueue
	journal *journal
	sent    int
}

// The rules that a test proves say on which versions and queue types it runs. Each run is in
// a bubble of synctest of its own, beside the others.
//
// The race detector makes a run six times as long (measured). So with the detector each test runs in one column of its
// own, which its name chooses, and the engines have theirs among all tests. Without it each test runs in all of its
// columns. The gate does both, and make test-loop runs all columns with the detector.

// sampled returns all of these without the race detector, or if CONSUMER_COLUMNS is all, and else one of them.
func sampled[T any](t *testing.T, all []T) []T {
	if !raced || os.Getenv("CONSUMER_COLUMNS") == "all" {
		return all
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.Name()))
	one := h.Sum32() % uint32(len(all))
	return all[one : one+1]
}

// column is a version of the broker with a type of queue.
type column struct {
	version string
	kind    topology.QueueType
}

func onEach(t *testing.T, columns []column, test func(*fixture)) {
	for _, c := range sampled(t, columns) {
		on(t, c.version, c.kind, test)
	}
}

// everywhere runs a test on each version and queue type. It is for rules that the broker has
// a hand in: how messages are settled, counted, redelivered, taken away and sent ahead
// differs by both.
func everywhere(t *testing.T, test func(*fixture)) {
	var columns []column
	for _, version := range versions {
		columns = append(columns, column{version, topology.Classic}, column{version, topology.Quorum})
	}
	onEach(t, columns, test)
}

// onQuorumQueues runs a test on a quorum queue of each version. It is for rules about the
// delivery limit, which only quorum queues have, and each version counts in its own way.
func onQuorumQueues(t *testing.T, test func(*fixture)) {
	for _, version := range sampled(t, versions) {
		on(t, version, topology.Quorum, test)
	}
}

// onEachEngine runs a test once with carry, once with republish and once with nack, on
// another version each, and on both queue types. It is for rules of the consumer's own whose
// messages go through the broker in the way of the engine, whichever version that is.
func onEachEngine(t *testing.T, test func(*fixture)) {
	onEach(t, []column{{"3.10", topology.Quorum}, {"4.0", topology.Classic}, {"4.3", topology.Quorum}}, test)
}

// onNewest runs a test on a quorum queue of the newest version. It is for rules that are
// decided before the broker is told anything: neither its version nor the type of the queue
// can change them.
func onNewest(t *testing.T, test func(*fixture)) {
	on(t, versions[len(versions)-1], topology.Quorum, test)
}

// versions are the brokers of the tests, the newest last.
var versions = []string{"3.10", "4.0", "4.3"}

// on runs a test on one version and queue type. It is for rules that only these have.
func on(t *testing.T, version string, kind topology.QueueType, test func(*fixture)) {
	onBroker(t, rehoptest.Config{Version: version}, kind, test)
}

func onBroker(t *testing.T, cfg rehoptest.Config, kind topology.QueueType, test func(*fixture)) {
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, time.Hour) // see connects
	t.Run(cfg.Version+" "+string(kind), func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := &fixture{T: t, version: cfg.Version, journal: &journal{settled: map[string][]consumer.Settlement{}}}
			w.orders = topology.WorkQueue{Name: "orders", Type: kind, Waits: delay.Schedule{time.Minute, 5 * time.Minute}}
			var err error
			if w.broker, err = rehoptest.NewBroker(cfg); err != nil {
				t.Fatal(err)
			}
			defer w.broker.Close()
			w.conn, err = connection.Open(t.Context(), w.connects("test"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = w.conn.Close() }() // some tests leave it to be cut
			w.declare(w.orders)
			test(w)
			if t.Failed() {
				for n := range min(w.sent, 3) {
					t.Log(w.broker.Story(id(n)))
				}
			}
		})
	})
}

// connects returns the Config of a connection. Its heartbeats are rare, because the hours that pass in a bubble cost the
// time of their heartbeats.
func (w *fixture) connects(name string) connection.Config {
	return connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: w.broker.Dial, Name: name, Heartbeat: time.Hour}
}

// reopen replaces the connection by one with the heartbeats of the default.
func (w *fixture) reopen(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	w.Helper()
	cfg := w.connects("test")
	cfg.Dial, cfg.Heartbeat = dial, 0
	conn, err := connection.Open(w.Context(), cfg)
	if err != nil {
		w.Fatal(err)
	}
	_ = w.conn.Close()
	w.conn = conn // which the fixture closes
}

func (w *fixture) declare(specs ...topology.Spec) {
	w.Helper()
	if err := topology.Declare(w.Context(), w.conn, specs...); err != nil {
		w.Fatal(err)
	}
}

func id(n int) string { return fmt.Sprintf("m%d", n) }

// publish publishes n messages to the work queue, with ids from id(0) on.
func (w *fixture) publish(n int, change ...func(*rehoptest.Message)) {
	w.Helper()
	for range n {
		m := rehoptest.Message{RoutingKey: w.orders.Name, Publishing: amqp.Publishing{MessageId: id(w.sent), DeliveryMode: amqp.Persistent, Body: []byte("body")}}
		for _, c := range change {
			c(&m)
		}
		if queues, err := w.broker.Publish(m); err != nil || queues != 1 {
			w.Fatalf("publish: %d queues, %v", queues, err)
		}
		w.sent++
	}
}

// start runs a consumer; stop, which the end of the test calls, ends it. When start returns, the consumer has looked into
// its queue. One on a quorum queue of 3.10 that was empty then begins 2 s later, so a test of when messages are
// handled publishes them before the start, or calls begun.
func (w *fixture) start(handler consumer.Handler, cfg consumer.Config) (c *consumer.Consumer, stop func() error) {
	w.Helper()
	return w.startOn(w.orders, handler, cfg)
}

func (w *fixture) startOn(source topology.Source, handler consumer.Handler, cfg consumer.Config) (c *consumer.Consumer, stop func() error) {
	w.Helper()
	cfg.Traces = append(cfg.Traces, consumer.Trace{Settled: w.journal.note})
	c, err := consumer.New(w.conn, source, handler, cfg)
	if err != nil {
		w.Fatal(err)
	}
	stop = running(c)
	synctest.Wait()
	return c, stop
}

// running runs a consumer until stop is called, which returns what Run returns.
func running(c *consumer.Consumer) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
}

// begun waits until a consumer that was started on an empty queue fetches: on 3.10 the
// queue may be new.
func (w *fixture) begun() {
	synctest.Wait()
	if w.version == "3.10" && w.orders.Type == topology.Quorum {
		<-time.After(durations.Declaring)
		synctest.Wait()
	}
}

// stopped stops a consumer, which must end without an error.
func (w *fixture) stopped(stop func() error) {
	w.Helper()
	if err := stop(); err != nil {
		w.Errorf("Run: %v", err)
	}
}

// in returns the ids of the messages that are in a queue, in whosever hands, in
// their order.
func (w *fixture) in(queue string) (ids []string) {
	w.Helper()
	q, ok := w.broker.Queue(queue)
	if !ok {
		return nil
	}
	for _, m := range slices.Concat(q.Ready, q.Unacked, q.Delayed, q.Dead) {
		ids = append(ids, m.MessageId)
	}
	slices.Sort(ids)
	return ids
}

// has checks which messages are in a queue.
func (w *fixture) has(queue string, want ...string) {
	w.Helper()
	if got := w.in(queue); !slices.Equal(got, want) {
		w.Errorf("in %s: %v, want %v", queue, few(got), few(want))
	}
}

func few(ids []string) string {
	if len(ids) > 8 {
		return fmt.Sprintf("%d messages", len(ids))
	}
	return fmt.Sprint(ids)
}

// truthful checks that each message is where the latest Settlement of its says,
// and nowhere else.
func (w *fixture) truthful() {
	w.Helper()
	places := map[string][]consumer.Disposition{}
	note := func(queue string, p consumer.Disposition) {
		for _, id := range w.in(queue) {
			places[id] = append(places[id], p)
		}
	}
	note(w.orders.Name, consumer.DispositionRequeued)
	for waitNumber := range w.orders.Waits {
		note(route.WaitQueue(w.orders.Name, waitNumber+1), consumer.DispositionWait)
	}
	note(w.orders.DeadLetterQueue().Name, consumer.DispositionDeadLetter)
	for id, all := range w.journal.all() {
		told := all[len(all)-1]
		found := places[id]
		if told.Disposition == consumer.DispositionDone && len(found) == 0 || len(found) == 1 && found[0] == told.Disposition {
			continue
		}
		w.Errorf("%s: told that it is in place %v, found in %v\n%s", id, told, found, w.broker.Story(id))
	}
}

// ids returns those of the first n messages, in the order of has.
func ids(n int) (all []string) {
	for i := range n {
		all = append(all, id(i))
	}
	slices.Sort(all)
	return all
}

// letter returns the one dead letter.
func (w *fixture) letter() rehoptest.Message {
	w.Helper()
	q, _ := w.broker.Queue("orders.dlq")
	if len(q.Ready) != 1 {
		w.Fatalf("%d letters, want one", len(q.Ready))
	}
	return q.Ready[0]
}

// journal is what the hooks were told.
type journal struct {
	mu      sync.Mutex
	settled map[string][]consumer.Settlement
}

func (j *journal) note(_ context.Context, s consumer.Settled) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.settled[s.Delivery.ID] = append(j.settled[s.Delivery.ID], s.Settlement)
}

func (j *journal) of(id string) []consumer.Settlement {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.settled[id])
}

func (j *journal) all() map[string][]consumer.Settlement {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := map[string][]consumer.Settlement{}
	for id, s := range j.settled {
		all[id] = slices.Clone(s)
	}
	return all
}

// count returns how many deliveries were settled at a place.
func (j *journal) count(p consumer.Disposition) (n int) {
	for _, all := range j.all() {
		for _, s := range all {
			if s.Disposition == p {
				n++
			}
		}
	}
	return n
}

// lines is a logger that keeps what it is told.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(p))
	return len(p), nil
}

// with returns the lines that contain all of these texts.
func (l *lines) with(texts ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
next:
	for _, line := range l.all {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue next
			}
		}
		found = append(found, line)
	}
	return found
}

// raw runs commands of AMQP on a channel of its own.
func (w *fixture) raw(do func(*amqp.Channel) error) {
	w.Helper()
	session, err := w.conn.Session(w.Context(), connection.Consume)
	if err == nil {
		err = session.Do(w.Context(), do)
	}
	if err == nil {
		err = session.Close()
	}
	if err != nil {
		w.Fatal(err)
	}
}

// health returns the Health of a consumer, and its status in a word.
func health(c *consumer.Consumer) (status string, err error) {
	err = c.Health()
	var h *rehop.HealthError
	switch {
	case err == nil:
		return "healthy", nil
	case errors.As(err, &h) && h.Degraded:
		return "degraded", err
	}
	return "unhealthy", err
}
