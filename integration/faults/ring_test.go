package faults

import (
	"context"
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/broker"
)

// A consistent-hash exchange would spread messages over shards without any code in publishers. But its
// ring depends on the history of its bindings: before 4.3 a restart of the broker changes it, and on all
// versions so does a queue that is deleted and declared again. Then most keys have another shard than
// their earlier messages. So the publisher chooses the shard, by a function that never changes.
func TestAConsistentHashExchangeMovesKeys(t *testing.T) {
	for _, version := range ownVersions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			b, err := broker.Start(t.Context(), broker.Options{Version: version, Name: "rehop-ring"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := b.Close(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			})
			testRing(t, b.Nodes()[0])
		})
	}
}

const (
	ringQueues = 8
	ringKeys   = 1000
)

func testRing(t *testing.T, n *broker.Node) {
	if out, err := n.Exec(t.Context(), "rabbitmq-plugins", "enable", "rabbitmq_consistent_hash_exchange"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ring := openRing(t, n)
	if err := ring.ch.ExchangeDeclare("ring", "x-consistent-hash", true, false, false, false, amqp.Table{"hash-header": "x-rehop-order-key"}); err != nil {
		t.Fatal(err)
	}
	for i := range ringQueues {
		ring.bind(i)
	}
	first := ring.shards()
	if moved := keysMoved(first, ring.shards()); moved != 0 {
		t.Errorf("%d of %d keys move by themselves", moved, ringKeys)
	}

	ring.conn.Close()
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ring = openRing(t, n)
	restarted := ring.shards()
	moved := keysMoved(first, restarted)
	t.Logf("a restart moves %d of %d keys", moved, ringKeys)
	if stays := ring.version.AtLeast(4, 3); stays != (moved == 0) {
		t.Errorf("a restart moves %d of %d keys", moved, ringKeys)
	}

	if _, err := ring.ch.QueueDelete(ringQueue(3), false, false, false); err != nil {
		t.Fatal(err)
	}
	ring.bind(3)
	moved = keysMoved(restarted, ring.shards())
	t.Logf("a queue that is deleted and declared again moves %d of %d keys", moved, ringKeys)
	if moved < 2*ringKeys/ringQueues {
		t.Errorf("a queue that is deleted and declared again moves %d of %d keys, want more than twice those of one queue", moved, ringKeys)
	}
}

// ring is a connection to a broker with a consistent-hash exchange.
type ring struct {
	t       *testing.T
	conn    *amqp.Connection
	ch      *amqp.Channel
	version connection.Version
}

func openRing(t *testing.T, n *broker.Node) ring {
	t.Helper()
	conn, err := amqp.Dial(n.AMQPURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		t.Fatal(err)
	}
	name, _ := conn.Properties["version"].(string)
	version, err := connection.ParseVersion(name)
	if err != nil {
		t.Fatal(err)
	}
	return ring{t, conn, ch, version}
}

func ringQueue(i int) string { return fmt.Sprintf("ring.%02d", i) }

func (r ring) bind(i int) {
	r.t.Helper()
	_, err := r.ch.QueueDeclare(ringQueue(i), true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum})
	if err == nil {
		err = r.ch.QueueBind(ringQueue(i), "1", "ring", false, nil)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// shards publishes a message of each key, and returns the queue that it came to.
func (r ring) shards() map[string]string {
	r.t.Helper()
	var confirms []*amqp.DeferredConfirmation
	for i := range ringKeys {
		key := fmt.Sprint("customer-", i)
		c, err := r.ch.PublishWithDeferredConfirmWithContext(r.t.Context(), "ring", "", true, false,
			amqp.Publishing{MessageId: key, Headers: amqp.Table{"x-rehop-order-key": key}})
		if err != nil {
			r.t.Fatal(err)
		}
		confirms = append(confirms, c)
	}
	for _, c := range confirms {
		if acked, err := c.WaitContext(r.t.Context()); err != nil || !acked {
			r.t.Fatalf("not confirmed: %v", err)
		}
	}
	at := map[string]string{}
	for i := range ringQueues {
		for {
			m, ok, err := r.ch.Get(ringQueue(i), true)
			if err != nil {
				r.t.Fatal(err)
			}
			if !ok {
				break
			}
			at[m.MessageId] = ringQueue(i)
		}
	}
	if len(at) != ringKeys {
		r.t.Fatalf("%d of %d messages are in the queues", len(at), ringKeys)
	}
	return at
}

func keysMoved(from, to map[string]string) (n int) {
	for key, queue := range from {
		if to[key] != queue {
			n++
		}
	}
	return n
}
