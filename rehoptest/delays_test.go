package rehoptest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

var errNoPaper = errors.New("the printer is out of paper")

// newBrokerOf is newBroker for a version, with other specifications.
func newBrokerOf(t *testing.T, version string, specs ...topology.Spec) (*rehoptest.Broker, *connection.Conn) {
	t.Helper()
	broker, err := rehoptest.NewBroker(rehoptest.Config{Version: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = broker.Close() })
	conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: broker.Dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := topology.Declare(t.Context(), conn, specs...); err != nil {
		t.Fatal(err)
	}
	return broker, conn
}

func send(t *testing.T, conn *connection.Conn, messages ...producer.Message) {
	t.Helper()
	publisher, err := producer.New(conn, producer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer publisher.Close()
	if _, err := publisher.PublishAll(t.Context(), messages); err != nil {
		t.Fatal(err)
	}
}

// arrival is one run of a handler.
type arrival struct {
	after         time.Duration // since the test began
	attempt       int
	exchange, key string
	priority      uint8
	headers       int
}

// arrivals consumes, and returns who arrived when, in order. handler says what
// becomes of each.
func arrivals(t *testing.T, conn *connection.Conn, w topology.WorkQueue, handler func(*consumer.Delivery) error) func(id string) []arrival {
	t.Helper()
	began := time.Now()
	all := map[string][]arrival{}
	consume(t, conn, w, func(_ context.Context, d *consumer.Delivery) error {
		all[d.ID] = append(all[d.ID], arrival{time.Since(began), d.Attempt, d.Exchange, d.RoutingKey, d.Priority, len(header.Strip(d.Headers))})
		return handler(d)
	})
	time.Sleep(3 * time.Second) // on 3.x a queue that may be new is not consumed at once
	began = time.Now()
	return func(id string) []arrival {
		synctest.Wait()
		return all[id]
	}
}

func done(*consumer.Delivery) error { return nil }

// on runs a test in a bubble for each version.
func on(t *testing.T, test func(t *testing.T, version string), versions ...string) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, version) })
		})
	}
}

// late is how much later than its delay a message may come here, where a hop takes
// a millisecond at most.
const late = 50 * time.Millisecond

func TestDelaysAreExactAndInNobodysWay(t *testing.T) {
	on(t, func(t *testing.T, version string) {
		broker, conn := newBrokerOf(t, version, topology.Delays{}, topology.Exchange{Name: "shop"}, orders)
		delays := []time.Duration{2 * time.Hour, time.Second, 61 * time.Second, 30 * time.Minute, 1500 * time.Millisecond, 7 * time.Second}
		var messages []producer.Message
		for _, d := range delays {
			for _, to := range []string{"", "shop"} {
				m := producer.Message{ID: to + d.String(), Exchange: to, RoutingKey: "orders", Delay: d, Priority: 3}
				if to != "" {
					m.RoutingKey = "order.paid"
				}
				messages = append(messages, m)
			}
		}
		of := arrivals(t, conn, orders, done)
		send(t, conn, messages...)
		time.Sleep(3 * time.Hour)
		for _, m := range messages {
			got := of(m.ID)
			want := (m.Delay + time.Second - 1).Truncate(time.Second)
			if len(got) != 1 || got[0].after < want || got[0].after > want+late {
				t.Errorf("%q came %v, want once after %v:\n%s", m.ID, got, want, broker.Story(m.ID))
				continue
			}
			if a := got[0]; a.exchange != m.Exchange || a.key != m.RoutingKey || a.attempt != 1 || a.priority != 3 {
				t.Errorf("%q came as %+v, want exchange %q, key %q and attempt 1", m.ID, a, m.Exchange, m.RoutingKey)
			}
		}
	}, "3.10", "4.0", "4.3")
}

func TestDelaysOfMonthsNeedNobody(t *testing.T) {
	on(t, func(t *testing.T, version string) {
		broker, conn := newBrokerOf(t, version, topology.Delays{}, topology.WorkQueue{Name: "orders"})
		delays := []time.Duration{3 * 365 * 24 * time.Hour, 30 * 24 * time.Hour, 10 * time.Hour, time.Second}
		var messages []producer.Message
		for _, d := range delays {
			messages = append(messages, producer.Message{ID: d.String(), RoutingKey: "orders", Delay: d})
		}
		began := time.Now()
		send(t, conn, messages...)
		_ = conn.Close() // its heartbeats take time, also in a bubble
		slices.Reverse(delays)
		for i, d := range delays {
			for _, at := range []struct {
				when time.Duration
				want int
			}{{d - time.Millisecond, i}, {d + late, i + 1}} {
				time.Sleep(at.when - time.Since(began))
				if q, _ := broker.Queue("orders"); len(q.Ready) != at.want {
					t.Fatalf("after %v there are %d messages, want %d:\n%s", at.when, len(q.Ready), at.want, broker.Story(d.String()))
				}
			}
		}
	}, "3.10", "4.0", "4.3")
}

