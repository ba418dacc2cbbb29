package broker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/integration/broker"
)

func start(t *testing.T, kind broker.Kind, opts broker.Options) *broker.Broker {
	t.Helper()
	began := time.Now()
	b, err := kind.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	t.Logf("RabbitMQ %s up after %v", b.Version(), time.Since(began).Round(time.Millisecond))
	return b
}

// kinds returns the kinds of broker that can be started here, and says which
// cannot: at least one must be, or nothing would be tested.
func kinds(t *testing.T) []broker.Kind {
	t.Helper()
	var here []broker.Kind
	for _, kind := range []broker.Kind{broker.Container, broker.Process} {
		if _, err := kind.Versions(t.Context()); err != nil {
			t.Logf("NOT RUN for a %s: there is no %v", kind.Name, err)
			continue
		}
		here = append(here, kind)
	}
	if len(here) == 0 {
		t.Fatal("no kind of broker can be started here")
	}
	return here
}

// versions returns what a kind can give.
func versions(t *testing.T, kind broker.Kind) []string {
	t.Helper()
	all, err := kind.Versions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// containers lists the names of the containers, dead ones too, that begin with prefix.
func containers(t *testing.T, prefix string) []string {
	t.Helper()
	cli, err := client.New(client.FromEnv)
	if err != nil {
		t.Fatal(err)
	}
	defer cli.Close()
	all, err := cli.ContainerList(t.Context(), client.ContainerListOptions{All: true})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, c := range all.Items {
		for _, name := range c.Names {
			if name = strings.TrimPrefix(name, "/"); strings.HasPrefix(name, prefix) {
				found = append(found, name)
			}
		}
	}
	return found
}

// within polls until done says so.
func within(t *testing.T, limit time.Duration, what string, done func() bool) {
	t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("not within %v: %s", limit, what)
		case <-tick.C:
		}
	}
}

// dial opens a channel to a broker or node, for the length of the test.
func dial(t *testing.T, to interface{ AMQPURL() string }) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(to.AMQPURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.CloseDeadline(time.Now().Add(5 * time.Second)) })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}
