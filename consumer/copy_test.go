package consumer_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/consumer/internal/durations"
	"github.com/rehop/rehop/internal/header"
	"github.com/rehop/rehop/internal/stucktest"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

func permanently(context.Context, *consumer.Delivery) error { return consumer.DeadLetter(errBroken) }

// The dead-letter queue refuses all but the first letters. A nack would lead to
// it by a way that is not confirmed.
func TestLettersThatAreRefusedAreHeld(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		const n, room = 40, 5
		w.raw(func(ch *amqp.Channel) error {
			if _, err := ch.QueueDelete("orders.dlq", false, false, false); err != nil {
				return err
			}
			if _, err := ch.QueueDeclare("orders.dlq", true, false, false, false, amqp.Table{
				"x-queue-type": "classic", "x-max-length": room, "x-overflow": "reject-publish"}); err != nil {
				return err
			}
			return ch.QueueBind("orders.dlq", "", "orders.rehop.unrouted", false, nil)
		})
		w.publish(n)
		var log lines
		c, stop := w.start(permanently, consumer.Config{Concurrency: 8, CopyTimeout: 5 * time.Second, Logger: log.logger()})
		synctest.Wait()
		time.Sleep(10 * time.Second)
		if status, err := health(c); status != "degraded" || !strings.Contains(err.Error(), `queue "orders.dlq"`) || !strings.Contains(err.Error(), "nacked") {
			w.Errorf("after 10s: %s: %v", status, err)
		}
		time.Sleep(10 * time.Minute)
		if status, err := health(c); status != "unhealthy" || !strings.Contains(err.Error(), "8 messages in hand") {
			w.Errorf("all slots are settling: %s: %v", status, err)
		}
		if got := len(w.in("orders")) + len(w.in("orders.dlq")); got != n || w.journal.count(consumer.DispositionDeadLetter) != room {
			w.Errorf("%d of %d messages are there, %d told to be letters, want %d", got, n, w.journal.count(consumer.DispositionDeadLetter), room)
		}
		if said := log.with("level=WARN", "copy not confirmed"); len(said) < 2 || len(said) > 4 || !strings.Contains(said[1], "times=") {
			w.Errorf("in ten minutes the log says %d times: %s", len(said), strings.Join(said, ""))
		}
		drained := map[string]bool{}
		for range 60 {
			for _, m := range w.broker.Drain("orders.dlq") {
				drained[m.MessageId] = true
			}
			time.Sleep(15 * time.Second)
		}
		if len(drained) != n || w.journal.count(consumer.DispositionDeadLetter) != n {
			w.Errorf("%d letters of %d, %d told", len(drained), n, w.journal.count(consumer.DispositionDeadLetter))
		}
		w.has("orders")
		if status, err := health(c); status != "healthy" {
			w.Errorf("when there is room again: %s: %v", status, err)
		}
		w.stopped(stop)
	})
}

// The dead-letter queue does not answer for longer than CopyTimeout, as when its
// node is away.
func TestLettersThatAreNotAnsweredAreHeld(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		const n = 20
		c, stop := w.start(permanently, consumer.Config{Concurrency: 30, CopyTimeout: 5 * time.Second})
		synctest.Wait()
		w.broker.Refuse("orders.dlq", true)
		w.publish(n)
		time.Sleep(100 * time.Second)
		if w.journal.count(consumer.DispositionDeadLetter) != 0 || len(w.in("orders")) != n {
			w.Errorf("%d told to be letters, %d held, want 0 and %d", w.journal.count(consumer.DispositionDeadLetter), len(w.in("orders")), n)
		}
		if status, err := health(c); status != "degraded" {
			w.Errorf("%s: %v", status, err)
		}
		w.broker.Refuse("orders.dlq", false)
		time.Sleep(time.Minute)
		letters := slices.Compact(w.in("orders.dlq"))
		if !slices.Equal(letters, ids(n)) {
			w.Errorf("letters of %s, want all", few(letters))
		}
		w.has("orders")
		if w.journal.count(consumer.DispositionDeadLetter) != n {
			w.Errorf("%d told to be letters, want %d", w.journal.count(consumer.DispositionDeadLetter), n)
		}
		w.stopped(stop)
	})
}

