package otel_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/resend"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// A message that fails five times, by each engine: on a quorum queue the consumer
// nacks, on a classic one it makes copies, on 3.10 it carries.
func TestFiveAttemptsAndTheDeadLetterAreOneTrace(t *testing.T) {
	for _, tt := range []struct {
		version string
		kind    topology.QueueType
		engine  string
	}{{"4.3", topology.Quorum, "nack"}, {"4.0", topology.Quorum, "nack"}, {"4.3", topology.Classic, "republish"}, {"3.10", topology.Quorum, "carry"}, {"3.10", topology.Classic, "carry"}} {
		t.Run(fmt.Sprint(tt.engine, " on ", tt.version, " ", tt.kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := orders
				w.Type = tt.kind
				s := newService(t, tt.version, topology.Exchange{Name: "shop"}, w)
				trace := s.publish(order())
				s.consume(w, consumer.Config{}, always(errPaper))
				time.Sleep(time.Hour)
				stop := s.consume(w.DeadLetterQueue(), consumer.Config{}, always(nil))
				time.Sleep(time.Minute)
				stop()

				want := []string{"request", "publish shop",
					"process orders", "wait orders", "process orders", "wait orders", "process orders", "wait orders",
					"process orders", "wait orders", "process orders", "dead-letter orders", "process orders.dlq"}
				story := s.story(trace)
				if !slices.Equal(namesOf(story), want) {
					t.Fatalf("%q, want %q\n%s", namesOf(story), want, s.broker.Story("order-7"))
				}
				for attempt := 1; attempt <= 5; attempt++ {
					span := story[2*attempt]
					if got := value(span, "rehop.attempt"); got != strconv.Itoa(attempt) {
						t.Errorf("span %d is attempt %s, want %d", 2*attempt, got, attempt)
					}
					if span.Status().Code != codes.Error || span.Status().Description != errPaper.Error() {
						t.Errorf("attempt %d: %+v, want the error of the handler", attempt, span.Status())
					}
					if span.Parent().SpanID() != story[1].SpanContext().SpanID() {
						t.Errorf("attempt %d is not a child of the publish", attempt)
					}
				}
				for i, wait := range []string{3: "60", 5: "300", 7: "600", 9: "1200"} {
					if got := value(story[i], "rehop.wait"); wait != "" && got != wait {
						t.Errorf("the wait of span %d is %s s, want %s", i, got, wait)
					}
				}
				if got := value(story[11], "rehop.cause"); got != "exhausted" {
					t.Errorf("the cause of the dead letter is %q, want exhausted", got)
				}
			})
		})
	}
}

func TestAttributesAreThoseOfTheSemanticConventions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, "4.3")
		id := s.publish(order())
		stop := s.consume(orders, consumer.Config{}, always(nil))
		time.Sleep(time.Minute)
		stop()
		for i, want := range []map[string]string{
			1: {"messaging.system": "rabbitmq", "messaging.operation.name": "publish", "messaging.operation.type": "send",
				"messaging.destination.name": "shop:order.paid", "messaging.destination.template": "shop", "messaging.rabbitmq.destination.routing_key": "order.paid",
				"messaging.message.id": "order-7", "messaging.message.body.size": "4", "rehop.place": "queue", "error.type": ""},
			2: {"messaging.system": "rabbitmq", "messaging.operation.name": "process", "messaging.operation.type": "process",
				"messaging.destination.name": "shop:order.paid:orders", "messaging.destination.template": "orders", "messaging.rabbitmq.destination.routing_key": "order.paid",
				"messaging.message.id": "order-7", "messaging.message.body.size": "4", "rehop.attempt": "1", "rehop.disposition": "done", "error.type": ""},
		} {
			span := s.story(id)[i]
			for key, v := range want {
				if got := value(span, key); got != v {
					t.Errorf("%s: %s is %q, want %q", span.Name(), key, got, v)
				}
			}
			if kind := [...]trace.SpanKind{1: trace.SpanKindProducer, 2: trace.SpanKindConsumer}[i]; span.SpanKind() != kind && i > 0 {
				t.Errorf("%s is of kind %s, want %s", span.Name(), span.SpanKind(), kind)
			}
		}
	})
}

func TestTheHandlersCtxCarriesTheSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, "4.3", topology.Exchange{Name: "shop"}, orders, topology.WorkQueue{Name: "next"})
		id := s.publish(order())
		p := s.producer(producer.Config{})
		s.consume(orders, consumer.Config{HandlerTimeout: time.Minute}, func(ctx context.Context, d *consumer.Delivery) error {
			_, err := p.Publish(ctx, producer.Message{RoutingKey: "next", Headers: d.Headers})
			return err
		})
		stop := s.consume(topology.WorkQueue{Name: "next"}, consumer.Config{}, always(nil))
		time.Sleep(time.Minute)
		stop()
		story := s.story(id)
		if want := []string{"request", "publish shop", "process orders", "publish amq.default", "process next"}; !slices.Equal(namesOf(story), want) {
			t.Fatalf("%q, want %q", namesOf(story), want)
		}
		for i := 1; i < len(story); i++ {
			if story[i].Parent().SpanID() != story[i-1].SpanContext().SpanID() {
				t.Errorf("%s is not a child of %s", story[i].Name(), story[i-1].Name())
			}
			if len(story[i].Links()) > 0 {
				t.Errorf("%s has links", story[i].Name())
			}
		}
	})
}

func TestTheCallersHeadersStayAsTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, "4.3")
		m := order()
		m.Headers = amqp.Table{"tenant": "7", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "other=1"}
		s.publish(m)
		if len(m.Headers) != 3 || m.Headers["tracestate"] != "other=1" {
			t.Errorf("%v", m.Headers)
		}
		sent := s.broker.Drain("orders")
		if len(sent) != 1 {
			t.Fatalf("%d messages, want 1", len(sent))
		}
		if sent[0].Headers["tenant"] != "7" || sent[0].Headers["traceparent"] == m.Headers["traceparent"] || sent[0].Headers["tracestate"] != nil {
			t.Errorf("%v, want the tenant, and the context of the publish without the state of another trace", sent[0].Headers)
		}
	})
}

// Messages from and to programs that know W3C Trace Context and not rehop.
func TestATraceThatComesInTheHeadersGoesOn(t *testing.T) {
	const theirs = "0af7651916cd43dd8448eb211c80319c"
	for name, parent := range map[string]any{
		"as a string": "00-" + theirs + "-b7ad6b7169203331-01",
		"as bytes":    []byte("00-" + theirs + "-b7ad6b7169203331-01"),
	} {
		t.Run("consumed "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t, "4.3")
				_, err := s.broker.Publish(rehoptest.Message{Exchange: "shop", RoutingKey: "order.paid", Publishing: amqp.Publishing{Headers: amqp.Table{"traceparent": parent}}})
				check(t, err)
				s.consume(orders, consumer.Config{}, always(nil))()
				time.Sleep(time.Minute)
				stop := s.consume(orders, consumer.Config{}, always(nil))
				time.Sleep(time.Minute)
				stop()
				if got := namesOf(s.story(theirs)); !slices.Equal(got, []string{"process orders"}) {
					t.Errorf("%q", got)
				}
			})
		})
		t.Run("published "+name+" without a span in ctx", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t, "4.3")
				m := order()
				m.Headers = amqp.Table{"traceparent": parent}
				_, err := s.producer(producer.Config{}).Publish(t.Context(), m)
				check(t, err)
				if got := namesOf(s.story(theirs)); !slices.Equal(got, []string{"publish shop"}) {
					t.Errorf("%q", got)
				}
			})
		})
		t.Run("published "+name+" within another trace", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t, "4.3")
				m := order()
				m.Headers = amqp.Table{"traceparent": parent}
				story := s.story(s.publish(m))
				if links := story[1].Links(); len(links) != 1 || links[0].SpanContext.TraceID().String() != theirs {
					t.Errorf("links %v, want one to the trace in the headers", links)
				}
			})
		})
	}
}

