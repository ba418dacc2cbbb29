package otel_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/otel/internal/catalog"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/topology"
)

const queueLabel, orders_ = "messaging.destination.name", "orders"

func TestTheInstrumentsAreThoseOfTheCatalog(t *testing.T) {
	s := newService(t, "4.3") // fails for an instrument of another name, unit, kind or help
	if made, all := int(s.made.Load()), len(catalog.All()); made != all {
		t.Errorf("%d instruments are made, and the catalog has %d", made, all)
	}
}

func TestEachMetricCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, "4.3")
		p := s.producer(producer.Config{})
		for range 3 {
			_, err := p.Publish(t.Context(), producer.Message{Exchange: "shop", RoutingKey: "order.paid"})
			check(t, err)
		}
		if _, err := p.Publish(t.Context(), producer.Message{Exchange: "shop", RoutingKey: "nobody"}); !errors.Is(err, producer.ErrReturned) {
			t.Fatal(err)
		}
		if _, err := p.Publish(t.Context(), producer.Message{}); err == nil {
			t.Fatal("a message without an address was published")
		}
		s.producer(producer.Config{}).PublishAsync(t.Context(), producer.Message{Exchange: "shop", RoutingKey: "order.paid"}, nil)
		first := true
		stop := s.consume(orders, consumer.Config{}, func(_ context.Context, d *consumer.Delivery) error {
			if first {
				first = false
				return consumer.DeadLetter(errPaper)
			}
			if d.Attempt < 3 {
				return errPaper
			}
			return nil
		})
		time.Sleep(time.Hour)
		stop()
		m := s.collect()
		for _, tt := range []struct {
			name   string
			labels []string
			want   float64
		}{
			{"messaging.client.sent.messages", nil, 6},
			{"messaging.client.sent.messages", []string{"rehop.place", "queue", queueLabel, "shop"}, 4},
			{"messaging.client.sent.messages", []string{"rehop.place", "unknown", "error.type", "unroutable"}, 1},
			{"messaging.client.sent.messages", []string{"rehop.place", "unknown", queueLabel, "amq.default", "error.type", "bug"}, 1},
			{"messaging.client.operation.duration", []string{"rehop.place", "queue"}, 4},
			{"rehop.producer.unconfirmed", nil, 0},
			{"messaging.client.consumed.messages", []string{queueLabel, orders_}, 10}, // 3 with three attempts, one with one
			{"messaging.process.duration", []string{"rehop.outcome", "dead-letter", "error.type", "*errors.errorString"}, 1},
			{"messaging.process.duration", []string{"rehop.outcome", "done"}, 3},
			{"rehop.consumer.settled", []string{"rehop.disposition", "wait"}, 6},
			{"rehop.consumer.settled", []string{"rehop.disposition", "done"}, 3},
			{"rehop.consumer.settled", []string{"rehop.disposition", "dead-letter", "rehop.cause", "permanent", "error.type", "*errors.errorString"}, 1},
			{"rehop.consumer.in_hand", nil, 0},
			{"rehop.consumer.held", nil, 0},
			{"rehop.consumer.copies.unconfirmed", nil, 0},
			{"rehop.consumer.attempts", nil, 3},
			{"rehop.consumer.message.age", nil, 4},
			{"rehop.connection.connects", []string{"rehop.connection.name", "main"}, 2},
			{"rehop.connection.dial.duration", []string{"rehop.connection.role", "publish"}, 1},
			{"rehop.connection.status", []string{"rehop.status", "up"}, 2},
			{"rehop.connection.status", []string{"rehop.status", "down"}, 0},
			{"rehop.connection.sessions", []string{"rehop.connection.role", "consume"}, 0},
			{"rehop.consumer.prefetch", nil, 0},
		} {
			if got := m.sum(tt.name, tt.labels...); got != tt.want {
				t.Errorf("%s %v is %v, want %v", tt.name, tt.labels, got, tt.want)
			}
		}
	})
}

func TestAHeldMessageIsHeldUntilItsHandlerTakesIt(t *testing.T) {
	t.Run("Hold", func(t *testing.T) { holdUntilTaken(t, consumer.Hold(context.DeadlineExceeded)) })
	t.Run("HoldFor", func(t *testing.T) {
		holdUntilTaken(t, consumer.HoldFor(50*time.Second, context.DeadlineExceeded))
	})
}

