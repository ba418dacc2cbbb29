package desk

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/topology"
)

// forgeries are the headers by which somebody who may write to one queue names another one.
var forgeries = map[string]amqp.Table{
	"of a consumer":             {"x-rehop-cause": "permanent", "x-rehop-error": "no stock", "x-rehop-queue": "payments", "x-rehop-final-attempts": int64(1)},
	"of a producer":             {"x-rehop-cause": "unroutable", "x-rehop-error": "no stock", "x-rehop-exchange": "", "x-rehop-routing-key": "payments"},
	"of NServiceBus":            {"NServiceBus.FailedQ": "payments", "NServiceBus.ExceptionInfo.Message": "no stock"},
	"of MassTransit":            {"MT-Reason": "fault", "MT-Fault-Message": "no stock", "MT-Fault-InputAddress": "rabbitmq://broker/payments"},
	"of the broker":             {"x-death": []any{deathOf("payments")}, "x-first-death-queue": "payments", "x-rehop-cause": "permanent", "x-rehop-error": "no stock", "x-rehop-queue": "payments"},
	"of the broker, unreadable": {"x-death": []any{amqp.Table{"queue": int32(7)}}, "x-rehop-cause": "permanent", "x-rehop-error": "no stock", "x-rehop-queue": "payments"},
	"of a consumer and Spring":  {"x-exception-message": "no stock", "x-original-exchange": "", "x-original-routingKey": "payments", "x-rehop-cause": "permanent", "x-rehop-queue": "payments"},
}

func deathOf(queue string) amqp.Table {
	return amqp.Table{"queue": queue, "reason": "rejected", "count": int64(1), "exchange": "", "routing-keys": []any{queue}, "time": time.Unix(1_800_000_000, 0)}
}

// publish publishes messages straight to a queue, with all their headers.
func (w *fixture) publish(queue string, messages ...amqp.Publishing) {
	w.Helper()
	session, err := w.conn.Session(w.Context(), connection.Publish)
	must(w.T, err)
	defer session.Close()
	for _, p := range messages {
		must(w.T, session.Do(w.Context(), func(ch *amqp.Channel) error { return ch.PublishWithContext(w.Context(), "", queue, true, false, p) }))
	}
}

func (w *fixture) queue(name string, args amqp.Table) {
	w.Helper()
	session, err := w.conn.Session(w.Context(), connection.Consume)
	must(w.T, err)
	defer session.Close()
	must(w.T, session.Do(w.Context(), func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, args)
		return err
	}))
}

func TestHeadersThatAnybodyCanWriteSendNothingElsewhere(t *testing.T) {
	for name, headers := range forgeries {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(w *fixture) {
				w.dead()
				w.queue("payments", amqp.Table{"x-queue-type": "quorum"})
				must(w.T, topology.Declare(w.Context(), w.conn, topology.DeadLetterQueue{Name: "errors"}))
				w.queue("shopq", amqp.Table{"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "errors"})
				w.publish("shopq", amqp.Publishing{MessageId: "forged", Headers: headers, Expiration: "1"})
				w.has("errors", 1)
				live, err := NewLive(w.conn, "errors", LiveConfig{Journal: w.journal})
				must(w.T, err)
				list, err := live.List(w.Context(), Filter{}, Page{Look: true})
				must(w.T, err)
				l := list.Letters[0]
				if to, known := l.Target(); known && to != (topology.Address{RoutingKey: "shopq"}) {
					w.Errorf("it goes back to %v", to)
				}
				if l.Doubt == "" || !strings.Contains(l.Doubt, "x-death") {
					w.Errorf("Doubt is %q", l.Doubt)
				}
				p, err := live.Execute(w.Context(), Redrive{Action: Send, All: true}, nil)
				must(w.T, err)
				if p.State != Done || p.Skipped != 1 || p.Done+p.Failed != 0 || !strings.Contains(p.Note, l.Doubt) || !strings.Contains(p.Note, "name a target") {
					w.Errorf("sent without a target: %v", p)
				}
				w.has("payments", 0)
				w.has("errors", 1)
				p, err = live.Execute(w.Context(), Redrive{Action: Send, All: true, To: address("payments")}, nil)
				if err != nil || p.Done != 1 {
					w.Errorf("sent to a target that is named: %v, %v", p, err)
				}
			})
		})
	}
}

