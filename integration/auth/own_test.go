package auth_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
)

// What stops a broker, or blocks it, needs one beside the shared one. There is
// one per version, and its tests take turns.
func TestWithASecondBroker(t *testing.T) {
	onEach(t, func(t *testing.T, n *node) {
		second, err := startNode(n.asked, n.ca, "node-two")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { second.Close(context.Background()) })
		for _, test := range []struct {
			rule string
			run  func(t *testing.T, n, second *node)
		}{
			{"an alarm does not cost the socket that renews", alarmBeforeRenewal},
			{"an alarm that begins under a renewal does not cost the socket", alarmUnderRenewal},
			{"hosts with certificates of different names", twoNames},
			{"Lazy waits for a broker that comes later", lazy},
		} {
			t.Run(test.rule, func(t *testing.T) { test.run(t, n, second) })
		}
	})
}

// leased are credentials that want to be renewed every 1.6 s.
func leased() connection.Credentials {
	return connection.Credentials{User: "guest", Password: "guest", Expires: time.Now().Add(2 * time.Second)}
}

func (n *node) alarm(t *testing.T) (clear func()) {
	t.Helper()
	watermark := n.ctl(t, "eval", "vm_memory_monitor:get_vm_memory_high_watermark().")
	clear = func() {
		n.ctl(t, "eval", "vm_memory_monitor:set_vm_memory_high_watermark("+watermark+").")
		until(t, "the end of the alarm", func() bool { return n.ctl(t, "eval", "rabbit_alarm:get_alarms().") == "[]" })
	}
	t.Cleanup(clear)
	n.ctl(t, "set_vm_memory_high_watermark", "0.0000001")
	until(t, "an alarm", func() bool { return n.ctl(t, "eval", "rabbit_alarm:get_alarms().") != "[]" })
	return clear
}

func confirmed(t *testing.T, s *connection.Session, m amqp.Publishing) *amqp.DeferredConfirmation {
	t.Helper()
	confirm, err := s.Channel().PublishWithDeferredConfirm("amq.fanout", "", false, false, m)
	if err != nil {
		t.Fatal(err)
	}
	return confirm
}

func confirming(ch *amqp.Channel) error { return ch.Confirm(false) }

func alarmBeforeRenewal(t *testing.T, _, n *node) {
	var calls atomic.Int32
	c := open(t, connection.Config{
		URLs: []string{n.url()}, OperationTimeout: 2 * time.Second, Lazy: true,
		Credentials: func(context.Context) (connection.Credentials, error) { calls.Add(1); return leased(), nil },
	})
	s := session(t, c, connection.Publish)
	if err := s.Do(t.Context(), confirming); err != nil {
		t.Fatal(err)
	}
	clear := n.alarm(t)
	confirm := confirmed(t, s, amqp.Publishing{})
	until(t, "the block", func() bool { return c.State(connection.Publish).Status == connection.Blocked })
	before := calls.Load()
	select {
	case <-s.Done():
		t.Fatalf("lost: %v", s.Err())
	case <-time.After(8 * time.Second): // several renewals and timeouts
	}
	// One may have been under way.
	if got := calls.Load(); got > before+1 {
		t.Errorf("%d calls for credentials that nobody would read", got-before)
	}
	clear()
	within(t, "the confirm", confirm.Done())
	until(t, "two renewals", func() bool { return calls.Load() >= before+2 })
	if s.Err() != nil || !confirm.Acked() {
		t.Errorf("lost: %v", s.Err())
	}
}

func alarmUnderRenewal(t *testing.T, _, n *node) {
	var calls atomic.Int32
	var publishing atomic.Pointer[connection.Session]
	confirms := make(chan *amqp.DeferredConfirmation, 1)
	c := open(t, connection.Config{
		URLs: []string{n.url()}, OperationTimeout: 2 * time.Second, Lazy: true,
		Credentials: func(context.Context) (connection.Credentials, error) {
			calls.Add(1)
			if s := publishing.Swap(nil); s != nil { // the broker stops to read after this, and before the new secret
				confirms <- confirmed(t, s, amqp.Publishing{})
			}
			return leased(), nil
		},
	})
	s := session(t, c, connection.Publish)
	if err := s.Do(t.Context(), confirming); err != nil {
		t.Fatal(err)
	}
	clear := n.alarm(t)
	publishing.Store(s)
	confirm := within(t, "a renewal", confirms)
	select {
	case <-s.Done():
		t.Fatalf("lost: %v", s.Err())
	case <-time.After(8 * time.Second): // several timeouts
	}
	if c.State(connection.Publish).Status != connection.Blocked {
		t.Error("not blocked: nothing is proved")
	}
	before := calls.Load()
	clear()
	within(t, "the confirm", confirm.Done())
	until(t, "two renewals", func() bool { return calls.Load() >= before+2 })
	if s.Err() != nil {
		t.Errorf("lost: %v", s.Err())
	}
}

func twoNames(t *testing.T, n, second *node) {
	for _, b := range []*node{n, second} {
		b.user(t, "traveller", "p")
	}
	c := open(t, connection.Config{
		URLs: []string{
			second.secure() + "?server_name_indication=node-two",
			n.secure() + "?server_name_indication=node-one",
		},
		TLS: n.ca.client("anybody"),
		Credentials: func(context.Context) (connection.Credentials, error) {
			return connection.Credentials{User: "traveller", Password: "p"}, nil
		},
	})
	// Each host is met sooner or later: which one is first is left to chance.
	met := map[string]bool{}
	until(t, "a connection to each host", func() bool {
		s := session(t, c, connection.Consume)
		url := c.State(connection.Consume).URL
		met[url] = true
		b := n
		if strings.Contains(url, strings.TrimPrefix(second.secure(), "amqps://")) {
			b = second
		}
		b.cut(t, "traveller")
		within(t, "the end of the session", s.Done())
		return len(met) == 2
	})
}

func lazy(t *testing.T, _, n *node) {
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := open(t, connection.Config{URLs: []string{n.AMQPURL()}, Lazy: true})
	if got := c.State(connection.Consume).Status; got != connection.Idle {
		t.Errorf("%v before anybody has asked", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := c.Session(ctx, connection.Consume)
	t.Logf("Session: %v", err)
	says(t, err, "no connection within", "connection refused")
	if class := rehop.ClassOf(err); class != rehop.ClassTransient {
		t.Errorf("class %v", class)
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := c.Session(t.Context(), connection.Consume)
		waiting <- err
	}()
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := within(t, "the session", waiting); err != nil {
		t.Error(err)
	}
}