func holdUntilTaken(t *testing.T, said error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, "4.3")
		s.publish(order())
		var away atomic.Bool
		away.Store(true)
		stop := s.consume(orders, consumer.Config{}, func(context.Context, *consumer.Delivery) error {
			if away.Load() {
				return said
			}
			return nil
		})
		time.Sleep(time.Minute)
		m := s.collect()
		if held, hand := m.sum("rehop.consumer.held", "error.type", "context.deadlineExceededError"), m.sum("rehop.consumer.in_hand"); held != 1 || hand != 1 {
			t.Errorf("%v held and %v in hand, want 1 and 1", held, hand)
		}
		if n := m.sum("rehop.consumer.prefetch", queueLabel, orders_); n < 1 {
			t.Errorf("the prefetch is %v, want at least 1", n)
		}
		away.Store(false)
		time.Sleep(time.Minute)
		m = s.collect()
		if held, hand := m.sum("rehop.consumer.held"), m.sum("rehop.consumer.in_hand"); held != 0 || hand != 0 {
			t.Errorf("%v held and %v in hand afterwards, want none", held, hand)
		}
		stop()
	})
}

func TestACopyIsUnconfirmedUntilTheBrokerHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, "4.3")
		s.broker.Refuse("orders.dlq", true)
		s.publish(order())
		stop := s.consume(orders, consumer.Config{}, always(consumer.DeadLetter(errPaper)))
		time.Sleep(time.Minute)
		if n := s.collect().sum("rehop.consumer.copies.unconfirmed"); n != 1 {
			t.Errorf("%v copies are unconfirmed, want 1", n)
		}
		s.broker.Refuse("orders.dlq", false)
		time.Sleep(5 * time.Minute)
		if n := s.collect().sum("rehop.consumer.copies.unconfirmed"); n != 0 {
			t.Errorf("%v copies are unconfirmed afterwards, want none", n)
		}
		stop()
	})
}

func TestABlockedPublisherIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, "4.3")
		p := s.producer(producer.Config{})
		s.publish(order())
		s.broker.Block("low on memory")
		done := make(chan error)
		go func() {
			_, err := p.Publish(t.Context(), order())
			done <- err
		}()
		time.Sleep(10 * time.Second)
		m := s.collect()
		if n := m.sum("rehop.connection.status", "rehop.status", "blocked", "rehop.connection.role", "publish"); n != 1 {
			t.Errorf("blocked is %v, want 1", n)
		}
		if n := m.sum("rehop.producer.unconfirmed"); n != 1 {
			t.Errorf("%v are unconfirmed, want 1", n)
		}
		if n := m.sum("rehop.connection.sessions", "rehop.connection.role", "publish"); n < 1 {
			t.Errorf("%v sessions for publishing, want at least 1", n)
		}
		s.broker.Unblock()
		check(t, <-done)
		if n := s.collect().sum("rehop.connection.connects", "rehop.connection.role", "publish"); n != 1 {
			t.Errorf("%v connects, want 1: the end of an alarm is none", n)
		}
	})
}

// While many messages fail, wait, die and come twice, every collection adds up.
func TestReceivedIsSettledPlusInHandAtEveryMoment(t *testing.T) {
	for _, version := range []string{"3.10", "4.0", "4.3"} {
		for _, kind := range []topology.QueueType{topology.Quorum, topology.Classic} {
			t.Run(version+" "+string(kind), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := orders
					w.Type = kind
					s := newService(t, version, topology.Exchange{Name: "shop"}, w)
					p := s.producer(producer.Config{})
					const n = 300
					messages := make([]producer.Message, n)
					for i := range messages {
						messages[i] = producer.Message{Exchange: "shop", RoutingKey: "order.paid"}
					}
					_, err := p.PublishAll(t.Context(), messages)
					check(t, err)
					var mu sync.Mutex
					rng := rand.New(rand.NewPCG(1, 2))
					stop := s.consume(w, consumer.Config{Concurrency: 20}, func(ctx context.Context, d *consumer.Delivery) error {
						mu.Lock()
						what, took := rng.IntN(10), time.Duration(rng.IntN(int(time.Second)))
						mu.Unlock()
						select {
						case <-time.After(took):
						case <-ctx.Done():
							return ctx.Err()
						}
						switch what {
						case 0:
							return consumer.DeadLetter(errPaper)
						case 1:
							return consumer.RetryAfter(time.Second, errPaper)
						case 2:
							return consumer.Discard("no need")
						case 3:
							panic("oh")
						case 4, 5, 6:
							return errPaper
						case 7:
							return consumer.Hold(errPaper)
						}
						return nil
					})
					for i := range 400 {
						time.Sleep(10 * time.Second)
						if i%50 == 20 {
							s.broker.Cut("")
						}
						equal(t, s.collect())
					}
					stop()
					m := s.collect()
					equal(t, m)
					if n := m.sum("rehop.consumer.in_hand"); n != 0 {
						t.Errorf("%v in hand at the end", n)
					}
					ends := m.sum("rehop.consumer.settled", "rehop.disposition", "done") + m.sum("rehop.consumer.settled", "rehop.disposition", "dead-letter")
					if ends < n {
						t.Errorf("%v ends, want at least %d", ends, n)
					}
				})
			})
		}
	}
}

