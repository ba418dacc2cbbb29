package main

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/rehoptest"
)

// The remedy that topology.Verify gives for a wait that no consumer carries any more: no look may take its messages, and a
// store may.
func TestMessagesOfAWaitThatIsNotCarriedComeBack(t *testing.T) {
	s := open(t)
	conn, err := amqp.Dial(s.url)
	must(t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	must(t, err)
	must(t, ch.ExchangeDeclare("orders.rehop.return", "fanout", true, false, false, false, nil))
	must(t, ch.QueueBind("orders", "", "orders.rehop.return", false, nil))
	_, err = ch.QueueDeclare("orders.wait.2", true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-single-active-consumer": true,
		"x-delivery-limit": int64(1_000_000_000), "x-max-length": int64(1_000_000_060_000),
		"x-dead-letter-exchange": "orders.rehop.return", "x-dead-letter-routing-key": "orders@2"})
	must(t, err)
	_, err = s.broker.Publish(rehoptest.Message{RoutingKey: "orders.wait.2", Publishing: amqp.Publishing{MessageId: "w-1", Body: []byte("body"),
		Headers: amqp.Table{"x-rehop-queue": "orders", "x-rehop-attempts": int64(2), "x-rehop-due": int64(1_700_000_000_000)}}})
	must(t, err)
	s.run(-1, "dlq", "move", "--all", "--yes", "--to", "orders.rehop.return/orders@2", "orders.wait.2")
	s.prints("0 moved", "it has a single active consumer")
	letters := s.collect("orders.wait.2")
	s.run(exitDone, "dlq", "move", "--all", "--yes", "--to", "orders.rehop.return/orders@2", "--store", letters)
	back := s.broker.Drain("orders")
	if len(back) != 1 || back[0].MessageId != "w-1" || back[0].Headers["x-rehop-attempts"] != int64(2) || back[0].RoutingKey != "orders@2" {
		t.Errorf("back are %+v, want the message with its attempts and the key of its wait", back)
	}
}
