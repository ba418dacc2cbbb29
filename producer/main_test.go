package producer

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/rehoptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a broker in the process with the queues open and full, and a
// connection to it.
type fixture struct {
	*testing.T
	broker *rehoptest.Broker
	conn   *connection.Conn
}

func inBubble(t *testing.T, test func(s *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, err := rehoptest.NewBroker(rehoptest.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		s := &fixture{T: t, broker: b}
		s.conn = s.dial()
		defer s.conn.Close()
		s.declare("open", nil)
		s.declare("full", amqp.Table{"x-max-length": int64(1), "x-overflow": "reject-publish"})
		if _, err := b.Publish(rehoptest.Message{RoutingKey: "full"}); err != nil {
			t.Fatal(err)
		}
		test(s)
	})
}

func (s *fixture) dial() *connection.Conn {
	s.Helper()
	conn, err := connection.Open(s.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker/"}, Dial: s.broker.Dial})
	if err != nil {
		s.Fatal(err)
	}
	return conn
}

func (s *fixture) declare(queue string, args amqp.Table) {
	s.Helper()
	s.do(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(queue, true, false, false, false, args)
		return err
	})
}

// exchange declares a fanout exchange with a queue of the same name.
func (s *fixture) exchange(name string) {
	s.Helper()
	s.declare(name, nil)
	s.do(func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare(name, "fanout", true, false, false, false, nil); err != nil {
			return err
		}
		return ch.QueueBind(name, "", name, false, nil)
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

// producer returns one that is closed by the caller.
func (s *fixture) producer(cfg Config) *Producer {
	s.Helper()
	p, err := New(s.conn, cfg)
	if err != nil {
		s.Fatal(err)
	}
	return p
}

func (s *fixture) in(queue string) []rehoptest.Message {
	q, _ := s.broker.Queue(queue)
	return q.Ready
}

// memory is a sink that keeps what it gets.
type memory struct {
	takes func(cause error) error
	mu    sync.Mutex
	got   []Message
}

func (*memory) Name() string { return "memory" }

func (m *memory) Put(_ context.Context, message Message, cause error) error {
	if m.takes != nil {
		if err := m.takes(cause); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.got = append(m.got, message)
	return nil
}

// ways are those to publish a message.
var ways = []struct {
	name    string
	publish func(ctx context.Context, p *Producer, m Message) (Receipt, error)
}{
	{"Publish", func(ctx context.Context, p *Producer, m Message) (Receipt, error) { return p.Publish(ctx, m) }},
	{"PublishAll", func(ctx context.Context, p *Producer, m Message) (Receipt, error) {
		r, err := p.PublishAll(ctx, []Message{m})
		return r[0], err
	}},
	{"PublishAsync", func(ctx context.Context, p *Producer, m Message) (r Receipt, err error) {
		var done sync.WaitGroup
		done.Add(1)
		p.PublishAsync(ctx, m, func(got Receipt, failed error) {
			defer done.Done()
			r, err = got, failed
		})
		done.Wait()
		return r, err
	}},
}