func equal(t *testing.T, m metrics) {
	t.Helper()
	received, settled, hand := m.sum("messaging.client.consumed.messages"), m.sum("rehop.consumer.settled"), m.sum("rehop.consumer.in_hand")
	if received != settled+hand {
		t.Errorf("received %v, settled %v, in hand %v", received, settled, hand)
	}
}

// typed has a type for each number.
type typed struct{ n int }

func (e typed) Error() string     { return fmt.Sprint("error ", e.n) }
func (e typed) ErrorType() string { return fmt.Sprint("type ", e.n) }

// The hooks are called as 100,000 messages would, each with an exchange, key, queue,
// id and error of its own. Every metric has series, so none passes for lack of them.
func TestTheNumberOfSeriesIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, "4.3")
		p, c, conn := s.telemetry.Producer(), s.telemetry.Consumer(), s.telemetry.Connection("main")
		stored, forward := s.telemetry.Store(), s.telemetry.Forward()
		for i := range 100_000 {
			name, err := fmt.Sprint("name-", i), error(typed{i})
			m := producer.Message{Exchange: name, RoutingKey: name, ID: name}
			ctx := p.Publishing(t.Context(), &m)
			p.Retrying(ctx, producer.Retrying{Message: m, Err: err})
			p.Published(ctx, producer.Published{Message: m, Receipt: producer.Receipt{ID: name, Err: err}, Took: time.Second})
			d := &consumer.Delivery{Queue: name, Exchange: name, RoutingKey: name, ID: name, Attempt: 1, Timestamp: time.Now()}
			ctx = c.Received(t.Context(), d)
			c.Handled(ctx, consumer.Handled{Delivery: d, Err: consumer.Hold(err), Took: time.Second})
			c.Handled(ctx, consumer.Handled{Delivery: d, Err: err, Took: time.Second})
			c.Copied(ctx, consumer.Copied{Delivery: d, To: topology.Address{Exchange: name, RoutingKey: name}})
			c.Confirmed(ctx, consumer.Copied{Delivery: d, To: topology.Address{Exchange: name, RoutingKey: name}})
			c.Settled(ctx, consumer.Settled{Delivery: d, Settlement: consumer.Settlement{Disposition: consumer.DispositionDeadLetter, Cause: "exhausted"}})
			c.Fetching(consumer.Fetching{Queue: name, Prefetch: 1})
			c.Carried(consumer.Carried{Queue: name, ID: name})
			conn.DialAttempt(connection.DialAttempt{Role: connection.Publish, URL: name, Err: err})
			conn.SessionOpened(connection.SessionEvent{Role: connection.Consume})
			conn.State(connection.State{Role: connection.Publish, Status: connection.Up, Err: err})
			ctx = c.Received(t.Context(), d)
			c.Handled(ctx, consumer.Handled{Delivery: d, Took: time.Second})
			c.Settled(ctx, consumer.Settled{Delivery: d, Settlement: consumer.Settlement{Disposition: consumer.DispositionDone}})
			letter := store.Entry{Message: m}
			stored.Storing(t.Context(), &m)
			forward.Forwarded(t.Context(), store.Forwarded{Entry: letter, Receipt: producer.Receipt{ID: name}})
			forward.Failed(t.Context(), store.ForwardFailure{Entry: letter, Err: err, State: store.Ready})
		}
		defer s.telemetry.Health("main", s.conn.Health)()
		ctx, stop := context.WithCancel(t.Context())
		watching := make(chan error)
		go func() { watching <- s.telemetry.WatchQueues(ctx, s.conn, 0, orders) }()
		time.Sleep(time.Second)
		all := 0
		m := s.collect()
		for _, metric := range catalog.All() {
			n := len(m.points(metric.Name))
			all += n
			if n > 3*101 { // times the outcomes that there are here
				t.Errorf("%s has %d series, want at most 303", metric.Name, n)
			}
			if n == 0 && metric.Name != "rehop.store.letters" && metric.Name != "rehop.store.oldest" { // WatchStore has one for each state of one store
				t.Errorf("%s has no series", metric.Name)
			}
		}
		t.Logf("%d series in all", all)
		if got := m.sum("messaging.client.consumed.messages"); got != 200_000 {
			t.Errorf("%v consumed, want 200000: what has no series of its own is counted as _OTHER", got)
		}
		stop()
		check(t, <-watching)
	})
}

