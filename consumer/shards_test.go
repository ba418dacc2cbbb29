package consumer_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// shards declares shards with the type and the waits of the fixture.
func (w *fixture) shards(count int, change ...func(*topology.Shards)) topology.Shards {
	w.Helper()
	s := topology.Shards{Name: "bills", Count: count, Type: w.orders.Type, Waits: w.orders.Waits}
	for _, c := range change {
		c(&s)
	}
	w.declare(s)
	return s
}

// publishTo publishes a message of a key to a queue, in its order.
func (w *fixture) publishTo(queue, id, key string) {
	w.Helper()
	m := rehoptest.Message{RoutingKey: queue, Publishing: amqp.Publishing{MessageId: id, DeliveryMode: amqp.Persistent, Headers: amqp.Table{header.OrderKey: key}}}
	if queues, err := w.broker.Publish(m); err != nil || queues != 1 {
		w.Fatalf("publish: %d queues, %v", queues, err)
	}
}

func TestMessagesStayInTheShardOfTheirKey(t *testing.T) {
	everywhere(t, func(w *fixture) {
		s := w.shards(4)
		var mu sync.Mutex
		visits := map[string][]string{} // by id
		c, stop := w.startOn(s, func(_ context.Context, d *consumer.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			visits[d.ID] = append(visits[d.ID], fmt.Sprintf("%s %d", d.Queue, d.Attempt))
			return errBroken
		}, consumer.Config{Concurrency: 3, KeyLimit: 1})
		want, queues, letters := map[string][]string{}, map[string]bool{}, []string{}
		for n := range 30 {
			key := fmt.Sprint("customer-", n)
			queue := s.Queue(key)
			queues[queue] = true
			w.publishTo(queue, key, key)
			want[key] = []string{queue + " 1", queue + " 2", queue + " 3"}
			letters = append(letters, key)
		}
		if len(queues) != 4 {
			w.Fatalf("the keys are in %d shards", len(queues))
		}
		time.Sleep(10 * time.Minute)
		if err := c.Health(); err != nil {
			w.Errorf("Health: %v", err)
		}
		w.stopped(stop)
		for id, all := range want {
			if !slices.Equal(visits[id], all) {
				w.Errorf("%s is handled as %q, want %q", id, visits[id], all)
			}
		}
		slices.Sort(letters)
		w.has("bills.dlq", letters...)
	})
}

// Retries in place keep the order of a key; keys of other shards go on meanwhile.
func TestTheOrderOfAKeyInShards(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		w.orders.Waits = delay.Schedule{time.Second, 2 * time.Second}
		s := w.shards(4)
		o := newOrdered()
		failed := map[string]bool{}
		var mu sync.Mutex
		_, stop := w.startOn(s, func(_ context.Context, d *consumer.Delivery) error {
			mu.Lock()
			first := !failed[d.ID] && strings.HasSuffix(d.ID, "0")
			failed[d.ID] = true
			mu.Unlock()
			if first {
				return errBroken
			}
			o.handle(d.OrderKey, d.ID, 50*time.Millisecond)
			return nil
		}, consumer.Config{Concurrency: 8, KeyLimit: 1, RetryInPlace: true})
		want := map[string][]string{}
		for n := range 400 {
			key := fmt.Sprint("k", n%20)
			w.publishTo(s.Queue(key), id(n), key)
			want[key] = append(want[key], id(n))
		}
		time.Sleep(10 * time.Minute)
		w.stopped(stop)
		for key, all := range want {
			if !slices.Equal(o.got[key], all) || o.most[key] != 1 {
				w.Errorf("key %s: %d at a time, in the order %v; want %v", key, o.most[key], o.got[key], all)
			}
		}
		if o.widest < 4 { // what waits in place has a slot, too
			w.Errorf("%d at a time, want keys side by side", o.widest)
		}
	})
}

// A full shard takes no more than its share, and no free handler waits for another shard.
func TestShardsAreHandledFairly(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		for _, concurrency := range []int{1, 4} {
			s := w.shards(3)
			queues := s.WorkQueues()
			for n := range 300 {
				w.publishTo(queues[0].Name, fmt.Sprint("full", n), "a")
			}
			for n := range 30 {
				w.publishTo(queues[2].Name, fmt.Sprint("few", n), "b")
			}
			var mu sync.Mutex
			var begun []string
			var first, last time.Time
			_, stop := w.startOn(s, func(_ context.Context, d *consumer.Delivery) error {
				mu.Lock()
				begun = append(begun, d.Queue)
				if last = time.Now(); first.IsZero() {
					first = last
				}
				mu.Unlock()
				time.Sleep(10 * time.Millisecond)
				return nil
			}, consumer.Config{Concurrency: concurrency})
			time.Sleep(time.Minute)
			w.stopped(stop)
			if len(begun) != 330 {
				w.Fatalf("%d are handled, want 330", len(begun))
			}
			lastOfFew := 0
			for i, queue := range begun {
				if queue == queues[2].Name {
					lastOfFew = i
				}
			}
			if lastOfFew > 60+8*concurrency {
				w.Errorf("with %d handlers the last of 30 messages is at place %d, want every second place, or nearly", concurrency, lastOfFew)
			}
			busy := time.Duration(330/concurrency) * 10 * time.Millisecond
			if took := last.Sub(first); took > busy*11/10 {
				w.Errorf("with %d handlers all took %v, want about %v", concurrency, took, busy)
			}
			if err := topology.DeleteAll(w.Context(), w.conn, s); err != nil {
				w.Fatal(err)
			}
		}
	})
}