func TestADelayedMessageFailsLikeAnyOther(t *testing.T) {
	on(t, func(t *testing.T, version string) {
		broker, conn := newBrokerOf(t, version, topology.Delays{}, topology.Exchange{Name: "shop"}, orders)
		of := arrivals(t, conn, orders, func(*consumer.Delivery) error { return errNoPaper })
		send(t, conn, producer.Message{ID: "1", Exchange: "shop", RoutingKey: "order.paid", Delay: 13 * time.Second})
		time.Sleep(time.Hour)
		due := 13 * time.Second
		for i, a := range of("1") {
			if a.attempt != i+1 || a.exchange != "shop" || a.key != "order.paid" || a.after < due || a.after > due+late*time.Duration(i+1) {
				t.Errorf("arrival %d is %+v, want attempt %d after %v, by shop and order.paid", i+1, a, i+1, due)
			}
			wait, _ := orders.Waits.After(i + 1)
			due += wait
		}
		letters, _ := broker.Queue("orders.dlq")
		if n := len(of("1")); n != 5 || len(letters.Ready) != 1 {
			t.Fatalf("%d attempts and %d letters, want 5 and 1:\n%s", n, len(letters.Ready), broker.Story("1"))
		}
		if h := letters.Ready[0].Headers; h[header.Exchange] != "shop" || h[header.RoutingKey] != "order.paid" {
			t.Errorf("the letter says that it came by %v and %v", h[header.Exchange], h[header.RoutingKey])
		}
	}, "3.10", "4.0", "4.3")
}

func TestRetryAfterIsExactWhereDelaysAre(t *testing.T) {
	type row struct {
		rule  string
		specs []topology.Spec
		want  time.Duration
	}
	exact, policy := 61*time.Second, 5*time.Minute
	classic := orders
	classic.Type = topology.Classic
	for version, rows := range map[string][]row{
		"3.10": {{"3.x keeps to its waits, which are safe", []topology.Spec{topology.Delays{}, orders}, policy}},
		"4.0": {
			{"with delays", []topology.Spec{topology.Delays{}, orders}, exact},
			{"a classic work queue too", []topology.Spec{topology.Delays{}, classic}, exact},
			{"without", []topology.Spec{orders}, policy},
		},
		"4.3": {
			{"with delays", []topology.Spec{topology.Delays{}, orders}, exact},
			{"beyond Max it goes round again", []topology.Spec{topology.Delays{Max: 20 * time.Second}, orders}, policy},
			{"beyond all, it goes round in the longest", []topology.Spec{topology.Delays{Max: 20 * time.Second}, short()}, exact},
			{"a wait that is as short is preferred", []topology.Spec{topology.Delays{}, minute()}, exact},
		},
	} {
		for _, r := range rows {
			t.Run(version+" "+r.rule, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					testRetryAfter(t, version, r.specs, r.want)
				})
			})
		}
	}
}

// short and minute are orders with other waits.
func short() topology.WorkQueue {
	w := orders
	w.Bindings, w.Waits = nil, delay.Fixed(time.Second, 4)
	return w
}

func minute() topology.WorkQueue {
	w := orders
	w.Bindings, w.Waits = nil, delay.Fixed(61*time.Second, 4)
	return w
}

func testRetryAfter(t *testing.T, version string, specs []topology.Spec, want time.Duration) {
	broker, conn := newBrokerOf(t, version, append(specs, topology.Exchange{Name: "shop"})...)
	w := specs[len(specs)-1].(topology.WorkQueue)
	of := arrivals(t, conn, w, func(d *consumer.Delivery) error {
		switch d.Attempt {
		case 1:
			return consumer.RetryAfter(61*time.Second, errNoPaper)
		case 2:
			return errNoPaper
		}
		return nil
	})
	send(t, conn, producer.Message{ID: "1", RoutingKey: "orders", Priority: 7, Headers: map[string]any{"a": "b"}})
	time.Sleep(time.Hour)
	got := of("1")
	if len(got) != 3 {
		t.Fatalf("%d attempts, want 3:\n%s", len(got), broker.Story("1"))
	}
	if d := got[1].after - got[0].after; d < want || d > want+time.Second+late {
		t.Errorf("came again after %v, want %v:\n%s", d, want, broker.Story("1"))
	}
	if d := got[2].after - got[1].after; d < w.Waits[1] || d > w.Waits[1]+late {
		t.Errorf("the second failure waited %v, want %v", d, w.Waits[1])
	}
	for i, a := range got {
		if a.attempt != i+1 || a.key != "orders" || a.exchange != "" || a.priority != 7 || a.headers != 1 {
			t.Errorf("arrival %d is %+v, want attempt %d, the default exchange, key orders, priority 7 and one header", i+1, a, i+1)
		}
	}
}