func TestWithoutItsQueueACopyIsHeldAndHealthSaysWhatIsMissing(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		w.publish(3)
		w.raw(func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete("orders.dlq", false, false, false)
			return err
		})
		c, stop := w.startOn(topology.Route{Queue: "orders", DeadLetter: topology.Address{RoutingKey: "orders.dlq"}}, permanently, consumer.Config{Concurrency: 3})
		time.Sleep(time.Minute)
		w.has("orders", ids(3)...)
		if status, err := health(c); status != "unhealthy" || !strings.Contains(err.Error(), "orders.dlq") {
			w.Errorf("%s: %v", status, err)
		}
		w.declare(w.orders)
		time.Sleep(time.Minute)
		w.has("orders.dlq", ids(3)...)
		w.truthful()
		w.stopped(stop)
	})
}

func TestAPartThatGoesMissingIsNamed(t *testing.T) {
	on(t, "4.3", topology.Quorum, func(w *fixture) {
		c, stop := w.start(permanently, consumer.Config{})
		synctest.Wait()
		w.raw(func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete("orders.dlq", false, false, false)
			return err
		})
		time.Sleep(5 * time.Second)
		w.publish(1)
		time.Sleep(durations.ResolveAfter + time.Second)
		if status, err := health(c); status != "unhealthy" || !strings.Contains(err.Error(), "NOT_FOUND") {
			w.Errorf("%s: %v", status, err)
		}
		w.declare(w.orders)
		time.Sleep(time.Minute)
		if status, err := health(c); status != "healthy" {
			w.Errorf("declared again: %s: %v", status, err)
		}
		w.truthful()
		w.stopped(stop)
	})
}

// The copy goes to its wait, but the confirm is lost with the connection: the
// message comes again, and is told to be in its queue.
func TestASessionThatIsLostWithACopyUnderway(t *testing.T) {
	everywhere(t, func(w *fixture) {
		_, stop := w.start(permanently, consumer.Config{Concurrency: 2})
		w.begun()
		w.broker.Refuse("orders.dlq", true)
		w.publish(2)
		time.Sleep(time.Second)
		w.broker.Cut("")
		time.Sleep(time.Second)
		if n := w.journal.count(consumer.DispositionRequeued); n != 2 {
			w.Errorf("%d told to be back in their queue, want 2", n)
		}
		w.broker.Refuse("orders.dlq", false)
		time.Sleep(2 * time.Minute)
		w.has("orders")
		if letters := slices.Compact(w.in("orders.dlq")); len(letters) != 2 {
			w.Errorf("letters %v", letters)
		}
		w.stopped(stop)
	})
}

func TestAStopGivesBackWhatCannotBeCopied(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		w.publish(3)
		w.raw(func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete("orders.dlq", false, false, false)
			return err
		})
		_, stop := w.startOn(topology.Route{Queue: "orders", DeadLetter: topology.Address{RoutingKey: "orders.dlq"}}, permanently, consumer.Config{Concurrency: 3})
		time.Sleep(time.Minute)
		began := time.Now()
		w.stopped(stop)
		if took := time.Since(began); took > time.Second {
			w.Errorf("the stop took %v", took)
		}
		w.has("orders", ids(3)...)
		w.truthful()
	})
}