func TestAMessageWithoutAContextIsNoChildOfTheProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, "4.3")
		_, err := s.broker.Publish(rehoptest.Message{Exchange: "shop", RoutingKey: "order.paid"})
		check(t, err)
		worker, err := consumer.New(s.conn, orders, always(nil), consumer.Config{Traces: []consumer.Trace{s.telemetry.Consumer()}})
		check(t, err)
		ctx, program := s.tracers.Tracer("test").Start(t.Context(), "program")
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		check(t, worker.Run(ctx))
		program.End()
		for _, span := range s.spans.Ended() {
			if span.Name() == "process orders" && span.Parent().IsValid() {
				t.Errorf("%s has a parent", span.Name())
			}
		}
	})
}

// Forward publishes with the ctx of a program, and the trace is that of the message.
func TestAForwardedMessageIsNoChildOfTheProgram(t *testing.T) {
	s := newService(t, "4.3")
	hooks := s.telemetry.Producer()
	origin, request := s.tracers.Tracer("test").Start(t.Context(), "request")
	m := order()
	s.telemetry.Store().Storing(origin, &m)
	program, span := s.tracers.Tracer("test").Start(t.Context(), "program")
	ctx := resend.OfService(program)
	hooks.Published(hooks.Publishing(ctx, &m), producer.Published{Message: m, Receipt: producer.Receipt{Place: producer.PlaceQueue}, Took: 0})
	if got, want := namesOf(s.story(request.SpanContext().TraceID().String())), []string{"request", "create shop", "publish shop"}; !slices.Equal(got, want) {
		t.Errorf("the trace of the request is %q, want %q", got, want)
	}
	other := order() // from a time before there were traces
	hooks.Published(hooks.Publishing(ctx, &other), producer.Published{Message: other, Receipt: producer.Receipt{Place: producer.PlaceQueue}, Took: 0})
	if got := namesOf(s.story(span.SpanContext().TraceID().String())); len(got) != 1 {
		t.Errorf("the trace of the program is %q, want it alone", got)
	}
}

