package store_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// realBroker is a RabbitMQ.
type realBroker struct{ *broker.Broker }

// versions are those of RabbitMQ that there are; "" is one of another series.
var versions = sync.OnceValues(func() ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	all, err := broker.Available(ctx)
	if err == nil && len(all) == 0 {
		all = []string{""}
	}
	return all, err
})

// shared are the brokers of the tests that do not break them, by version.
var shared struct {
	sync.Mutex
	started map[string]func() (*broker.Broker, error)
	closers []func()
}

func closeBrokers() {
	for _, end := range shared.closers {
		end()
	}
}

// theBroker is one that the tests of a dialect share. Each dialect has another
// version, so that a test on all dialects is one on all versions.
func theBroker(t testing.TB, dialect store.Dialect) realBroker {
	t.Helper()
	all, err := versions()
	must(t, err)
	version := all[slices.Index([]store.Dialect{store.SQLite, store.MySQL, store.PostgreSQL}, dialect)%len(all)]
	shared.Lock()
	start := shared.started[version]
	if start == nil {
		start = sync.OnceValues(func() (*broker.Broker, error) { return startShared(version) })
		if shared.started == nil {
			shared.started = map[string]func() (*broker.Broker, error){}
		}
		shared.started[version] = start
	}
	shared.Unlock()
	b, err := start()
	must(t, err)
	return realBroker{b}
}

func startShared(version string) (*broker.Broker, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	b, err := broker.Start(ctx, broker.Options{Version: version, Name: "rehop-store"})
	if err == nil {
		shared.Lock()
		defer shared.Unlock()
		shared.closers = append(shared.closers, func() { _ = b.Close(context.Background()) })
	}
	return b, err
}

func (b realBroker) connect(t testing.TB, cfg connection.Config) *connection.Conn {
	t.Helper()
	cfg.URLs = []string{b.AMQPURL()}
	conn, err := connection.Open(t.Context(), cfg)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (b realBroker) producer(t testing.TB) *producer.Producer {
	t.Helper()
	p, err := producer.New(b.connect(t, connection.Config{}), producer.Config{})
	must(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// channel is a plain one.
func (b realBroker) channel(t testing.TB) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(b.AMQPURL())
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	must(t, err)
	return ch
}

var queues atomic.Int64

// queue declares a queue of its own, a quorum queue unless args say otherwise.
func (b realBroker) queue(t testing.TB, args amqp.Table) string {
	t.Helper()
	all := amqp.Table{"x-queue-type": "quorum"}
	maps.Copy(all, args)
	q, err := b.channel(t).QueueDeclare(fmt.Sprintf("store-%d", queues.Add(1)), true, false, false, false, all)
	must(t, err)
	return q.Name
}

// drain takes n messages and more, if they come, and counts each message id.
func (b realBroker) drain(t testing.TB, queue string, n int) map[string]int {
	t.Helper()
	ids := map[string]int{}
	for _, d := range b.take(t, queue, n) {
		ids[d.MessageId]++
	}
	return ids
}

// take takes messages until there are n, with an id of their own each, and none
// comes for a while. It gives up when none comes for much longer. What comes later
// stays in the queue: the channel is closed, and with it the consumer.
func (b realBroker) take(t testing.TB, queue string, n int) []amqp.Delivery {
	t.Helper()
	ch := b.channel(t)
	defer func() { must(t, ch.Close()) }()
	must(t, ch.Qos(1000, 0, false))
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	must(t, err)
	var all []amqp.Delivery
	ids := map[string]bool{}
	for {
		long := 30 * time.Second
		if len(ids) >= n {
			long = 2 * time.Second
		}
		select {
		case d, open := <-deliveries:
			if !open {
				t.Fatal("the channel was closed")
			}
			all = append(all, d)
			ids[d.MessageId] = true
			must(t, d.Ack(false))
		case <-time.After(long):
			return all
		}
	}
}

// TestThroughTheBroker: a message that took the way through a store arrives
// like one that did not.
func TestThroughTheBroker(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		b := theBroker(t, p.dialect)
		q := b.queue(t, nil)
		s := p.store(t, store.Config{Timeout: time.Minute})
		sender := b.producer(t)
		message := every("same")
		message.Exchange, message.RoutingKey, message.Replays, message.Expiration = "", q, 0, 0
		message.Headers["float64"] = -0.5 // Erlang knows no infinity: the broker closes the connection
		_, err := sender.Publish(t.Context(), message)
		must(t, err)
		must(t, s.Put(t.Context(), message, errAway))
		large := producer.Message{RoutingKey: q, ID: "large", Body: bytes.Repeat([]byte("0123456789abcdef"), 1<<20)}
		must(t, s.Put(t.Context(), large, errAway))
		forward(t, s, sender, store.ForwardConfig{})
		empties(t, s, store.Query{}, patience)
		all := b.take(t, q, 2) // ids: the large one comes last
		if len(all) != 3 {
			t.Fatalf("%d messages arrived, want 3", len(all))
		}
		direct, stored := all[0], all[1]
		if !bytes.Equal(all[2].Body, large.Body) {
			t.Errorf("a body of 16 MiB arrived as %d bytes", len(all[2].Body))
		}
		if stored.Headers["x-rehop-replays"] != int64(1) {
			t.Errorf("replays: %v", stored.Headers["x-rehop-replays"])
		}
		delete(stored.Headers, "x-rehop-replays")
		for _, d := range []*amqp.Delivery{&direct, &stored} {
			d.DeliveryTag, d.Redelivered, d.Acknowledger, d.ConsumerTag = 0, false, nil, ""
		}
		if !reflect.DeepEqual(direct, stored) {
			t.Errorf("published\n%+v\nby the store\n%+v", direct, stored)
		}
	})
}