// A stop waits for a copy that has no answer, as long as for a handler.
func TestAStopWithACopyThatIsNotAnswered(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		_, stop := w.start(permanently, consumer.Config{DrainTimeout: 10 * time.Second})
		w.begun()
		w.broker.Refuse("orders.dlq", true)
		w.publish(1)
		time.Sleep(time.Second)
		began := time.Now()
		w.stopped(stop)
		if took := time.Since(began); took < 10*time.Second || took > 15*time.Second {
			w.Errorf("the stop took %v, want DrainTimeout and a little more", took)
		}
		if got := w.journal.of("m0"); len(got) != 1 || got[0].Disposition != consumer.DispositionRequeued {
			w.Errorf("settled %v, want in its queue: nobody knows of the copy", got)
		}
		w.has("orders", "m0")
	})
}

// The first copy to a wait whose queue has no leader holds back the channel that it
// was sent on. All copies to elsewhere are confirmed all the same.
func TestAStuckWaitHoldsUpOnlyWhatGoesThere(t *testing.T) {
	onEachEngine(t, func(w *fixture) {
		route := topology.Route{Queue: "orders", Waits: w.orders.Waits,
			WaitAt: []topology.Address{{RoutingKey: "orders.wait.1"}, {RoutingKey: "orders.wait.2"}}, DeadLetter: topology.Address{RoutingKey: "orders.dlq"}}
		h := stucktest.New(w.broker.Dial)
		other := w.conn
		defer other.Close()
		var err error
		w.conn, err = connection.Open(w.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: h.Dial})
		if err != nil {
			w.Fatal(err)
		}
		h.Hold("orders.wait.1")
		_, stop := w.startOn(route, func(_ context.Context, d *consumer.Delivery) error {
			switch d.Type {
			case "stuck":
				return errBroken
			case "wait":
				return consumer.RetryAfter(2*time.Minute, errBroken)
			}
			return consumer.DeadLetter(errBroken)
		}, consumer.Config{Concurrency: 20})
		kind := func(k string) func(*rehoptest.Message) { return func(m *rehoptest.Message) { m.Type = k } }
		w.publish(1, kind("stuck"))
		synctest.Wait() // its copy is on its way
		for range 5 {
			w.publish(1, kind("wait"))
			w.publish(1, kind("dead"))
		}
		w.publish(4, kind("stuck"))
		time.Sleep(5 * time.Second)
		// Copies that were behind the stuck one are sent again, and then there twice.
		waits, letters := slices.Compact(w.in("orders.wait.2")), slices.Compact(w.in("orders.dlq"))
		if len(waits) != 5 || len(letters) != 5 || len(w.in("orders")) != 5 {
			w.Errorf("%d in the other wait, %d letters, %d in hand, want 5 of each", len(waits), len(letters), len(w.in("orders")))
		}
		w.publish(1, kind("dead"))
		time.Sleep(time.Second)
		if n := len(slices.Compact(w.in("orders.dlq"))); n != 6 {
			w.Errorf("%d letters, want a later one within a second", n)
		}
		h.Release("orders.wait.1")
		time.Sleep(20 * time.Second)
		if n := len(w.in("orders")); n != 0 {
			w.Errorf("%d are still in hand", n)
		}
		w.stopped(stop)
	})
}

func TestCopiesWaitOutAnAlarm(t *testing.T) {
	on(t, "4.3", topology.Classic, func(w *fixture) {
		_, stop := w.start(permanently, consumer.Config{Concurrency: 5})
		w.publish(1)
		time.Sleep(time.Second)
		w.broker.Block("low on memory")
		w.publish(4)
		time.Sleep(10 * time.Minute)
		w.broker.Unblock()
		time.Sleep(2 * time.Minute)
		if letters := slices.Compact(w.in("orders.dlq")); !slices.Equal(letters, ids(5)) {
			w.Errorf("letters %v", letters)
		}
		w.has("orders")
		w.stopped(stop)
	})
}

