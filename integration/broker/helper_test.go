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

func start(t *testing.T, opts broker.Options) *broker.Broker {
	t.Helper()
	began := time.Now()
	b, err := broker.Start(t.Context(), opts)
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

// dial opens a channel to the broker, for the length of the test.
func dial(t *testing.T, b *broker.Broker) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(b.AMQPURL())
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
