package drift

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
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// The phases of a change in which a work queue gets another name.
const (
	onlyOld int32 = iota // NEW is not declared
	both
	onlyNew // the queue of OLD is unbound
)

// handled counts what a queue has done with each message.
type handled struct {
	mu   sync.Mutex
	done map[string]int
}

// The steps that rehop topology compare prints for a work queue with another name lose nothing: with messages in flight, each reaches
// one queue, or both while both are bound. They delete nothing that NEW keeps.
func TestAWorkQueueGetsAnotherName(t *testing.T) {
	onEachVersion(t, func(t *testing.T, n *nodes.Node) {
		v := newVhost(t, n, "renamed")
		bound := func(name, key string) topology.WorkQueue {
			return topology.WorkQueue{Name: name, Waits: delay.Schedule{300 * time.Millisecond}, Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: key}}}
		}
		shop, orders, purchases, mails := topology.Exchange{Name: "shop"}, bound("orders", "order.#"), bound("purchases", "order.#"), bound("mails", "mail.#")
		declare := func(specs ...topology.Spec) {
			t.Helper()
			if err := topology.Declare(t.Context(), v.conn, specs...); err != nil {
				t.Fatal(err)
			}
		}
		declare(shop, orders, mails)

		p, err := producer.New(v.conn, producer.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		var phase atomic.Int32
		var mu sync.Mutex
		began, confirmed := map[string]int32{}, map[string]int32{}
		sent := func() int { mu.Lock(); defer mu.Unlock(); return len(confirmed) }
		more := func() {
			t.Helper()
			want := sent() + 60
			poll.Until(t, time.Minute, "more messages are confirmed", func() bool { return sent() >= want })
		}
		publishing, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for i := 0; publishing.Err() == nil; i++ {
				<-tick.C
				id := fmt.Sprint(i)
				mu.Lock()
				began[id] = phase.Load()
				mu.Unlock()
				if _, err := p.Publish(publishing, producer.Message{Exchange: "shop", RoutingKey: "order.1", ID: id, Type: []string{"good", "slow", "bad"}[i%3]}); err == nil {
					mu.Lock()
					confirmed[id] = phase.Load()
					mu.Unlock()
				}
			}
		}()
		consume := func(w topology.WorkQueue, h *handled) (end func()) {
			t.Helper()
			c, err := consumer.New(v.conn, w, func(_ context.Context, d *consumer.Delivery) error {
				if d.Type == "bad" || d.Type == "slow" && d.Attempt == 1 {
					return errors.New("broken")
				}
				h.mu.Lock()
				defer h.mu.Unlock()
				h.done[d.ID]++
				return nil
			}, consumer.Config{Concurrency: 4})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- c.Run(ctx) }()
			return func() {
				cancel()
				if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("the consumer of %s: %v", w.Name, err)
				}
			}
		}
		old, current := &handled{done: map[string]int{}}, &handled{done: map[string]int{}}
		ofOld := consume(orders, old)
		more()

		// 1. NEW has the former queue too, without its Bindings.
		former := orders
		former.Bindings = nil
		phase.Store(both)
		declare(shop, purchases, mails, former)
		ofNew, keeps := consume(purchases, current), consume(former, old)
		more()
		// 2. No program of OLD runs, and it is unbound.
		ofOld()
		more()
		if err := v.unbind(binding{Source: "shop", Destination: "orders", DestinationType: "queue", RoutingKey: "order.#", Arguments: map[string]any{}}); err != nil {
			t.Fatal(err)
		}
		phase.Store(onlyNew)
		more()
		// 3. It is consumed until it and its waits are empty.
		count := func(queue string) (n int) {
			t.Helper()
			session, err := v.conn.Session(t.Context(), connection.Consume)
			if err == nil {
				err = session.Do(t.Context(), func(ch *amqp.Channel) error {
					q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
					n = q.Messages
					return err
				})
				_ = session.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		take := func(queue string, h *handled) {
			t.Helper()
			session, err := v.conn.Session(t.Context(), connection.Consume)
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			if err := session.Do(t.Context(), func(ch *amqp.Channel) error {
				for {
					m, ok, err := ch.Get(queue, true)
					if err != nil || !ok {
						return err
					}
					h.mu.Lock()
					h.done[m.MessageId]++
					h.mu.Unlock()
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		accounted := func(h *handled, dlq string, of func(began, confirmed int32) bool) bool {
			t.Helper()
			take(dlq, h)
			h.mu.Lock()
			defer h.mu.Unlock()
			mu.Lock()
			defer mu.Unlock()
			for id, at := range confirmed {
				if of(began[id], at) && h.done[id] == 0 {
					return false
				}
			}
			return true
		}
		poll.Until(t, time.Minute, "what only the former queue has is done", func() bool {
			return count("orders") == 0 && count("orders.wait.1") == 0 &&
				accounted(old, "orders.dlq", func(_, confirmed int32) bool { return confirmed == onlyOld })
		})
		if err := topology.Delete(t.Context(), v.conn, former); !errors.Is(err, topology.ErrInUse) {
			t.Errorf("deleted while it is consumed: %v", err)
		}
		for keeps(); count("orders")+count("orders.wait.1") > 0; keeps() { // a consumer that ends may have given something back
			keeps = consume(former, old)
			poll.Until(t, time.Minute, "the former queue is empty", func() bool { return count("orders") == 0 && count("orders.wait.1") == 0 })
		}
		// 4. The dead letters are taken. 5. It is deleted alone.
		take("orders.dlq", old)
		if err := topology.Delete(t.Context(), v.conn, former); err != nil {
			t.Error(err)
		}
		more()
		stop()
		<-ended
		poll.Until(t, time.Minute, "the queue of NEW is done", func() bool {
			return count("purchases") == 0 && count("purchases.wait.1") == 0 && accounted(current, "purchases.dlq", func(began, _ int32) bool { return began == onlyNew })
		})
		ofNew()
		take("purchases.dlq", current)
		if drift := v.verify(v.conn, shop, purchases, mails); len(drift.Differences) > 0 {
			t.Errorf("NEW has lost a part:\n%s", drift)
		}
		if drift := v.verify(v.conn, former); len(drift.Differences) < 3 {
			t.Errorf("the former queue is left:\n%s", drift)
		}
		counts := map[int]int{}
		for id, at := range confirmed {
			o, c := old.done[id], current.done[id]
			counts[o+c]++
			switch {
			case o+c == 0:
				t.Errorf("message %s is lost, published in phases %d to %d", id, began[id], at)
			case o > 1 || c > 1, at == onlyOld && c > 0, began[id] == onlyNew && o > 0:
				t.Errorf("message %s was handled %d times by the former queue and %d times by the new one, published in phases %d to %d", id, o, c, began[id], at)
			}
		}
		t.Logf("%d messages: %d handled once, and %d by both queues while both were bound", len(confirmed), counts[1], counts[2])
	})
}