// TestTargetsThatDoNotTakeIt: a missing exchange and a full queue hold up only
// their own letters, and get them when they are there.
func TestTargetsThatDoNotTakeIt(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		b := theBroker(t, p.dialect)
		good := b.queue(t, nil)
		full := b.queue(t, amqp.Table{"x-queue-type": "classic", "x-max-length": 5, "x-overflow": "reject-publish"})
		exchange := full + "-late"
		s := p.store(t, store.Config{})
		for i := range 150 {
			m := producer.Message{RoutingKey: good, ID: fmt.Sprint(i)}
			switch i % 3 {
			case 0:
				m.RoutingKey = full
			case 1:
				m.Exchange, m.RoutingKey = exchange, "k"
			}
			must(t, s.Put(t.Context(), m, errAway))
		}
		forward(t, s, b.producer(t), store.ForwardConfig{})
		empties(t, s, store.Query{RoutingKey: good}, patience)
		poll.Until(t, patience, "the full queue refuses", func() bool {
			letters := find(t, s, store.Query{RoutingKey: full})
			return len(letters) > 0 && len(letters) <= 45 && letters[0].Tries > 0 && letters[0].State == store.Ready
		})
		late := b.queue(t, nil)
		ch := b.channel(t)
		must(t, ch.ExchangeDeclare(exchange, "direct", true, false, false, false, nil))
		must(t, ch.QueueBind(late, "k", exchange, false, nil))
		got := map[string]int{}
		poll.Until(t, patience, "all are taken", func() bool {
			for id, n := range b.drain(t, full, 0) { // makes room
				got[id] += n
			}
			n, err := s.Count(t.Context(), store.Query{})
			return err == nil && n == 0
		})
		for queue, left := range map[string]int{good: 50, full: 50 - len(got), late: 50} {
			for id, n := range b.drain(t, queue, left) {
				got[id] += n
			}
		}
		for i := range 150 {
			if got[fmt.Sprint(i)] != 1 {
				t.Errorf("message %d arrived %d times", i, got[fmt.Sprint(i)])
			}
		}
	})
}

// alarm: while the broker is short of memory the letters wait.
func alarm(t *testing.T, b realBroker) {
	ctx := t.Context()
	q := b.queue(t, nil)
	s := newPlace(t, store.SQLite).store(t, store.Config{})
	sender := b.producer(t)
	_, err := sender.Publish(ctx, producer.Message{RoutingKey: q, ID: "before"}) // a socket that publishes is told of the alarm
	must(t, err)
	_, err = b.Exec(ctx, "rabbitmqctl", "set_vm_memory_high_watermark", "0.0000001")
	must(t, err)
	ids := fill(t, s, 500, producer.Message{RoutingKey: q})
	forward(t, s, sender, store.ForwardConfig{Lease: 4 * time.Second})
	// Longer than a lease: those that were written are tried again.
	<-time.After(6 * time.Second)
	_, err = b.Exec(ctx, "rabbitmqctl", "set_vm_memory_high_watermark", "0.6")
	must(t, err)
	empties(t, s, store.Query{}, patience)
	got := b.drain(t, q, len(ids))
	twice := 0
	for _, id := range ids {
		if got[id] == 0 {
			t.Errorf("%s is lost", id)
		}
		twice += count(got[id] > 1)
	}
	t.Logf("%d of %d arrived twice", twice, len(ids))
}

// TestTheBrokerIsDownAtTheStart: a process that starts without its broker stores
// what it publishes, and the messages arrive when the broker is there.
func TestTheBrokerIsDownAtTheStart(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		b := theBroker(t, p.dialect)
		q := b.queue(t, nil)
		url, proxy := b.through(t)
		must(t, proxy.Refuse(true))
		conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{url}, Lazy: true})
		must(t, err)
		t.Cleanup(func() { conn.Close() })
		s := p.store(t, store.Config{})
		publisher, err := producer.New(conn, producer.Config{Fallback: []producer.Sink{s}, FallbackAfter: 100 * time.Millisecond})
		must(t, err)
		t.Cleanup(func() { publisher.Close() })
		forwarder, err := producer.New(conn, producer.Config{})
		must(t, err)
		t.Cleanup(func() { forwarder.Close() })
		forward(t, s, forwarder, store.ForwardConfig{})
		for i := range 100 {
			r, err := publisher.Publish(t.Context(), producer.Message{RoutingKey: q, ID: fmt.Sprint(i)})
			if err != nil || r.Place != producer.PlaceFallback {
				t.Fatalf("%+v, %v", r, err)
			}
		}
		must(t, proxy.Lift())
		empties(t, s, store.Query{}, patience)
		got := b.drain(t, q, 100)
		for i := range 100 {
			if got[fmt.Sprint(i)] != 1 {
				t.Errorf("message %d arrived %d times", i, got[fmt.Sprint(i)])
			}
		}
	})
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
