package compat

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/desk"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// engines are the work queues that messages are copied by, with the version of the broker
// on which they do so by default. The name of a file is the kind of its message, a dash, and
// the engine.
var engines = map[string]struct {
	version string
	queue   topology.QueueType
}{
	"carry":     {"3.10", topology.Quorum},
	"nack":      {"4.3", topology.Quorum},
	"republish": {"4.3", topology.Classic},
}

// service is a service on a broker in a bubble.
type service struct {
	*testing.T
	broker *rehoptest.Broker
	conn   *connection.Conn
	orders topology.WorkQueue
}

var (
	setAside = topology.DeadLetterQueue{Name: "set-aside", Exchange: "dead"}
	errPaper = errors.New("the printer is out of paper")
)

func start(t *testing.T, b *rehoptest.Broker, engine string) *service {
	t.Helper()
	s := &service{T: t, broker: b, conn: connect(t, b)}
	s.orders = topology.WorkQueue{Name: "orders", Type: engines[engine].queue, Bindings: bindings, Waits: waits}
	must(t, topology.Declare(t.Context(), s.conn, shop, topology.Delays{}, s.orders, setAside))
	return s
}

// order is a message with all that a message can have.
func order() producer.Message {
	return producer.Message{
		Exchange: "shop", RoutingKey: "order.paid", ID: "order-7", OrderKey: "anna", Body: []byte(`{"name":"Anna"}`),
		ContentType: "application/json", ContentEncoding: "identity", Type: "order", CorrelationID: "cart-3", ReplyTo: "answers",
		AppID: "shop", UserID: "guest", Priority: 7, Timestamp: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC),
		Headers: amqp.Table{"tenant": "berlin", "items": int32(3)},
	}
}

func (s *service) publish(change func(*producer.Message)) {
	s.Helper()
	publisher, err := producer.New(s.conn, producer.Config{})
	must(s, err)
	m := order()
	if change != nil {
		change(&m)
	}
	_, err = publisher.Publish(s.Context(), m)
	must(s, err)
	must(s, publisher.Close())
}

// handle runs a consumer for a time, and stops it.
func (s *service) handle(source topology.Source, handler consumer.Handler, during time.Duration) {
	s.Helper()
	c, err := consumer.New(s.conn, source, handler, consumer.Config{})
	must(s, err)
	stop := rehoptest.Run(s.T, c.Run)
	time.Sleep(during)
	synctest.Wait()
	stop()
}

func (s *service) fail(err error, during time.Duration) {
	s.Helper()
	s.handle(s.orders, func(context.Context, *consumer.Delivery) error { return err }, during)
}

// kinds are the messages that rehop leaves in queues, each by the way that makes it.
var kinds = map[string]func(s *service){
	"published": func(s *service) { s.publish(nil) },
	"delayed":   func(s *service) { s.publish(func(m *producer.Message) { m.Delay = 30 * time.Minute }) },
	"retry": func(s *service) {
		s.publish(nil)
		s.fail(errPaper, time.Second)
	},
	"third": func(s *service) {
		s.publish(nil)
		s.fail(errPaper, 2*time.Minute)
	},
	// CC, BCC and an expiration would act once more on a copy.
	"archived": func(s *service) {
		_, err := s.broker.Publish(rehoptest.Message{Exchange: "shop", RoutingKey: "order.paid", Publishing: amqp.Publishing{
			MessageId: "order-8", DeliveryMode: amqp.Persistent, Expiration: "3600000", Body: []byte("Anna"),
			Headers: amqp.Table{"CC": []any{"invoice.paid"}}}})
		must(s, err)
		s.fail(errPaper, time.Second)
	},
	"retry-after": func(s *service) {
		s.publish(nil)
		s.fail(consumer.RetryAfter(10*time.Minute, errPaper), time.Second)
	},
	"snoozed": func(s *service) {
		s.publish(nil)
		s.fail(consumer.Snooze(30*time.Second, "the shop is closed"), time.Second)
	},
	"exhausted": func(s *service) {
		s.publish(nil)
		s.fail(errPaper, 10*time.Minute)
	},
	"permanent": func(s *service) {
		s.publish(nil)
		s.fail(consumer.DeadLetter(errPaper), time.Second)
	},
	"panicked": func(s *service) {
		s.publish(nil)
		s.handle(s.orders, func(context.Context, *consumer.Delivery) error { panic("no paper") }, 10*time.Minute)
	},
	"expired": func(s *service) {
		s.publish(func(m *producer.Message) { m.Expiration = time.Second })
		time.Sleep(time.Minute)
	},
	"unroutable": func(s *service) {
		sink, err := producer.NewExchangeSink(s.conn, "dead")
		must(s, err)
		publisher, err := producer.New(s.conn, producer.Config{Fallback: []producer.Sink{sink}})
		must(s, err)
		m := order()
		m.RoutingKey = "nobody"
		_, err = publisher.Publish(s.Context(), m)
		must(s, err)
		must(s, publisher.Close())
	},
	"sent-back": func(s *service) {
		s.publish(nil)
		s.fail(consumer.DeadLetter(errPaper), time.Second)
		journal, err := desk.OpenJournal(s.TempDir())
		must(s, err)
		letters, err := desk.NewLive(s.conn, "orders.dlq", desk.LiveConfig{Journal: journal})
		must(s, err)
		p, err := letters.Execute(s.Context(), desk.Redrive{ID: "send-1", Action: desk.Send, All: true}, nil)
		must(s, err)
		s.Logf("sent back: %+v", p)
	},
}

// only returns the one message that the broker has.
func (s *service) only() message {
	s.Helper()
	var found []message
	for _, name := range s.broker.Queues() {
		q, _ := s.broker.Queue(name)
		for _, list := range [][]rehoptest.Message{q.Ready, q.Unacked, q.Delayed, q.Dead} {
			for _, m := range list {
				found = append(found, encode(name, m))
			}
		}
	}
	if len(found) != 1 {
		s.Fatalf("%d messages in the queues, want 1: %v", len(found), found)
	}
	return found[0]
}

// TestMessages: today's messages are those of the release.
func TestMessages(t *testing.T) {
	host, err := os.Hostname()
	must(t, err)
	for kind, make := range kinds {
		for engine := range engines {
			t.Run(kind+"-"+engine, func(t *testing.T) {
				var m message
				rehoptest.Test(t, rehoptest.Config{Version: engines[engine].version}, func(t *testing.T, b *rehoptest.Broker) {
					s := start(t, b, engine)
					make(s)
					m = s.only()
				})
				// These two are of the machine and of the source code.
				if m.Headers["x-rehop-host"] == "string "+host {
					m.Headers["x-rehop-host"] = "string host"
				}
				if _, ok := m.Headers["x-rehop-stack"].(string); ok {
					m.Headers["x-rehop-stack"] = "string stack"
				}
				// It is chance whether a carrier holds the message when it stops, and the broker
				// counts that return.
				delete(m.Headers, "x-delivery-count")
				compare(t, "messages/"+kind+"-"+engine+".json", m.String())
			})
		}
	}
}

func read(t *testing.T, text []byte) message {
	t.Helper()
	var m message
	must(t, json.Unmarshal(text, &m))
	return m
}
