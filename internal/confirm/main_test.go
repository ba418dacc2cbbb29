package confirm

import (
	"context"
	"testing"
	"testing/synctest"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/rehoptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a broker in the process, a connection to it and a Publisher.
type fixture struct {
	*testing.T
	broker *rehoptest.Broker
	conn   *connection.Conn
	p      *Publisher
}

// inBubble runs a test where time is that of a bubble.
func inBubble(t *testing.T, limits Limits, test func(s *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, err := rehoptest.NewBroker(rehoptest.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		s := &fixture{T: t, broker: b}
		s.conn = s.dial(connection.Config{})
		defer s.conn.Close()
		s.p = New(s.conn, limits)
		defer s.p.Close()
		test(s)
	})
}

func (s *fixture) dial(cfg connection.Config) *connection.Conn {
	s.Helper()
	cfg.URLs, cfg.Dial = []string{"amqp://guest:guest@broker/"}, s.broker.Dial
	conn, err := connection.Open(s.Context(), cfg)
	if err != nil {
		s.Fatal(err)
	}
	return conn
}

// declare declares queues.
func (s *fixture) declare(args amqp.Table, names ...string) {
	s.Helper()
	s.do(func(ch *amqp.Channel) error {
		for _, name := range names {
			if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *fixture) do(call func(ch *amqp.Channel) error) {
	s.Helper()
	session, err := s.conn.Session(s.Context(), connection.Consume)
	if err == nil {
		err = session.Do(s.Context(), call)
	}
	if err == nil {
		err = session.Close()
	}
	if err != nil {
		s.Fatal(err)
	}
}

// publish sends one message and waits for its outcome.
func (s *fixture) publish(ctx context.Context, m *Message) error {
	s.p.Send(ctx, m)
	return m.Wait(ctx)
}

func (s *fixture) in(queue string) int {
	q, _ := s.broker.Queue(queue)
	return len(q.Ready)
}

func to(queue, id string) *Message {
	return &Message{RoutingKey: queue, Publishing: amqp.Publishing{MessageId: id, DeliveryMode: amqp.Persistent, Body: []byte(id)}}
}