func TestShardsOfASingleActiveConsumer(t *testing.T) {
	onQuorumQueues(t, func(w *fixture) {
		s := w.shards(4, func(s *topology.Shards) { s.SingleActiveConsumer = true })
		o := newOrdered()
		handler := func(of string) consumer.Handler {
			return func(_ context.Context, d *consumer.Delivery) error {
				o.handle(d.OrderKey, d.ID, 20*time.Millisecond)
				o.handle(of, d.ID, 0)
				return nil
			}
		}
		cfg := consumer.Config{Concurrency: 4, KeyLimit: 1}
		_, stopFirst := w.startOn(s, handler("first"), cfg)
		time.Sleep(time.Minute)
		_, stopSecond := w.startOn(s, handler("second"), cfg)
		time.Sleep(time.Minute)
		want := map[string][]string{}
		for n := range 400 {
			key := fmt.Sprint("k", n%20)
			w.publishTo(s.Queue(key), id(n), key)
			want[key] = append(want[key], id(n))
		}
		time.Sleep(time.Second)
		w.stopped(stopFirst) // in the middle
		time.Sleep(time.Minute)
		w.stopped(stopSecond)
		for key, all := range want {
			if !slices.Equal(o.got[key], all) || o.most[key] != 1 {
				w.Errorf("key %s: %d at a time, in the order %v; want %v", key, o.most[key], o.got[key], all)
			}
		}
		if len(o.got["first"]) == 0 || len(o.got["second"]) == 0 {
			w.Errorf("the first consumer has handled %d, the second %d; want both", len(o.got["first"]), len(o.got["second"]))
		}
	})
}

// An old process knows three shards, a new one four, and both consume. Nothing is lost, and the keys
// that the growth does not move keep their order.
func TestAGrowthOfShardsWithMessagesInFlight(t *testing.T) {
	onQuorumQueues(t, func(w *fixture) {
		single := func(s *topology.Shards) { s.SingleActiveConsumer = true }
		before := w.shards(3, single)
		o := newOrdered()
		handle := func(_ context.Context, d *consumer.Delivery) error {
			o.handle(d.OrderKey, d.ID, 20*time.Millisecond)
			return nil
		}
		cfg := consumer.Config{Concurrency: 4, KeyLimit: 1}
		_, stopOld := w.startOn(before, handle, cfg)
		want := map[string][]string{}
		send := func(s topology.Shards, from int) {
			for n := from; n < from+200; n++ {
				key := fmt.Sprint("k", n%40)
				w.publishTo(s.Queue(key), id(n), key)
				want[key] = append(want[key], id(n))
			}
		}
		send(before, 0)
		time.Sleep(300 * time.Millisecond)
		after := w.shards(4, single)
		_, stopNew := w.startOn(after, handle, cfg)
		send(after, 200)
		time.Sleep(300 * time.Millisecond)
		w.stopped(stopOld)
		time.Sleep(time.Minute)
		w.stopped(stopNew)
		moved := 0
		for key, all := range want {
			got := slices.Clone(o.got[key])
			if before.Queue(key) != after.Queue(key) {
				moved++
				slices.Sort(all)
				slices.Sort(got)
			}
			if !slices.Equal(got, all) {
				w.Errorf("key %s, from %s to %s: handled %v, want %v", key, before.Queue(key), after.Queue(key), got, all)
			}
		}
		if moved == 0 || moved > 20 {
			w.Errorf("%d of 40 keys move, want about ten", moved)
		}
	})
}

func TestBatchesOfShards(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		s := w.shards(3)
		for i, queue := range s.WorkQueues() {
			for n := range 25 {
				w.publishTo(queue.Name, fmt.Sprintf("%d.%d", i, n), "")
			}
		}
		var mu sync.Mutex
		handled, batches := 0, 0
		_, stop := w.startBatch(s, func(_ context.Context, batch []*consumer.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			handled, batches = handled+len(batch), batches+1
			for _, d := range batch {
				if d.Queue != batch[0].Queue {
					w.Errorf("a batch has messages of %s and %s", d.Queue, batch[0].Queue)
				}
			}
			return nil
		}, consumer.Batch{Size: 10, Linger: 50 * time.Millisecond}, consumer.Config{Concurrency: 2})
		time.Sleep(time.Minute)
		w.stopped(stop)
		if handled != 75 || batches > 15 {
			w.Errorf("%d messages in %d batches, want 75 in about nine", handled, batches)
		}
	})
}

