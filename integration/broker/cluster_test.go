package broker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/integration/broker"
)

// A cluster of three confirms while one node is down or cut off, and is whole
// again afterwards.
func TestCluster(t *testing.T) {
	t.Parallel()
	if _, err := broker.Container.Versions(t.Context()); err != nil {
		t.Logf("NOT RUN: a cluster needs Docker: %v", err)
		return
	}
	b := start(t, broker.Container, broker.Options{Nodes: 3, Conf: "net_ticktime = 5"})
	nodes := b.Nodes()
	if len(nodes) != 3 || len(b.AMQPURLs()) != 3 || b.AMQPURLs()[2] != nodes[2].AMQPURL() {
		t.Fatalf("%d nodes at %v, want 3", len(nodes), b.AMQPURLs())
	}
	members := amqp.Table{"x-queue-type": "quorum", "x-quorum-initial-group-size": 3}
	if _, err := dial(t, b).QueueDeclare("shared", true, false, false, false, members); err != nil {
		t.Fatal(err)
	}
	out := run(t, b, "rabbitmq-queues", "quorum_status", "shared")
	for _, n := range nodes {
		if !strings.Contains(out, n.Name()) {
			t.Errorf("%s is no member of the queue:\n%s", n.Name(), out)
		}
	}

	timed(t, "kill", func() error { return nodes[2].Kill(t.Context()) })
	if !confirmed(t, b, 30*time.Second) {
		t.Error("two nodes of three do not confirm")
	}
	timed(t, "start after kill", func() error { return nodes[2].Start(t.Context()) })
	if !confirmed(t, nodes[2], 30*time.Second) {
		t.Error("the node that is back does not confirm")
	}

	timed(t, "partition", func() error { return isolate(t.Context(), b, nodes[2]) })
	if confirmed(t, nodes[2], 3*time.Second) {
		t.Error("a node that is cut off confirms")
	}
	within(t, time.Minute, "the other two elect a leader if they must, and confirm", func() bool {
		return confirmed(t, nodes[0], 5*time.Second)
	})
	within(t, time.Minute, "the node that is cut off notices", func() bool { return sees(t, nodes[2]) == 1 })

	timed(t, "heal", func() error { return b.Heal(t.Context()) })
	within(t, time.Minute, "the node sees the others again", func() bool { return sees(t, nodes[2]) == 3 })
	within(t, time.Minute, "the node confirms again", func() bool { return confirmed(t, nodes[2], 5*time.Second) })

	if err := b.Partition(t.Context(), nodes[0], nodes[0]); err == nil {
		t.Error("a node is cut off from itself")
	}
}

// isolate cuts a node off from all others.
func isolate(ctx context.Context, b *broker.Broker, lonely *broker.Node) error {
	for _, n := range b.Nodes() {
		if n == lonely {
			continue
		}
		if err := b.Partition(ctx, lonely, n); err != nil {
			return err
		}
	}
	return nil
}

// confirmed says whether a message for the shared queue is confirmed in time.
// That it can be tried at all shows that clients reach the node.
func confirmed(t *testing.T, n interface{ AMQPURL() string }, limit time.Duration) bool {
	t.Helper()
	ch := dial(t, n)
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", "shared", true, false,
		amqp.Publishing{DeliveryMode: amqp.Persistent})
	if err != nil {
		t.Fatal(err)
	}
	acked, _ := confirm.WaitContext(ctx) // in time or not is the answer
	return acked
}

// sees returns how many nodes a node is in touch with, itself included.
func sees(t *testing.T, n *broker.Node) int {
	t.Helper()
	out, err := n.Exec(t.Context(), "rabbitmqctl", "eval", "length([node() | nodes()]).")
	if err != nil {
		t.Fatal(err)
	}
	return int(strings.TrimSpace(out)[0] - '0')
}