// What is put off, sent to its lane or kept elsewhere is the same message.
func TestCopiesKeepTheTrace(t *testing.T) {
	t.Run("RetryAfter", func(t *testing.T) {
		oneTrace(t, []topology.Spec{topology.Exchange{Name: "shop"}, orders}, orders, order(), func(_ context.Context, d *consumer.Delivery) error {
			if d.Attempt == 1 {
				return consumer.RetryAfter(15*time.Minute, errPaper)
			}
			return nil
		}, "process orders", "wait orders", "process orders")
	})
	t.Run("Hold", func(t *testing.T) {
		began := time.Time{}
		oneTrace(t, []topology.Spec{topology.Exchange{Name: "shop"}, orders}, orders, order(), func(context.Context, *consumer.Delivery) error {
			if began.IsZero() {
				began = time.Now()
			}
			if time.Since(began) < time.Minute {
				return consumer.Hold(errPaper)
			}
			return nil
		}, "process orders")
	})
	t.Run("Delay", func(t *testing.T) {
		m := producer.Message{RoutingKey: "orders", Delay: 5 * time.Second, ID: "order-7"}
		oneTrace(t, []topology.Spec{topology.Exchange{Name: "shop"}, orders, topology.Delays{}}, orders, m, always(nil), "process orders")
	})
	t.Run("lanes", func(t *testing.T) {
		lanes := topology.Lanes{Name: "mail", Lanes: []topology.Lane{{Name: "high"}, {Name: "low"}}, Waits: delay.Fixed(time.Minute, 1)}
		m := producer.Message{RoutingKey: "mail.low", ID: "order-7"}
		oneTrace(t, []topology.Spec{lanes}, lanes, m, always(errPaper), "process mail.low", "wait mail.low", "process mail.low", "dead-letter mail.low")
	})
	t.Run("a fallback exchange on another cluster", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newService(t, "4.3")
			spare, err := rehoptest.NewBroker(rehoptest.Config{})
			check(t, err)
			t.Cleanup(func() { _ = spare.Close() })
			there := s.connect(spare, "spare")
			check(t, topology.Declare(t.Context(), there, topology.Exchange{Name: "spare"}, topology.WorkQueue{Name: "kept", Bindings: []topology.Binding{{Exchange: "spare", RoutingKey: "#"}}}))
			sink, err := producer.NewExchangeSink(there, "spare")
			check(t, err)
			p := s.producer(producer.Config{Fallback: []producer.Sink{sink}})
			s.broker.Stop()
			ctx, request := s.tracers.Tracer("test").Start(t.Context(), "request")
			receipt, err := p.Publish(ctx, order())
			check(t, err)
			if receipt.Place != producer.PlaceFallback {
				t.Fatalf("in %v", receipt.Place)
			}
			s.conn = there
			stop := s.consume(topology.WorkQueue{Name: "kept"}, consumer.Config{}, always(nil))
			time.Sleep(time.Minute)
			stop()
			story := s.story(request.SpanContext().TraceID().String())
			request.End()
			if want := []string{"request", "publish shop", "process kept"}; !slices.Equal(namesOf(story), want) {
				t.Fatalf("%q, want %q", namesOf(story), want)
			}
			if value(story[1], "rehop.place") != "fallback" || value(story[1], "error.type") != "unreachable" || story[1].Status().Code == codes.Error {
				t.Errorf("%v %v", story[1].Attributes(), story[1].Status())
			}
		})
	})
	t.Run("a lost connection", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newService(t, "4.3")
			id := s.publish(order())
			first := true
			stop := s.consume(orders, consumer.Config{}, func(ctx context.Context, d *consumer.Delivery) error {
				if first {
					first = false
					s.broker.Cut("")
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			})
			time.Sleep(time.Minute)
			stop()
			story := s.story(id)
			if want := []string{"request", "publish shop", "process orders", "requeued orders", "process orders"}; !slices.Equal(namesOf(story), want) {
				t.Fatalf("%q, want %q", namesOf(story), want)
			}
			if value(story[4], "rehop.attempt") != "1" || value(story[4], "rehop.redelivered") != "true" {
				t.Errorf("%v, want attempt 1 once more", story[4].Attributes())
			}
		})
	})
}

// oneTrace publishes a message, consumes for an hour and wants these spans after the
// publish.
func oneTrace(t *testing.T, specs []topology.Spec, from topology.Source, m producer.Message, handler consumer.Handler, want ...string) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, "4.3", specs...)
		id := s.publish(m)
		stop := s.consume(from, consumer.Config{}, handler)
		time.Sleep(time.Hour)
		stop()
		if got := namesOf(s.story(id)); len(got) < 2 || !slices.Equal(got[2:], want) {
			t.Errorf("%q, want %q\n%s", got, want, s.broker.Story(m.ID))
		}
	})
}

func TestHooksOfAUserRunBesideOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, "4.3")
		id := s.publish(order())
		type key struct{}
		var saw trace.SpanContext
		theirs := consumer.Trace{
			Received: func(ctx context.Context, _ *consumer.Delivery) context.Context {
				return context.WithValue(ctx, key{}, "theirs")
			},
			Settled: func(ctx context.Context, _ consumer.Settled) {
				saw = trace.SpanContextFromContext(ctx)
			},
		}
		for _, traces := range [][]consumer.Trace{{s.telemetry.Consumer(), theirs}, {theirs, s.telemetry.Consumer()}} {
			worker, err := consumer.New(s.conn, orders, func(ctx context.Context, _ *consumer.Delivery) error {
				if ctx.Value(key{}) != "theirs" || trace.SpanContextFromContext(ctx).TraceID().String() != id {
					t.Error("the handler's ctx has not both")
				}
				return nil
			}, consumer.Config{Traces: traces})
			check(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			check(t, worker.Run(ctx))
			cancel()
			if saw.TraceID().String() != id {
				t.Error("Settled of the user has not the span")
			}
			id = s.publish(order())
		}
	})
}