func TestAMessageWithAnExactDelayReachesItsShard(t *testing.T) {
	everywhere(t, func(w *fixture) {
		s := topology.Shards{Name: "bills", Count: 4, Type: w.orders.Type, Waits: delay.Schedule{5 * time.Minute}}
		w.declare(topology.Delays{Max: time.Hour}, s)
		p, err := producer.New(w.conn, producer.Config{})
		if err != nil {
			w.Fatal(err)
		}
		defer func() { _ = p.Close() }()
		var mu sync.Mutex
		starts := map[string][]string{}
		began := time.Now()
		_, stop := w.startOn(s, func(_ context.Context, d *consumer.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			starts[d.ID] = append(starts[d.ID], d.Queue)
			if time.Since(began) < 90*time.Second {
				w.Errorf("%s is early, after %v", d.ID, time.Since(began))
			}
			if d.Attempt == 1 {
				return consumer.RetryAfter(61*time.Second, errBroken)
			}
			return nil
		}, consumer.Config{})
		want := map[string]string{}
		for n := range 8 {
			key := fmt.Sprint("customer-", n)
			want[key] = s.Queue(key)
			if _, err := p.Publish(w.Context(), producer.Message{RoutingKey: s.Queue(key), OrderKey: key, ID: key, Delay: 90 * time.Second}); err != nil {
				w.Fatal(err)
			}
		}
		time.Sleep(10 * time.Minute)
		w.stopped(stop)
		for id, queue := range want {
			if !slices.Equal(starts[id], []string{queue, queue}) {
				w.Errorf("%s is handled in %q, want %s twice", id, starts[id], queue)
			}
		}
	})
}

func TestMistakesWithShardsAreNamed(t *testing.T) {
	onNewest(t, func(w *fixture) {
		s := w.shards(4)
		handler := func(context.Context, *consumer.Delivery) error { return nil }
		for _, tt := range []struct {
			rule string
			err  func() error
			want string
		}{
			{"limits of lanes", func() error {
				_, err := consumer.New(w.conn, s, handler, consumer.Config{Lanes: map[string]consumer.LaneLimits{"00": {Rate: 1}}})
				return err
			}, "Config.Lanes has limits for 1 lane, want none: the source is not topology.Lanes"},
			{"a settler", func() error {
				_, err := consumer.NewSettler(w.conn, s, consumer.SettlerConfig{})
				return err
			}, `source is "bills", which has several queues, want one of its WorkQueues`},
			{"no shards", func() error {
				_, err := consumer.New(w.conn, topology.Shards{Name: "bills"}, handler, consumer.Config{})
				return err
			}, `Shards "bills": Count is 0, want 1 to 100`},
			{"a message without a key", func() error {
				return producer.Message{RoutingKey: s.Queue("")}.Validate()
			}, "RoutingKey is empty, and so is Exchange: the default exchange wants the name of a queue as RoutingKey (topology.Shards.Queue returns none for an empty key)"},
			{"retries in place that take too long", func() error {
				long := s
				long.Waits = delay.Schedule{time.Hour}
				_, err := consumer.New(w.conn, long, handler, consumer.Config{RetryInPlace: true})
				return err
			}, `the waits of queue "bills.00" are 1h0m0s in sum`},
		} {
			if err := tt.err(); err == nil || !strings.Contains(err.Error(), tt.want) || rehop.ClassOf(err) != rehop.ClassBug {
				w.Errorf("%s: %v, want %q", tt.rule, err, tt.want)
			}
		}
	})
}

// A consumer of shards is degraded by one of them, and unhealthy by all.
func TestHealthOfShards(t *testing.T) {
	onNewest(t, func(w *fixture) {
		s := w.shards(3)
		c, stop := w.startOn(s, func(context.Context, *consumer.Delivery) error { return nil }, consumer.Config{})
		defer func() { _ = stop() }()
		w.begun()
		if err := c.Health(); err != nil {
			w.Errorf("Health: %v, want healthy", err)
		}
		w.raw(func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete("bills.01", false, false, false)
			return err
		})
		synctest.Wait()
		time.Sleep(time.Minute)
		status, err := health(c)
		if status != "degraded" || !strings.Contains(err.Error(), `"bills.01"`) || strings.Contains(err.Error(), `"bills.00"`) {
			w.Errorf("Health: %s, %v; want degraded by bills.01", status, err)
		}
		w.declare(s)
		time.Sleep(time.Minute)
		if status, err := health(c); status != "healthy" {
			w.Errorf("Health: %s, %v; want healthy again", status, err)
		}
		if got, _ := route.Of(s); len(got.Routes) != 3 || got.Shards != "bills" {
			w.Errorf("the source is %+v", got)
		}
	})
}