func TestATargetThatIsGone(t *testing.T) {
	on(t, func(t *testing.T, version string) {
		delays := topology.Delays{Max: time.Minute}
		broker, conn := newBrokerOf(t, version, delays, topology.Exchange{Name: "shop"}, orders)
		other := topology.WorkQueue{Name: "tickets"}
		if err := topology.Declare(t.Context(), conn, delays, other); err != nil {
			t.Fatal(err)
		}
		var messages []producer.Message
		for i := range 100 { // more than 32, which an at-least-once queue has in flight
			messages = append(messages,
				producer.Message{ID: fmt.Sprintf("gone %d", i), RoutingKey: "orders", Delay: 20 * time.Second},
				producer.Message{ID: fmt.Sprintf("unbound %d", i), Exchange: "shop", RoutingKey: "nobody", Delay: 20 * time.Second},
				producer.Message{ID: fmt.Sprintf("there %d", i), RoutingKey: "tickets", Delay: 20 * time.Second})
		}
		of := arrivals(t, conn, other, done)
		send(t, conn, messages...)
		if err := topology.DeleteAll(t.Context(), conn, orders); err != nil {
			t.Fatal(err)
		}
		time.Sleep(21 * time.Second)
		for i := range 100 {
			if id := fmt.Sprintf("there %d", i); len(of(id)) != 1 || of(id)[0].after > 21*time.Second {
				t.Fatalf("%q came %v, want once after 20 s:\n%s", id, of(id), broker.Story(id))
			}
		}
		stranded := delays.Stranded()
		if q, _ := broker.Queue(stranded.Name); len(q.Ready) != 200 {
			t.Fatalf("%d messages in %q, want 200", len(q.Ready), stranded.Name)
		}
		// A person declares the queue again, and sends what is stranded to it.
		if err := topology.Declare(t.Context(), conn, delays, orders); err != nil {
			t.Fatal(err)
		}
		publisher, err := producer.New(conn, producer.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer publisher.Close()
		janitor, err := consumer.New(conn, stranded, func(ctx context.Context, d *consumer.Delivery) error {
			if d.History.Failure.Cause != rehop.CauseUnroutable {
				t.Errorf("%q is stranded because of %q, want unroutable", d.ID, d.History.Failure.Cause)
			}
			if strings.HasPrefix(d.ID, "unbound") {
				if d.Exchange != "shop" || d.RoutingKey != "nobody" {
					t.Errorf("%q was for %q, key %q", d.ID, d.Exchange, d.RoutingKey)
				}
				return nil
			}
			_, err := publisher.Publish(ctx, producer.FromDelivery(d.AMQP()))
			return err
		}, consumer.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- janitor.Run(ctx) }()
		time.Sleep(10 * time.Second)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if q, _ := broker.Queue("orders"); len(q.Ready) != 100 {
			t.Errorf("%d messages were sent again, want 100", len(q.Ready))
		}
	}, "4.0", "4.3")
}

// On 4.0 a waiting message of high priority holds back expired ones of low
// priority in the same quorum queue.
func TestPriorityDelaysNobodyElse(t *testing.T) {
	on(t, func(t *testing.T, version string) {
		broker, conn := newBrokerOf(t, version, topology.Delays{Max: time.Hour}, topology.WorkQueue{Name: "orders"})
		w := topology.WorkQueue{Name: "orders"}
		of := arrivals(t, conn, w, done)
		began := time.Now()
		due := map[string]time.Duration{}
		for i := range 60 {
			id := fmt.Sprint(i)
			due[id] = time.Since(began) + 32*time.Second
			send(t, conn, producer.Message{ID: id, RoutingKey: "orders", Delay: 32 * time.Second, Priority: uint8(1 + 8*(i%2))})
			time.Sleep(time.Second)
		}
		time.Sleep(time.Hour)
		for id, due := range due {
			if got := of(id); len(got) != 1 || got[0].after < due || got[0].after > due+late {
				t.Errorf("%q came %v, want after %v:\n%s", id, got, due, broker.Story(id))
			}
		}
	}, "4.0", "4.3")
}