// Hooks and the logger are the user's code.
func TestAHookThatPanicsHarmsNobody(t *testing.T) {
	on(t, "4.3", topology.Classic, func(w *fixture) {
		var log lines
		var panics atomic.Int32
		ouch := func() { panics.Add(1); panic("ouch") }
		w.publish(3)
		_, stop := w.start(func(context.Context, *consumer.Delivery) error { return errBroken }, consumer.Config{
			Logger: log.logger(),
			Traces: []consumer.Trace{{
				Received:  func(context.Context, *consumer.Delivery) context.Context { ouch(); return nil },
				Handled:   func(context.Context, consumer.Handled) { ouch() },
				Copied:    func(context.Context, consumer.Copied) { ouch() },
				Confirmed: func(context.Context, consumer.Copied) { ouch() },
				Settled:   func(context.Context, consumer.Settled) { ouch() },
			}},
		})
		time.Sleep(time.Hour)
		w.has("orders.dlq", ids(3)...)
		if said := len(log.with("level=ERROR", "hook", "ouch")); said != 3*3*5 || panics.Load() != 3*3*5 {
			w.Errorf("%d panics, %d said, want %d", panics.Load(), said, 3*3*5)
		}
		w.stopped(stop)
	})
}

func TestHooksOfOneDeliveryComeInTheirOrder(t *testing.T) {
	on(t, "4.3", topology.Classic, func(w *fixture) {
		var story []string
		note := func(s string) { story = append(story, s) }
		w.publish(1)
		_, stop := w.start(permanently, consumer.Config{Traces: []consumer.Trace{{
			Received: func(context.Context, *consumer.Delivery) context.Context { note("received"); return nil },
			Handled:  func(context.Context, consumer.Handled) { note("handled") },
			Copied:   func(_ context.Context, c consumer.Copied) { note("copied to " + c.To.String()) },
			Confirmed: func(_ context.Context, c consumer.Copied) {
				note("confirmed by " + c.To.String())
			},
			Settled: func(_ context.Context, s consumer.Settled) {
				note("settled: " + string(s.Disposition))
			},
		}}})
		time.Sleep(time.Minute)
		w.stopped(stop)
		want := []string{"received", "handled", `copied to queue "orders.dlq"`, `confirmed by queue "orders.dlq"`, "settled: dead-letter"}
		if !slices.Equal(story, want) {
			w.Errorf("%q, want %q", story, want)
		}
	})
}

// What a producer outside the SDK has filled up beyond a frame is held in one
// slot, and reported.
func TestACopyThatFitsInNoFrameIsHeld(t *testing.T) {
	on(t, "4.3", topology.Classic, func(w *fixture) {
		w.publish(1, func(m *rehoptest.Message) { m.Headers = amqp.Table{"large": strings.Repeat("x", 131_000)} })
		w.publish(30)
		c, stop := w.start(func(_ context.Context, d *consumer.Delivery) error {
			if d.ID == "m0" {
				return errBroken
			}
			return nil
		}, consumer.Config{Concurrency: 2})
		time.Sleep(time.Minute)
		w.has("orders", "m0")
		if status, err := health(c); status != "degraded" || !strings.Contains(err.Error(), "want at most 131064") {
			w.Errorf("%s: %v", status, err)
		}
		w.stopped(stop)
		w.has("orders", "m0")
		w.truthful()
	})
}

func TestALetterCarriesWhatItsMessageHad(t *testing.T) {
	everywhere(t, func(w *fixture) {
		w.publish(1, func(m *rehoptest.Message) {
			m.Headers = amqp.Table{"user": "own"}
			m.ContentType, m.CorrelationId, m.AppId, m.Type = "text/plain", "c", "app", "order"
		})
		_, stop := w.start(permanently, consumer.Config{})
		time.Sleep(time.Minute)
		l := w.letter()
		if l.Headers["user"] != "own" || l.ContentType != "text/plain" || l.CorrelationId != "c" || l.AppId != "app" || l.Type != "order" || string(l.Body) != "body" {
			w.Errorf("the letter is %+v", l)
		}
		if l.Headers[header.FinalAttempts] != int64(1) || l.Headers[header.Queue] != "orders" {
			w.Errorf("its headers are %v", l.Headers)
		}
		w.stopped(stop)
	})
}
