package consumer_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// carried declares a work queue of the engine carry and makes it that of the test.
func (w *fixture) carried(waits ...time.Duration) {
	w.Helper()
	w.orders = topology.WorkQueue{Name: "carried", Type: w.orders.Type, Waits: waits, Engine: topology.EngineCarry}
	w.declare(w.orders)
}

// attempts are when each attempt of a message began, since the first one.
type attempts struct {
	began time.Time

	mu   sync.Mutex
	runs map[string][]string
}

// handler fails each attempt that has another one.
func (a *attempts) handler(_ context.Context, d *consumer.Delivery) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.runs == nil {
		a.began, a.runs = time.Now(), map[string][]string{}
	}
	a.runs[d.ID] = append(a.runs[d.ID], fmt.Sprintf("%d at %v", d.Attempt, time.Since(a.began).Round(time.Second)))
	if d.LastAttempt {
		return nil
	}
	return errBroken
}

func (a *attempts) want(w *fixture, id string, want ...string) {
	w.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if got := a.runs[id]; !slices.Equal(got, want) {
		w.Errorf("attempts of %s: %q, want %q", id, got, want)
	}
}

// A carrier gives a message back after a quarter of an hour: the last wait takes several turns.
func TestACarriedWaitLastsAsLongAsItShould(t *testing.T) {
	everywhere(t, func(w *fixture) {
		w.carried(time.Minute, 20*time.Minute, 50*time.Minute)
		var a attempts
		w.publish(1)
		_, stop := w.start(a.handler, consumer.Config{})
		time.Sleep(75 * time.Minute)
		w.stopped(stop)
		a.want(w, id(0), "1 at 0s", "2 at 1m0s", "3 at 21m0s", "4 at 1h11m0s")
		w.has("carried")
		for waitNumber := range 3 {
			w.has(route.WaitQueue(w.orders.Name, waitNumber+1))
		}
	})
}

// A due time of another clock, or of none: the wait of the queue bounds it, although
// the message is given back and taken again meanwhile.
func TestALongCarriedWaitBoundsADueTimeThatIsTooLate(t *testing.T) {
	everywhere(t, func(w *fixture) {
		w.carried(50 * time.Minute)
		if n, err := w.broker.Publish(rehoptest.Message{RoutingKey: "carried.wait.1", Publishing: amqp.Publishing{MessageId: "far", Headers: amqp.Table{
			header.Due: time.Now().Add(1000 * time.Hour).UnixMilli(), header.Queue: "carried", header.Attempts: int64(1),
		}}}); n != 1 || err != nil {
			w.Fatal(n, err)
		}
		var a attempts
		a.runs, a.began = map[string][]string{}, time.Now()
		_, stop := w.start(a.handler, consumer.Config{})
		time.Sleep(time.Hour)
		w.stopped(stop)
		a.want(w, "far", "2 at 50m0s")
	})
}

// The queues of a schedule that is no more are carried by a work queue without
// waits too.
func TestNoWaitsAreLeft(t *testing.T) {
	everywhere(t, func(w *fixture) {
		w.carried(time.Minute, 10*time.Minute)
		var a attempts
		w.publish(1)
		_, stop := w.start(a.handler, consumer.Config{})
		time.Sleep(90 * time.Second)
		w.stopped(stop)
		w.orders.Waits, w.orders.Engine = nil, topology.EngineAuto
		w.declare(w.orders)
		_, stop = w.start(a.handler, consumer.Config{})
		time.Sleep(20 * time.Minute)
		w.stopped(stop)
		a.want(w, id(0), "1 at 0s", "2 at 1m0s", "3 at 11m0s")
		w.has("carried.wait.2")
	})
}

// The broker takes back what is held for longer than its consumer timeout, and the
// carrier learns from that to give it back itself.
func TestACarriedWaitIsLongerThanTheConsumerTimeout(t *testing.T) {
	for _, version := range sampled(t, versions) {
		for _, kind := range []topology.QueueType{topology.Classic, topology.Quorum} {
			onBroker(t, rehoptest.Config{Version: version, ConsumerTimeout: time.Minute}, kind, func(w *fixture) {
				w.carried(90*time.Second, 10*time.Minute)
				var a attempts
				w.publish(1)
				var log lines
				_, stop := w.start(a.handler, consumer.Config{Logger: log.logger()})
				time.Sleep(15 * time.Minute)
				w.stopped(stop)
				a.want(w, id(0), "1 at 0s", "2 at 1m30s", "3 at 11m30s")
				if n := len(log.with("is not brought back")); n > 6 {
					w.Errorf("%d lines about it", n)
				}
			})
		}
	}
}

