package topology_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// server is a broker in the process with a connection.
type server struct {
	*testing.T
	*rehoptest.Broker
	conn *connection.Conn
	raw  *amqp.Connection
}

// heartbeat is long, because the minutes that pass in a bubble cost the time of their
// heartbeats.
const heartbeat = time.Hour

func start(t *testing.T, version string) *server {
	t.Helper()
	b, err := rehoptest.NewBroker(rehoptest.Config{Version: version, Heartbeat: heartbeat})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	s := &server{T: t, Broker: b}
	s.conn = s.connect(connection.Config{Heartbeat: heartbeat})
	s.raw, err = amqp.DialConfig("amqp://guest:guest@broker", amqp.Config{Dial: s.dial, Heartbeat: heartbeat})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.raw.Close() })
	return s
}

func (s *server) dial(network, address string) (net.Conn, error) {
	return s.Dial(context.Background(), network, address)
}

func (s *server) connect(cfg connection.Config) *connection.Conn {
	s.Helper()
	cfg.URLs, cfg.Dial = []string{"amqp://guest:guest@broker"}, s.Dial
	conn, err := connection.Open(s.Context(), cfg)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (s *server) declare(specs ...topology.Spec) topology.Plan {
	s.Helper()
	plan, err := topology.DeclarePlan(s.Context(), s.conn, specs...)
	if err != nil {
		s.Fatal(err)
	}
	return plan
}

func (s *server) resolve(source topology.Source) route.Facts {
	s.Helper()
	r, err := topology.Resolve(s.Context(), s.conn, source)
	if err != nil {
		s.Fatal(err)
	}
	return r
}

// on runs a call on a channel of its own, behind the SDK's back.
func (s *server) on(call func(*amqp.Channel) error) {
	s.Helper()
	ch, err := s.raw.Channel()
	if err != nil {
		s.Fatal(err)
	}
	defer ch.Close()
	if err := call(ch); err != nil {
		s.Fatal(err)
	}
}

func (s *server) rawQueue(name string, args amqp.Table) {
	s.Helper()
	s.on(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, args)
		return err
	})
}

func (s *server) deleteQueue(name string) {
	s.Helper()
	s.on(func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete(name, false, false, false)
		return err
	})
}

func (s *server) publish(queue string) {
	s.Helper()
	s.on(func(ch *amqp.Channel) error {
		if err := ch.Confirm(false); err != nil {
			return err
		}
		confirmed, err := ch.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{Body: []byte("m")})
		if err == nil && !confirmed.Wait() {
			err = errors.New("nacked")
		}
		return err
	})
}

// wantError checks that an error holds all the texts.
func (s *server) wantError(what string, err error, texts ...string) {
	s.Helper()
	if err == nil {
		s.Errorf("%s: no error, want one with %q", what, texts)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			s.Errorf("%s: %v; want %q in it", what, err, text)
		}
	}
}

// everyVersion runs a test in a bubble, against a broker of each.
func everyVersion(t *testing.T, test func(s *server)) {
	for _, version := range []string{"3.10", "4.0", "4.3"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(start(t, version)) })
		})
	}
}

func orders(change ...func(*topology.WorkQueue)) topology.WorkQueue {
	w := topology.WorkQueue{Name: "orders", Waits: delay.Default(), Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}}}
	for _, c := range change {
		c(&w)
	}
	return w
}

func waiting(s ...time.Duration) func(*topology.WorkQueue) {
	return func(w *topology.WorkQueue) { w.Waits = s }
}
