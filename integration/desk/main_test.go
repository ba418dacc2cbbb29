// Package desk_test holds package desk to its promises on real brokers.
package desk_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/child"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/topology"
)

// looks are more than the delivery limit of 20 that quorum queues have from 4.0 on.
var looks = flag.Int("looks", 30, "looks of TestNothingIsLostByLooking")

func TestMain(m *testing.M) {
	child.Main(work)
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil { // the columns of a test
		panic(err)
	}
	code := m.Run()
	for _, end := range brokers.closers {
		end()
	}
	os.Exit(code)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// brokers are those of the tests that do not break them, by version.
var brokers struct {
	sync.Mutex
	started map[string]func() (*broker.Broker, error)
	closers []func()
}

func start(version string) (*broker.Broker, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	return broker.Start(ctx, broker.Options{Version: version, Name: "rehop-desk"})
}

func shared(t testing.TB, version string) *broker.Broker {
	t.Helper()
	brokers.Lock()
	begin := brokers.started[version]
	if begin == nil {
		begin = sync.OnceValues(func() (*broker.Broker, error) {
			b, err := start(version)
			if err == nil {
				brokers.Lock()
				defer brokers.Unlock()
				brokers.closers = append(brokers.closers, func() { _ = b.Close(context.Background()) })
			}
			return b, err
		})
		if brokers.started == nil {
			brokers.started = map[string]func() (*broker.Broker, error){}
		}
		brokers.started[version] = begin
	}
	brokers.Unlock()
	b, err := begin()
	must(t, err)
	return b
}

// room is a broker with a connection, a journal and a queue of letters.
type room struct {
	*testing.T
	broker  *broker.Broker
	version string
	kind    topology.QueueType
	conn    *connection.Conn
	journal *desk.Journal
	folder  string // of the journal
	queue   string // of letters
	work    string // that they are sent back to
}

// onEach runs a test on each version and type of queue, beside other tests.
func onEach(t *testing.T, test func(r *room)) {
	t.Parallel()
	onColumns(t, available(t), test)
}

// onNewest is onEach on the newest version alone, for tests whose subject no version can
// change: the pace of a redrive, and letters that are collected and have left the broker.
func onNewest(t *testing.T, test func(r *room)) {
	t.Parallel()
	onNewestAlone(t, test)
}

// onNewestAlone is onNewest without other tests beside it, which would take the processor
// from one that measures a time.
func onNewestAlone(t *testing.T, test func(r *room)) {
	versions := available(t)
	onColumns(t, versions[len(versions)-1:], test)
}

func onColumns(t *testing.T, versions []string, test func(r *room)) {
	for _, version := range versions {
		for _, kind := range []topology.QueueType{topology.Quorum, topology.Classic} {
			t.Run(fmt.Sprintf("%s/%s", version, kind), func(t *testing.T) {
				t.Parallel()
				test(enter(t, shared(t, version), version, kind))
			})
		}
	}
}

// available returns the versions that there are; "" is one of another series.
func available(t testing.TB) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	versions, err := broker.Available(ctx)
	must(t, err)
	if len(versions) == 0 {
		versions = []string{""}
	}
	return versions
}

func enter(t *testing.T, b *broker.Broker, version string, kind topology.QueueType) *room {
	t.Helper()
	r := &room{T: t, broker: b, version: version, kind: kind, conn: connect(t, b)}
	r.work = fmt.Sprintf("work-%08x", rand.Uint32())
	r.queue = r.work + ".dlq"
	letters := topology.DeadLetterQueue{Name: r.queue, Type: kind}
	must(t, topology.Declare(t.Context(), r.conn, letters))
	r.declare(r.work, amqp.Table{"x-queue-type": string(kind)})
	var err error
	r.folder = t.TempDir()
	r.journal, err = desk.OpenJournal(r.folder)
	must(t, err)
	return r
}

func connect(t testing.TB, b *broker.Broker) *connection.Conn {
	t.Helper()
	conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{b.AMQPURL()}, ManagementURL: b.ManagementURL()})
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (r *room) channel() *amqp.Channel {
	r.Helper()
	conn, err := amqp.Dial(r.broker.AMQPURL())
	must(r.T, err)
	r.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	must(r.T, err)
	return ch
}

func (r *room) declare(queue string, args amqp.Table) {
	r.Helper()
	_, err := r.channel().QueueDeclare(queue, true, false, false, false, args)
	must(r.T, err)
}

// fill publishes n letters of the work queue, every other one for want of stock.
func (r *room) fill(queue string, n int) {
	r.Helper()
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	r.fillWith(queue, numbers)
}