// A policy with a TTL on the wait queue has the broker bring messages back early.
func TestAWaitThatIsCutShortIsWaitedToItsEnd(t *testing.T) {
	everywhere(t, func(w *fixture) {
		w.carried(10*time.Minute, 20*time.Minute)
		var a attempts
		w.publish(1)
		_, stop := w.start(a.handler, consumer.Config{})
		time.Sleep(time.Minute)
		w.stopped(stop)
		cut := w.broker.Drain("carried.wait.1")
		if len(cut) != 1 {
			w.Fatalf("%d messages in the wait, want one", len(cut))
		}
		m := cut[0]
		delete(m.Headers, header.DeliveryCount)
		m.Exchange, m.RoutingKey = "carried.rehop.return", "carried@1"
		if n, err := w.broker.Publish(m); n != 1 || err != nil {
			w.Fatal(n, err)
		}
		_, stop = w.start(a.handler, consumer.Config{})
		time.Sleep(35 * time.Minute)
		w.stopped(stop)
		a.want(w, id(0), "1 at 0s", "2 at 10m0s", "3 at 30m0s")
	})
}

func TestADeletedWaitHarmsNothingElse(t *testing.T) {
	everywhere(t, func(w *fixture) {
		w.carried(time.Minute, 2*time.Minute)
		var a attempts
		var log lines
		c, stop := w.start(a.handler, consumer.Config{Concurrency: 5, Logger: log.logger()})
		time.Sleep(30 * time.Second)
		if status, err := health(c); status != "healthy" {
			w.Errorf("with idle waits: %s, %v", status, err)
		}
		w.raw(func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete("carried.wait.2", false, false, false)
			return err
		})
		w.publish(1)
		time.Sleep(90 * time.Second)
		a.want(w, id(0), "1 at 0s", "2 at 1m0s")
		if status, err := health(c); status != "degraded" {
			w.Errorf("without a wait: %s, %v", status, err)
		}
		if n := len(log.with("level=WARN", `queue \"carried.wait.2\" does not exist`)); n == 0 {
			w.Error("the log does not say which queue is missing")
		}
		w.declare(w.orders)
		time.Sleep(10 * time.Minute)
		if status, err := health(c); status != "healthy" {
			w.Errorf("with the wait again: %s, %v", status, err)
		}
		w.stopped(stop)
		a.mu.Lock()
		defer a.mu.Unlock()
		if runs := a.runs[id(0)]; len(runs) != 3 {
			w.Errorf("attempts %q, want a third one once the wait was there again", runs)
		}
	})
}

// What one process gives back is due before what another could hold meanwhile.
func TestASecondProcessTakesOver(t *testing.T) {
	const unacked = 256 // of one carrier, at most
	everywhere(t, func(w *fixture) {
		w.carried(10 * time.Minute)
		var a attempts
		other, err := connection.Open(w.Context(), connection.Config{
			URLs: []string{"amqp://guest:guest@broker"}, Dial: w.broker.Dial, Name: "other"})
		if err != nil {
			w.Fatal(err)
		}
		defer other.Close()
		second, err := consumer.New(other, w.orders, a.handler, consumer.Config{Concurrency: 10})
		if err != nil {
			w.Fatal(err)
		}
		w.publish(unacked)
		_, stop := w.start(a.handler, consumer.Config{Concurrency: 10})
		time.Sleep(time.Minute)
		ctx, cancel := context.WithCancel(w.Context())
		ended := make(chan error)
		go func() { ended <- second.Run(ctx) }()
		time.Sleep(time.Minute)
		w.publish(unacked)
		time.Sleep(7 * time.Minute)
		w.stopped(stop)
		time.Sleep(4 * time.Minute)
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
		for n := range unacked {
			a.want(w, id(n), "1 at 0s", "2 at 10m0s")
			a.want(w, id(unacked+n), "1 at 2m0s", "2 at 12m0s")
			if w.Failed() {
				return
			}
		}
	})
}

