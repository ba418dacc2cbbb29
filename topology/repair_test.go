package topology_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// Each exchange is deleted while messages wait and fail, and the declaration that puts
// it back ends after each of its calls: nothing leads a message with attempts left to
// the dead-letter queue, and the next declaration brings back what was held.
func TestADeclarationThatEndsAfterAnyCallMakesNoLetters(t *testing.T) {
	for _, version := range []string{"3.10", "4.0", "4.3"} {
		for _, kind := range []topology.QueueType{topology.Quorum, topology.Classic} {
			t.Run(version+" "+string(kind), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := start(t, version)
					w := orders(waiting(time.Second, time.Second), func(w *topology.WorkQueue) { w.Bindings, w.Type = nil, kind })
					if version == "3.10" {
						w.Engine = topology.EngineRepublish // what is carried, no broker moves
					}
					plan := s.declare(w)
					nacks := plan.Engines[0].Engine == topology.EngineNack
					calls, what := topology.Calls(plan)
					for _, exchange := range plan.Exchanges() {
						for done := range calls {
							s.publish(route.WaitQueue(w.Name, 1))
							if nacks {
								s.publish(w.Name)
							}
							s.on(func(ch *amqp.Channel) error { return ch.ExchangeDelete(exchange, false, false) })
							if nacks {
								s.nack(w.Name) // fails without the exchange
							}
							s.on(func(ch *amqp.Channel) error {
								for _, call := range calls[:done+1] {
									if err := call(ch); err != nil {
										return err
									}
								}
								return nil
							})
							time.Sleep(10 * time.Minute) // the broker tries again after 3
							s.declare(w)
							time.Sleep(10 * time.Minute)
							if letters, _ := s.Queue("orders.dlq"); len(letters.Ready) > 0 {
								t.Fatalf("without %s, and ended after %s: %d letters with attempts left", exchange, what[done], len(letters.Ready))
							}
							want := 1
							if nacks {
								want = 2
							}
							back, _ := s.Queue(w.Name)
							if lost := version == "3.10" && exchange == "orders.rehop.return"; len(back.Ready) != want && !lost { // it moves nothing at-least-once
								t.Fatalf("without %s, and ended after %s: %d messages are back, want %d", exchange, what[done], len(back.Ready), want)
							}
							s.on(func(ch *amqp.Channel) error { _, err := ch.QueuePurge(w.Name, false); return err })
						}
					}
				})
			})
		}
	}
}

// nack takes a message of a queue and rejects it.
func (s *server) nack(queue string) {
	s.Helper()
	s.on(func(ch *amqp.Channel) error {
		d, ok, err := ch.Get(queue, false)
		if err != nil || !ok {
			s.Fatalf("no message in %s: %v", queue, err)
		}
		return d.Nack(false, false)
	})
}

// Each part of each wiring is deleted in turn.
func TestAConsumerPutsBackWhatIsMissing(t *testing.T) {
	for _, version := range []string{"3.10", "4.0", "4.3"} {
		for _, kind := range []topology.QueueType{topology.Quorum, topology.Classic} {
			for _, engine := range []topology.Engine{topology.EngineAuto, topology.EngineRepublish, topology.EngineCarry} {
				t.Run(fmt.Sprintf("%s %s %s", version, kind, engine), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						s := start(t, version)
						w := orders(waiting(time.Minute, time.Hour), func(w *topology.WorkQueue) { w.Bindings, w.Type, w.Engine = nil, kind, engine })
						plan := s.declare(w)
						r := s.resolve(w)
						before := s.journeys(r)
						check := func(what string, want ...string) {
							t.Helper()
							missing, err := r.Broker.Repair(t.Context(), s.conn)
							if err != nil || !slices.Equal(missing, want) {
								t.Fatalf("without %s: Repair puts back %q, %v; want %q", what, missing, err, want)
							}
							if missing, err := r.Broker.Repair(t.Context(), s.conn); err != nil || len(missing) > 0 {
								t.Fatalf("without %s: the next Repair puts back %q, %v", what, missing, err)
							}
							if after := s.journeys(r); !slices.Equal(after, before) {
								t.Errorf("without %s: messages go to %v, want %v as before", what, after, before)
							}
						}
						check("nothing")
						for _, x := range plan.Exchanges() {
							s.on(func(ch *amqp.Channel) error { return ch.ExchangeDelete(x, false, false) })
							check(x, `exchange "`+x+`"`)
						}
						for _, b := range topology.PlannedBindings(plan) {
							s.on(func(ch *amqp.Channel) error {
								if b.ToExchange != "" {
									return ch.ExchangeUnbind(b.ToExchange, b.RoutingKey, b.Exchange, false, b.Args)
								}
								return ch.QueueUnbind(b.Queue, b.RoutingKey, b.Exchange, b.Args)
							})
							check("a binding of " + b.Exchange)
						}
						for _, q := range plan.Queues() {
							if q == w.Name {
								continue
							}
							s.deleteQueue(q)
							missing, err := r.Broker.Repair(t.Context(), s.conn)
							if _, there := s.Queue(q); err != nil || len(missing) > 0 && missing[0] != `queue "`+q+`"` || len(missing) > 0 != there {
								t.Errorf("without %s: Repair puts back %q, %v", q, missing, err)
							}
							s.declare(w)
						}
						s.deleteQueue(w.Name)
						missing, err := r.Broker.Repair(t.Context(), s.conn)
						if _, there := s.Queue(w.Name); there || !slices.Equal(missing, []string{`queue "orders"`}) || err == nil || rehop.ClassOf(err) == rehop.ClassTransient {
							t.Errorf("without the work queue: Repair puts back %q, %v", missing, err)
						}
					})
				})
			}
		}
	}
}

