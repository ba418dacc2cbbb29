package otel_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
	"github.com/rehop/rehop/topology"
)

var errPaper = errors.New("out of paper")

// By nack, by copy or carried, whichever the broker and the queue have.
func TestAttemptsLetterStoreAndReplayAreOneStory(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		s.declare()
		p := s.producer(s.conn, producer.Config{})
		trace := s.request(p, s.order())
		var broken atomic.Bool
		broken.Store(true)
		s.consume(s.orders, consumer.Config{}, func(context.Context, *consumer.Delivery) error {
			if broken.Load() {
				return errPaper
			}
			return nil
		})
		letters, _ := s.store()
		s.consume(s.orders.DeadLetterQueue(), consumer.Config{}, letters.Collect)
		spans := s.wants(trace, "request", "publish orders",
			"process orders", "wait orders", "process orders", "wait orders", "process orders", "wait orders", "process orders", "wait orders",
			"process orders", "dead-letter orders", "process orders.dlq")
		if t.Failed() {
			return
		}
		for i, want := range []string{2: "1", 4: "2", 6: "3", 8: "4", 10: "5"} {
			if got := value(spans[i], "rehop.attempt"); want != "" && got != want {
				t.Errorf("span %d is attempt %s, want %s", i, got, want)
			}
		}

		// Weeks later a person sends it back.
		broken.Store(false)
		var report store.ReplayReport
		poll.Until(t, 30*time.Second, "the letter is in the store, and sent", func() bool {
			var err error
			report, err = letters.Replay(t.Context(), p, store.Query{Queue: s.orders.Name}, store.ReplayOptions{})
			check(t, err)
			return report.Matched > 0
		})
		if report.Sent != 1 {
			t.Fatalf("%+v", report)
		}
		s.replayed(trace)
	})
}

// replayed looks for the second life of a message.
func (s *service) replayed(trace string) {
	s.t.Helper()
	s.wants(trace, "request", "publish orders",
		"process orders", "wait orders", "process orders", "wait orders", "process orders", "wait orders", "process orders", "wait orders",
		"process orders", "dead-letter orders", "process orders.dlq", "publish amq.default", "process orders")
}

func TestAMessageThatWasStoredWhileTheBrokerWasAwayKeepsItsTrace(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		s.declare()
		outbox, _ := s.store()
		away := s.connect("amqp://127.0.0.1:1")
		trace := s.request(s.producer(away, producer.Config{Fallback: []producer.Sink{outbox}, FallbackAfter: 20 * time.Millisecond}), s.order())
		s.consume(s.orders, consumer.Config{}, always(nil))
		s.forward(outbox, s.producer(s.conn, producer.Config{}))
		s.wants(trace, "request", "publish orders", "publish orders", "process orders")
	})
}

func TestAnOutboxKeepsTheTraceOfTheRequestThatWroteIt(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		s.declare()
		outbox, db := s.store()
		ctx, request := s.tracers.Tracer("test").Start(t.Context(), "request")
		tx, err := db.BeginTx(ctx, nil)
		check(t, err)
		_, err = outbox.PutTx(ctx, tx, s.order())
		check(t, err)
		check(t, tx.Commit())
		request.End()
		s.consume(s.orders, consumer.Config{}, always(nil))
		s.forward(outbox, s.producer(s.conn, producer.Config{}))
		s.wants(request.SpanContext().TraceID().String(), "request", "create orders", "publish orders", "process orders")
	})
}

func TestDelaysLanesAndASpareClusterKeepTheTrace(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		lanes := topology.Lanes{Name: s.name + ".lanes", Type: s.orders.Type, Lanes: []topology.Lane{{Name: "high"}, {Name: "low"}}, Waits: s.orders.Waits[:1]}
		s.declare(lanes, topology.Delays{})
		p := s.producer(s.conn, producer.Config{})
		s.consume(s.orders, consumer.Config{}, always(nil))
		s.consume(lanes, consumer.Config{}, always(errPaper))

		delayed := s.request(p, producer.Message{RoutingKey: s.orders.Name, Delay: 3 * time.Second})
		low := s.request(p, producer.Message{RoutingKey: lanes.Name + ".low"})
		sink, err := producer.NewExchangeSink(s.conn, s.name)
		check(t, err)
		spare := s.request(s.producer(s.connect("amqp://127.0.0.1:1"), producer.Config{Fallback: []producer.Sink{sink}, FallbackAfter: 5 * time.Second}), s.order())

		s.wants(delayed, "request", "publish amq.default", "process orders")
		s.wants(low, "request", "publish amq.default", "process orders.lanes.low", "wait orders.lanes.low", "process orders.lanes.low", "dead-letter orders.lanes.low")
		s.wants(spare, "request", "publish orders", "process orders")
	})
}