func TestTheBrokerGoesAwayWhileMessagesWait(t *testing.T) {
	for rule, away := range map[string]func(*rehoptest.Broker){
		"stopped": func(b *rehoptest.Broker) { b.Stop() },
		"killed":  func(b *rehoptest.Broker) { b.Kill() },
	} {
		t.Run(rule, func(t *testing.T) {
			everywhere(t, func(w *fixture) {
				const n = 60
				w.carried(time.Minute, time.Minute)
				var a attempts
				w.publish(n)
				_, stop := w.start(a.handler, consumer.Config{Concurrency: 10})
				time.Sleep(50 * time.Second)
				away(w.broker)
				time.Sleep(30 * time.Second) // all are due meanwhile
				w.broker.Start()
				time.Sleep(4 * time.Minute) // two waits of a minute
				w.stopped(stop)
				a.mu.Lock()
				defer a.mu.Unlock()
				for i := range n {
					if runs := a.runs[id(i)]; len(runs) != 3 {
						w.Errorf("attempts of %s: %q, want three", id(i), runs)
						return
					}
				}
			})
		})
	}
}

// A process with a shorter schedule carries the waits of a longer one too.
func TestWaitsThatAreAddedAreCarried(t *testing.T) {
	on(t, "3.10", topology.Quorum, func(w *fixture) {
		w.carried(time.Minute)
		var a attempts
		_, stop := w.start(a.handler, consumer.Config{})
		time.Sleep(time.Second)
		longer := w.orders
		longer.Waits = delay.Schedule{time.Minute, time.Minute}
		w.declare(longer)
		w.publish(1, func(m *rehoptest.Message) {
			m.RoutingKey = route.WaitQueue(longer.Name, 2)
			m.Headers = amqp.Table{
				header.Queue: "carried", header.Attempts: int64(2),
				header.Due: time.Now().Add(90 * time.Second).UnixMilli(),
			}
		})
		time.Sleep(5 * time.Minute)
		w.stopped(stop)
		a.want(w, id(0), "3 at 0s")
	})
}

// A queue that only has the name of a wait is of somebody else: its messages stay in it, whenever it was declared.
func TestAStrangersQueueWithTheNameOfAWaitKeepsItsMessages(t *testing.T) {
	everywhere(t, func(w *fixture) {
		w.carried(time.Minute)
		theirs := func(n int, queue string) {
			w.raw(func(ch *amqp.Channel) error {
				_, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "classic"})
				return err
			})
			w.publish(1, func(m *rehoptest.Message) { m.RoutingKey, m.MessageId = queue, id(n) })
		}
		theirs(1, "carried.wait.2")
		_, stop := w.start(succeed, consumer.Config{})
		time.Sleep(time.Second)
		theirs(2, "carried.wait.1.2")
		time.Sleep(10 * time.Minute)
		w.stopped(stop)
		w.has("carried.wait.2", id(1))
		w.has("carried.wait.1.2", id(2))
	})
}

// A process whose schedule has no waits goes on when one with waits is gone again.
func TestWaitsThatAreAddedAreCarriedWithoutWaitsToo(t *testing.T) {
	everywhere(t, func(w *fixture) {
		w.orders = topology.WorkQueue{Name: "carried", Type: w.orders.Type}
		w.declare(w.orders)
		var a attempts
		_, stop := w.start(a.handler, consumer.Config{})
		time.Sleep(time.Second)
		longer := w.orders
		longer.Waits, longer.Engine = delay.Schedule{10 * time.Minute}, topology.EngineCarry
		w.declare(longer)
		w.publish(1, func(m *rehoptest.Message) {
			m.RoutingKey = route.WaitQueue(longer.Name, 1)
			m.Headers = amqp.Table{
				header.Queue: "carried", header.Attempts: int64(1),
				header.Due: time.Now().Add(10 * time.Minute).UnixMilli(),
			}
		})
		time.Sleep(10*time.Minute - time.Second)
		a.want(w, id(0))
		time.Sleep(4 * time.Second)
		w.stopped(stop)
		a.want(w, id(0), "2 at 0s")
	})
}

// The wait queue of a schedule that is no more does not answer when a process
// without waits starts.
func TestAWaitThatIsAwayAtTheStartIsCarriedLater(t *testing.T) {
	everywhere(t, func(w *fixture) {
		w.carried(time.Minute)
		var a attempts
		w.publish(1)
		_, stop := w.start(a.handler, consumer.Config{})
		time.Sleep(time.Second)
		w.stopped(stop)
		w.broker.Refuse("carried.wait.1", true)
		w.orders.Waits, w.orders.Engine = nil, topology.EngineAuto
		_, stop = w.start(a.handler, consumer.Config{})
		time.Sleep(5 * time.Minute)
		w.broker.Refuse("carried.wait.1", false)
		time.Sleep(10 * time.Minute)
		w.stopped(stop)
		if n := len(a.runs[id(0)]); n != 2 {
			w.Errorf("%d attempts, want two: %q", n, a.runs[id(0)])
		}
	})
}

