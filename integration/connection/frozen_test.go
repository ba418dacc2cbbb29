package connection_test

import (
	"context"
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/nodes"
)

// A frozen broker keeps its connections open and says nothing. One client has
// only its heartbeats to notice that, the other one waits for a reply.
func brokerFrozen(t *testing.T, n *node, r *row) {
	idle := open(t, config(n.AMQPURL()))
	cfg := config(n.AMQPURL())
	cfg.Heartbeat, cfg.OperationTimeout = time.Minute, heartbeat
	calling := open(t, cfg)
	waits, calls := sessionOf(t, idle, connection.Consume), sessionOf(t, calling, connection.Consume)

	n.Freeze(t)
	t.Cleanup(func() { _ = n.Unpause(context.Background()) }) // if the test fails before it does
	began := time.Now()
	err := calls.Do(t.Context(), func(ch *amqp.Channel) error { return ch.Qos(1, 0, false) })
	if took := time.Since(began); !errors.Is(err, connection.ErrSessionLost) || took > slack*cfg.OperationTimeout {
		t.Errorf("Do = %v after %v, want ErrSessionLost after OperationTimeout, %v", err, took, cfg.OperationTimeout)
	}
	ended(t, waits)
	r.detected(time.Since(began), noticed)
	nodes.Must(t, "unpause", n.Unpause)
	thawed := time.Now()
	sessionOf(t, idle, connection.Consume)
	sessionOf(t, calling, connection.Consume)
	r.recovered(time.Since(thawed), returned)
}