func TestAMessageThatIsPutOffKeepsTheTrace(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		for where, specs := range map[string][]topology.Spec{"waits": nil, "levels": {topology.Delays{}}} {
			s.declare(specs...)
			p := s.producer(s.conn, producer.Config{})
			for how, putOff := range map[string]func() error{
				"RetryAfter": func() error { return consumer.RetryAfter(time.Second, errPaper) },
				"Snooze":     func() error { return consumer.Snooze(time.Second, "too early") },
			} {
				trace := s.request(p, s.order())
				first := true
				stop := s.consume(s.orders, consumer.Config{}, func(context.Context, *consumer.Delivery) error {
					if first {
						first = false
						return putOff()
					}
					return nil
				})
				s.wants(trace, "request", "publish orders", "process orders", "wait orders", "process orders")
				stop()
				if t.Failed() {
					t.Fatalf("by %s in %s", how, where)
				}
			}
		}
	})
}

// The new publish is part of what the person does, and is linked to the trace in which
// the message died.
func TestAReplayWithinATraceIsLinkedToTheOrigin(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		s.declare()
		p := s.producer(s.conn, producer.Config{})
		origin := s.request(p, s.order())
		first := true
		s.consume(s.orders, consumer.Config{}, func(context.Context, *consumer.Delivery) error {
			if first {
				first = false
				return consumer.DeadLetter(errPaper)
			}
			return nil
		})
		letters, _ := s.store()
		s.consume(s.orders.DeadLetterQueue(), consumer.Config{}, letters.Collect)
		died := []string{"request", "publish orders", "process orders", "dead-letter orders", "process orders.dlq"}
		s.wants(origin, died...)

		ctx, order := s.tracers.Tracer("test").Start(t.Context(), "order")
		poll.Until(t, 30*time.Second, "the letter is in the store, and sent", func() bool {
			report, err := letters.Replay(ctx, p, store.Query{Queue: s.orders.Name}, store.ReplayOptions{})
			check(t, err)
			return report.Sent == 1
		})
		order.End()
		again := s.wants(order.SpanContext().TraceID().String(), "order", "publish amq.default", "process orders")
		if t.Failed() {
			return
		}
		if links := again[1].Links(); len(links) != 1 || links[0].SpanContext.TraceID().String() != origin {
			t.Errorf("links %v, want one to %s", links, origin)
		}
		if value(again[1], "rehop.replays") != "1" {
			t.Errorf("%v, want rehop.replays 1", again[1].Attributes())
		}
		s.wants(origin, died...)
	})
}

// A program that knows amqp091-go and W3C Trace Context publishes, and one like it reads.
func TestProgramsWithoutRehopSeeAndKeepTheTrace(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		s.declare()
		conn, err := amqp.Dial(s.broker.AMQPURL())
		check(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		ch, err := conn.Channel()
		check(t, err)

		trace := s.request(s.producer(s.conn, producer.Config{}), s.order())
		var read amqp.Delivery
		poll.Until(t, 30*time.Second, "the message is in its queue", func() (ok bool) {
			read, ok, err = ch.Get(s.name, true)
			check(t, err)
			return ok
		})
		parent, _ := read.Headers["traceparent"].(string)
		if want := "00-" + trace + "-" + s.story(trace)[1].SpanContext().SpanID().String() + "-01"; parent != want {
			t.Errorf("traceparent is %q, want %q", parent, want)
		}

		const theirs = "0af7651916cd43dd8448eb211c80319c"
		check(t, ch.PublishWithContext(t.Context(), s.name, "order.paid", false, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, Headers: amqp.Table{"traceparent": "00-" + theirs + "-b7ad6b7169203331-01"}}))
		s.consume(s.orders, consumer.Config{}, func(_ context.Context, d *consumer.Delivery) error {
			if d.Attempt == 1 {
				return errPaper
			}
			return nil
		})
		spans := s.wants(theirs, "process orders", "wait orders", "process orders")
		if !t.Failed() && spans[2].Parent().SpanID().String() != "b7ad6b7169203331" {
			t.Errorf("the second attempt is a child of %s, want of their span", spans[2].Parent().SpanID())
		}
	})
}