// Three versions of a schedule one after the other. What waits for long delays
// nobody else, and the last version carries what is left in the queues of both
// before it.
func TestLongWaitsDoNotDelayShorterOnes(t *testing.T) {
	const unacked = 256 // of one carrier, at most
	onEachEngine(t, func(w *fixture) {
		w.carried(40 * time.Minute)
		var a attempts
		w.publish(unacked + 50)
		_, stop := w.start(a.handler, consumer.Config{Concurrency: 10})
		time.Sleep(time.Minute)
		w.stopped(stop)

		w.carried(10 * time.Minute)
		w.publish(1)
		_, stop = w.start(a.handler, consumer.Config{Concurrency: 10})
		time.Sleep(time.Minute)
		w.stopped(stop)

		w.carried(time.Minute)
		w.publish(1)
		_, stop = w.start(a.handler, consumer.Config{Concurrency: 10})
		time.Sleep(45 * time.Minute)
		w.stopped(stop)
		a.want(w, id(0), "1 at 0s", "2 at 40m0s")
		a.want(w, id(unacked+49), "1 at 0s", "2 at 40m0s")
		a.want(w, id(unacked+50), "1 at 1m0s", "2 at 11m0s")
		a.want(w, id(unacked+51), "1 at 2m0s", "2 at 3m0s")
	})
}

// An earlier version that is still alive carries what a later one has left.
func TestWaitsThatAreChangedAreCarried(t *testing.T) {
	on(t, "3.10", topology.Quorum, func(w *fixture) {
		w.carried(time.Minute)
		var a attempts
		_, stop := w.start(a.handler, consumer.Config{})
		time.Sleep(time.Second)
		changed := w.orders
		changed.Waits = delay.Schedule{2 * time.Minute}
		w.declare(changed)
		w.publish(1, func(m *rehoptest.Message) {
			m.RoutingKey = "carried.wait.1.2"
			m.Headers = amqp.Table{
				header.Queue: "carried", header.Attempts: int64(1),
				header.Due: time.Now().Add(90 * time.Second).UnixMilli(),
			}
		})
		time.Sleep(5 * time.Minute)
		w.stopped(stop)
		a.want(w, id(0), "2 at 0s")
	})
}

// Messages of a process whose clock is an hour ahead.
func TestAClockThatIsAheadDelaysNobody(t *testing.T) {
	everywhere(t, func(w *fixture) {
		const n = 300
		w.carried(time.Minute)
		w.publish(n, func(m *rehoptest.Message) {
			m.RoutingKey = "carried.wait.1"
			m.Headers = amqp.Table{
				header.Queue: "carried", header.Attempts: int64(1),
				header.Due: time.Now().Add(time.Hour).UnixMilli(),
			}
		})
		var a attempts
		c, stop := w.start(a.handler, consumer.Config{Concurrency: 10})
		time.Sleep(65 * time.Second)
		if status, err := health(c); status != "degraded" || !strings.Contains(err.Error(), `"carried.wait.1" are due 59m0s after its wait of 1m0s is over, want at most 1s`) {
			w.Errorf("with a hand full of messages that are due in an hour: %s, %v", status, err)
		}
		time.Sleep(5 * time.Minute)
		if status, err := health(c); status != "healthy" {
			w.Errorf("when they have come back: %s, %v", status, err)
		}
		w.stopped(stop)
		a.want(w, id(0), "2 at 0s")
		a.want(w, id(n-1), "2 at 1m0s")
	})
}

// Somebody deletes a wait queue, and a process with another schedule declares it
// again, for a longer wait. The carrier has known it as shorter.
func TestAWaitQueueThatIsAnotherOneNowCutsNoWaitShort(t *testing.T) {
	everywhere(t, func(w *fixture) {
		w.carried(time.Minute)
		var a attempts
		_, stop := w.start(a.handler, consumer.Config{})
		time.Sleep(time.Second)
		w.broker.DeleteQueue("carried.wait.1")
		w.carried(time.Hour)
		time.Sleep(5 * time.Minute) // the carrier is back
		if n, err := w.broker.Publish(rehoptest.Message{RoutingKey: "carried.wait.1", Publishing: amqp.Publishing{MessageId: "long", Headers: amqp.Table{
			header.Due: time.Now().Add(time.Hour).UnixMilli(), header.Queue: "carried", header.Attempts: int64(1),
		}}}); n != 1 || err != nil {
			w.Fatal(n, err)
		}
		a.runs, a.began = map[string][]string{}, time.Now()
		time.Sleep(65 * time.Minute)
		w.stopped(stop)
		a.want(w, "long", "2 at 1h0m0s")
	})
}