// A dead-letter queue is spelt out in the call that declares its work queue.
func TestAConsumerPutsBackADeadLetterQueueInTheFormThatWasDeclared(t *testing.T) {
	for _, tt := range []struct {
		rule string
		form topology.Spec
	}{
		{"with a MaxAge and an exchange", topology.DeadLetterQueue{Name: "orders.dlq", MaxAge: time.Hour, Exchange: "dead"}},
		{"of another type", topology.DeadLetterQueue{Name: "orders.dlq", Type: topology.Classic, Exchange: "dead"}},
		{"a work queue", topology.WorkQueue{Name: "orders.dlq", Waits: []time.Duration{time.Hour}, Bindings: []topology.Binding{{Exchange: "dead", RoutingKey: "#"}}}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			everyVersion(t, func(s *server) {
				w := orders(waiting(time.Minute), func(w *topology.WorkQueue) { w.Bindings = nil })
				specs := []topology.Spec{w, tt.form}
				if _, ok := tt.form.(topology.WorkQueue); ok {
					specs = append(specs, topology.Exchange{Name: "dead"})
				}
				s.declare(specs...)
				r := s.resolve(w)
				s.deleteQueue("orders.dlq")
				missing, err := r.Broker.Repair(s.Context(), s.conn)
				if err != nil || !slices.Equal(missing, []string{`queue "orders.dlq"`}) {
					s.Fatalf("Repair puts back %q, %v", missing, err)
				}
				if missing, err := r.Broker.Repair(s.Context(), s.conn); err != nil || len(missing) > 0 {
					s.Errorf("the next Repair puts back %q, %v", missing, err)
				}
				if at := s.reaches("dead", "paid"); at != "orders.dlq" {
					s.Errorf("a message to the exchange of the dead-letter queue is in %q", at)
				}
				s.declare(specs...) // refused if the form is another one
			})
		})
	}
}

func TestAConsumerPutsBackADeadLetterQueueInTheFormThatOnConnectHasDeclared(t *testing.T) {
	s := start(t, "4.3")
	w := orders(waiting(time.Minute), func(w *topology.WorkQueue) { w.Bindings = nil })
	specs := []topology.Spec{w, topology.DeadLetterQueue{Name: "orders.dlq", MaxAge: time.Hour}}
	s.conn = s.connect(connection.Config{OnConnect: func(ctx context.Context, conn *connection.Conn) error {
		return topology.Declare(ctx, conn, specs...)
	}})
	r := s.resolve(w)
	s.deleteQueue("orders.dlq")
	if missing, err := r.Broker.Repair(t.Context(), s.conn); err != nil || !slices.Equal(missing, []string{`queue "orders.dlq"`}) {
		t.Fatalf("Repair puts back %q, %v", missing, err)
	}
	s.declare(specs...)
}

// The form of a dead-letter queue changes: the consumer puts it back in the last one.
func TestAConsumerPutsBackADeadLetterQueueInTheFormThatWasDeclaredLast(t *testing.T) {
	everyVersion(t, func(s *server) {
		w := orders(waiting(time.Minute), func(w *topology.WorkQueue) { w.Bindings = nil })
		aged := topology.DeadLetterQueue{Name: "orders.dlq", MaxAge: time.Hour}
		s.declare(w, aged)
		r := s.resolve(w)
		repair := func() {
			s.Helper()
			s.deleteQueue("orders.dlq")
			if missing, err := r.Broker.Repair(s.Context(), s.conn); err != nil || !slices.Equal(missing, []string{`queue "orders.dlq"`}) {
				s.Fatalf("Repair puts back %q, %v", missing, err)
			}
		}
		s.deleteQueue("orders.dlq")
		s.declare(w)
		repair()
		s.declare(w)

		s.deleteQueue("orders.dlq")
		s.declare(w, aged)
		if err := topology.Delete(s.Context(), s.conn, aged); err != nil {
			s.Fatal(err)
		}
		other := s.connect(connection.Config{}) // stands for another process
		if err := topology.Declare(s.Context(), other, w); err != nil {
			s.Fatal(err)
		}
		repair()
		s.declare(w)
	})
}

// journeys returns the queues that messages reach that come back from each wait, that
// are letters, and that are nacked.
func (s *server) journeys(r route.Facts) (queues []string) {
	for i, wait := range r.Waits {
		queues = append(queues, s.reaches("orders.rehop.return", fmt.Sprintf("orders@%d", i+1)), s.reaches("orders.rehop.return.spare", ""))
		if wait.Nack {
			s.publish("orders")
			s.nack("orders")
			queues = append(queues, s.holding())
		}
	}
	return append(queues, s.reaches("orders.rehop.unrouted", ""))
}

// reaches publishes a message and returns the queue that has it then.
func (s *server) reaches(exchange, key string) string {
	s.Helper()
	if _, err := s.Publish(rehoptest.Message{Exchange: exchange, RoutingKey: key}); err != nil {
		s.Fatal(err)
	}
	return s.holding()
}

// holding returns the queue that holds a message when all is at rest, and empties it.
func (s *server) holding() (held string) {
	s.Helper()
	time.Sleep(time.Second)
	for _, name := range s.Queues() {
		if q, _ := s.Queue(name); len(q.Ready) > 0 {
			held += name
			s.on(func(ch *amqp.Channel) error { _, err := ch.QueuePurge(name, false); return err })
		}
	}
	return held
}
