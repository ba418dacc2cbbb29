package rehoptest_test

import (
	"net"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/rehoptest"
)

// dial connects with the plain client library.
func dial(tb testing.TB, b *rehoptest.Broker) *amqp.Connection {
	tb.Helper()
	c, err := amqp.DialConfig("amqp://guest:guest@broker", amqp.Config{Dial: func(network, address string) (net.Conn, error) {
		return b.Dial(tb.Context(), network, address)
	}})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func BenchmarkNewBroker(b *testing.B) {
	for b.Loop() {
		broker, err := rehoptest.NewBroker(rehoptest.Config{})
		if err != nil {
			b.Fatal(err)
		}
		_ = broker.Close()
	}
}

// One operation is a message published with a confirm, consumed and acked.
func BenchmarkMessage(b *testing.B) {
	for _, kind := range []string{"classic", "quorum"} {
		b.Run(kind, func(b *testing.B) { messages(b, kind) })
	}
}

func messages(b *testing.B, kind string) {
	broker, err := rehoptest.NewBroker(rehoptest.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer broker.Close()
	conn := dial(b, broker)
	defer conn.Close()
	in, err := conn.Channel()
	if err != nil {
		b.Fatal(err)
	}
	out, err := conn.Channel()
	if err != nil {
		b.Fatal(err)
	}
	if _, err := in.QueueDeclare("q", true, false, false, false, amqp.Table{"x-queue-type": kind}); err != nil {
		b.Fatal(err)
	}
	if err := out.Qos(100, 0, false); err != nil {
		b.Fatal(err)
	}
	deliveries, err := out.Consume("q", "", false, false, false, false, nil)
	if err != nil {
		b.Fatal(err)
	}
	if err := in.Confirm(false); err != nil {
		b.Fatal(err)
	}
	confirms := in.NotifyPublish(make(chan amqp.Confirmation, 1000))
	body := make([]byte, 256)
	done := make(chan struct{})
	b.ResetTimer()
	go func() {
		defer close(done)
		for range b.N {
			d := <-deliveries
			_ = d.Ack(false)
		}
	}()
	pending := 0
	for i := range b.N {
		if err := in.PublishWithContext(b.Context(), "", "q", true, false, amqp.Publishing{Body: body, DeliveryMode: 2}); err != nil {
			b.Fatal(i, err)
		}
		if pending++; pending > 500 {
			<-confirms
			pending--
		}
	}
	for ; pending > 0; pending-- {
		<-confirms
	}
	<-done
}