// OpenTelemetry puts what is above 2,000 series of a metric into one.
func TestQueuesTimesErrorTypesAreBounded(t *testing.T) {
	s := newService(t, "4.3")
	p, c := s.telemetry.Producer(), s.telemetry.Consumer()
	causes := []error{producer.ErrUnconfirmed, producer.ErrReturned, producer.ErrRefused, producer.ErrNacked, errPaper, &connection.BlockedError{}}
	held := []context.Context{}
	const n = 110
	for queue := range n {
		name := fmt.Sprint("name-", queue)
		for _, cause := range causes {
			m := producer.Message{Exchange: name, RoutingKey: name}
			ctx := p.Publishing(t.Context(), &m)
			p.Retrying(ctx, producer.Retrying{Message: m, Err: cause})
			p.Published(ctx, producer.Published{Message: m, Receipt: producer.Receipt{Err: cause}, Took: time.Second})
		}
		for i := range n {
			for _, err := range []error{consumer.DeadLetter(typed{i}), typed{i}} {
				d := &consumer.Delivery{Queue: name, Attempt: 1}
				ctx := c.Received(t.Context(), d)
				c.Handled(ctx, consumer.Handled{Delivery: d, Err: err, Took: time.Second})
				c.Settled(ctx, consumer.Settled{Delivery: d, Settlement: consumer.Settlement{Disposition: consumer.DispositionDeadLetter, Cause: "permanent"}})
			}
			d := &consumer.Delivery{Queue: name, Attempt: 1}
			ctx := c.Received(t.Context(), d)
			c.Handled(ctx, consumer.Handled{Delivery: d, Err: consumer.Hold(typed{i}), Took: time.Second})
			held = append(held, ctx)
		}
	}
	m := s.collect()
	for _, metric := range catalog.All() {
		if n := len(m.points(metric.Name)); n >= 2000 {
			t.Errorf("%s has %d series, want less than 2000", metric.Name, n)
		}
	}
	if got := m.sum("rehop.consumer.held"); got != n*n {
		t.Errorf("%v held, want %d", got, n*n)
	}
	if got := m.sum("rehop.consumer.settled"); got != 2*n*n {
		t.Errorf("%v settled, want %d", got, 2*n*n)
	}
	if got := m.sum("messaging.process.duration"); got != 3*n*n {
		t.Errorf("%v runs, want %d", got, 3*n*n)
	}
	for _, ctx := range held {
		c.Settled(ctx, consumer.Settled{Delivery: &consumer.Delivery{Queue: "name-1"}, Settlement: consumer.Settlement{Disposition: consumer.DispositionRequeued}})
	}
	for labels, p := range s.collect().points("rehop.consumer.held") {
		if p.n != 0 {
			t.Fatalf("%v held with %v, want none", p.n, labels)
		}
	}
}

func TestHooksAndCollectionsAfterAShutdownOfTheProviders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, "4.3")
		p := s.producer(producer.Config{})
		stop := s.consume(orders, consumer.Config{}, always(nil))
		check(t, s.meters.Shutdown(context.Background()))
		check(t, s.tracers.Shutdown(context.Background()))
		_, err := p.Publish(t.Context(), order())
		check(t, err)
		time.Sleep(time.Second)
		stop()
		check(t, p.Close())
		check(t, s.conn.Close())
	})
}