// What a consumer of a queue may write to that queue's dead-letter queue, without any death.
func TestALetterOfAnotherQueueNeedsItsTarget(t *testing.T) {
	onEach(t, func(w *fixture) {
		w.dead(orders(2)...)
		w.queue("payments", amqp.Table{"x-queue-type": "quorum"})
		w.publish("orders.dlq", amqp.Publishing{MessageId: "consumer", Headers: forgeries["of a consumer"]}, amqp.Publishing{MessageId: "producer", Headers: forgeries["of a producer"]},
			amqp.Publishing{MessageId: "death", Headers: amqp.Table{"x-death": []any{deathOf("payments")}}},
			amqp.Publishing{MessageId: "elsewhere", Headers: amqp.Table{"x-rehop-cause": "unroutable", "x-rehop-exchange": "shop", "x-rehop-routing-key": "order.paid"}})
		live := w.live()
		list, err := live.List(w.Context(), Filter{}, Page{})
		must(w.T, err)
		for _, l := range list.Letters {
			want := ""
			switch l.Publishing.MessageId {
			case "consumer", "producer", "death":
				want = `its headers name queue "payments", and it is in the dead-letter queue of "orders"`
			}
			if l.Doubt != want {
				w.Errorf("%s: Doubt is %q, want %q", l.Publishing.MessageId, l.Doubt, want)
			}
		}
		p, err := live.Execute(w.Context(), Redrive{Action: Send, All: true}, nil)
		must(w.T, err)
		if p.Done != 3 || p.Skipped != 3 || p.Failed != 0 {
			w.Errorf("%v", p)
		}
		w.has("payments", 0)
		w.has("orders.dlq", 3)
		w.has("orders", 3)
	})
}

// A queue whose name only ends as a dead-letter queue of package topology may have letters of
// many queues.
func TestADeadLetterQueueOfNobodyIsOfMany(t *testing.T) {
	onEach(t, func(w *fixture) {
		must(w.T, topology.Declare(w.Context(), w.conn, topology.DeadLetterQueue{Name: "all.dlq"}))
		w.publish("all.dlq", amqp.Publishing{Headers: forgeries["of a consumer"]}, amqp.Publishing{Headers: amqp.Table{"x-death": []any{deathOf("payments")}}})
		live, err := NewLive(w.conn, "all.dlq", LiveConfig{Journal: w.journal})
		must(w.T, err)
		list, err := live.List(w.Context(), Filter{}, Page{})
		must(w.T, err)
		for _, l := range list.Letters {
			if to, known := l.Target(); l.Doubt != "" || !known || to.RoutingKey != "payments" {
				w.Errorf("%+v", l)
			}
		}
	})
}

// The letters of lanes with one dead-letter queue are of its owner.
func TestLettersOfLanesAreOfTheirDeadLetterQueue(t *testing.T) {
	inBubble(t, "4.3", func(w *fixture) {
		lanes := topology.Lanes{Name: "sms", Lanes: []topology.Lane{{Name: "vip"}, {Name: "bulk"}}, OneDeadLetterQueue: true}
		must(w.T, topology.Declare(w.Context(), w.conn, lanes))
		w.publish("sms.dlq", amqp.Publishing{MessageId: "own", Headers: amqp.Table{"x-rehop-cause": "permanent", "x-rehop-queue": "sms.vip"}}, amqp.Publishing{MessageId: "forged", Headers: forgeries["of a consumer"]})
		live, err := NewLive(w.conn, "sms.dlq", LiveConfig{Journal: w.journal})
		must(w.T, err)
		list, err := live.List(w.Context(), Filter{}, Page{})
		must(w.T, err)
		for _, l := range list.Letters {
			if (l.Doubt == "") != (l.Publishing.MessageId == "own") {
				w.Errorf("%s: Doubt is %q", l.Publishing.MessageId, l.Doubt)
			}
		}
	})
}
