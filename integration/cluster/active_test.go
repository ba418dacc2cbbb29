package cluster

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/topology"
)

// The node that active consumers are connected to is killed. The next consumer has the queue
// that we declare, and the one with our policy, before it has one that keeps to the broker's own 60 s.
func TestNodeOfTheActiveConsumerKilled(t *testing.T) {
	if absent() != "" {
		return // TestMain says so
	}
	table.Cell(t, ruleActive, version, "quorum")
	const declared, byPolicy, without = "active.declared", "active.policy", "active.without"
	c := startTrio(t, version, topology.WorkQueue{Name: declared, SingleActiveConsumer: true})
	all, urls := c.Nodes(), c.AMQPURLs()
	channel := func(node int) *amqp.Channel {
		conn, err := amqp.Dial(urls[node])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		return ch
	}
	first, second := channel(1), channel(0)
	for _, name := range []string{byPolicy, without} {
		if _, err := second.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-single-active-consumer": true}); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := c.Exec(t.Context(), "rabbitmqctl", "set_policy", "--apply-to", "queues", "active", `^active\.policy$`, `{"consumer-disconnected-timeout":5000}`); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	next := make(chan string)
	for _, name := range []string{declared, byPolicy, without} {
		if name != declared {
			// A queue that is led by the node that dies has an election to wait for too.
			c.lead(t, all[0], name)
		}
		active, err := first.Consume(name, "", false, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := second.PublishWithContext(t.Context(), "", name, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent}); err != nil {
			t.Fatal(err)
		}
		<-active
		standby, err := second.Consume(name, "", false, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			<-standby
			next <- name
		}()
	}
	c.lead(t, all[0], declared)
	<-time.After(nodes.YoungQueue)
	began := time.Now()
	nodes.Must(t, "kill", all[1].Kill)
	var order []string
	for range 3 {
		name := <-next
		order = append(order, name)
		table.Note("%s, next consumer of %s: after %v", ruleActive, name, time.Since(began).Round(100*time.Millisecond))
		t.Logf("%s: after %v", name, time.Since(began).Round(100*time.Millisecond))
	}
	if order[2] != without {
		t.Errorf("the next consumers had the queues in the order %q, want %q last", order, without)
	}
	nodes.Must(t, "start", all[1].Start)
}
