package connection_test

import (
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
)

// Calls that the broker refuses, and what it says of itself.
var calls = []fault{
	{"call refused", callRefused},
	{"messages that the library cannot read", unreadableMessages},
	{"what the server says of itself", serverNamed},
}

func callRefused(t *testing.T, n *node, r *row) {
	conn := open(t, config(n.AMQPURL()))
	s, neighbour := sessionOf(t, conn, connection.Consume), sessionOf(t, conn, connection.Consume)
	began := time.Now()
	err := s.Do(t.Context(), func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive("no such queue", true, false, false, false, nil)
		return err
	})
	var refused *amqp.Error
	if !errors.As(err, &refused) || refused.Code != amqp.NotFound || errors.Is(err, connection.ErrSessionLost) {
		t.Errorf("Do = %v, want the broker's 404", err)
	}
	ended(t, s)
	r.detected(time.Since(began), noticed)
	if err := s.Err(); !errors.Is(err, connection.ErrSessionLost) || !errors.As(err, &refused) {
		t.Errorf("Err = %v, want ErrSessionLost and the 404", err)
	}
	if err := neighbour.Err(); err != nil {
		t.Errorf("a neighbour on the socket has ended: %v", err)
	}
}

func serverNamed(t *testing.T, n *node, _ *row) {
	want, err := connection.ParseVersion(n.Version())
	if err != nil {
		t.Fatal(err)
	}
	got := open(t, config(n.AMQPURL())).Server()
	if got.Product != "RabbitMQ" || got.Version != want || got.Cluster == "" {
		t.Errorf("Server = %+v, want RabbitMQ %v", got, want)
	}
}