// fillWith publishes the letters of these numbers to a queue, in their order.
func (r *room) fillWith(queue string, numbers []int) {
	r.Helper()
	r.publish(queue, numbers)
	r.has(queue, len(numbers))
}

// publish is fillWith for a queue that is in use.
func (r *room) publish(queue string, numbers []int) {
	r.Helper()
	ch := r.channel()
	must(r.T, ch.Confirm(false))
	var last *amqp.DeferredConfirmation
	for _, i := range numbers {
		why := "no stock"
		if i%2 == 1 {
			why = "no such customer"
		}
		var err error
		last, err = ch.PublishWithDeferredConfirm("", queue, false, false, amqp.Publishing{
			MessageId: id(i), DeliveryMode: amqp.Persistent, Body: fmt.Appendf(nil, "order %d", i),
			Headers: amqp.Table{
				"x-rehop-queue": r.work, "x-rehop-exchange": "shop", "x-rehop-routing-key": "order.paid", "x-rehop-final-attempts": int64(5),
				"x-rehop-cause": "exhausted", "x-rehop-error": why, "x-rehop-failed-at": time.Now(),
			},
		})
		must(r.T, err)
	}
	if last != nil {
		last.Wait()
	}
}

// fillSized publishes n letters of a size, from a number on.
func (r *room) fillSized(from, n, size int) {
	r.Helper()
	ch := r.channel()
	must(r.T, ch.Confirm(false))
	for i := range n {
		d, err := ch.PublishWithDeferredConfirm("", r.queue, false, false, amqp.Publishing{MessageId: id(from + i), DeliveryMode: amqp.Persistent, Body: make([]byte, size)})
		must(r.T, err)
		d.Wait()
	}
}

// eventually waits until the management API tells something of the queue of letters.
func (r *room) eventually(told func(desk.Queue) bool) {
	r.Helper()
	poll.Until(r.T, 30*time.Second, "the management API to be up to date", func() bool {
		queues, err := desk.Queues(r.Context(), r.conn)
		must(r.T, err)
		return slices.ContainsFunc(queues, func(q desk.Queue) bool { return q.Name == r.queue && told(q) })
	})
}

// fillNameless publishes n letters that are all alike, without message ids.
func (r *room) fillNameless(queue string, n int) {
	r.Helper()
	ch := r.channel()
	for range n {
		must(r.T, ch.Publish("", queue, false, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, Headers: amqp.Table{"x-rehop-queue": r.work, "x-rehop-cause": "exhausted", "x-rehop-final-attempts": int64(5)},
		}))
	}
	r.has(queue, n)
}

func id(i int) string { return fmt.Sprintf("m-%05d", i) }

// has waits until so many messages are ready in a queue.
func (r *room) has(queue string, n int) {
	r.Helper()
	ch := r.channel()
	have := -1
	poll.Until(r.T, 30*time.Second, fmt.Sprintf("%d messages in %s", n, queue), func() bool {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		must(r.T, err)
		have = q.Messages
		return have == n
	})
}

// drain takes all messages out of a queue.
func (r *room) drain(queue string) (all []amqp.Delivery) {
	r.Helper()
	ch := r.channel()
	for {
		d, ok, err := ch.Get(queue, true)
		must(r.T, err)
		if !ok {
			return all
		}
		all = append(all, d)
	}
}

func ids(all []amqp.Delivery) (names []string) {
	for _, d := range all {
		names = append(names, d.MessageId)
	}
	return names
}

// inOrder checks that letters are those of fill, those that keep says, in their order.
func (r *room) inOrder(queue string, n int, keep func(i int) bool) {
	r.Helper()
	var want []string
	for i := range n {
		if keep(i) {
			want = append(want, id(i))
		}
	}
	if got := ids(r.drain(queue)); !slices.Equal(got, want) {
		r.Errorf("%s: %d letters, want %d; the first that differs: %s", queue, len(got), len(want), firstDifference(got, want))
	}
}

func firstDifference(got, want []string) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("%s in place of %s at %d", got[i], want[i], i)
		}
	}
	return fmt.Sprintf("one is longer than %d", min(len(got), len(want)))
}

func all(int) bool { return true }

func (r *room) live() *desk.Live { return live(r.T, r.conn, r.queue, r.journal) }

func live(t testing.TB, conn *connection.Conn, queue string, journal *desk.Journal) *desk.Live {
	t.Helper()
	l, err := desk.NewLive(conn, queue, desk.LiveConfig{Journal: journal})
	must(t, err)
	return l
}
