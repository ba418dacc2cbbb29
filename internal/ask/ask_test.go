package ask_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/ask"
	"github.com/rehop/rehop/rehoptest"
)

// A broker that is far away answers late, and that an empty queue is empty is known all the same.
func TestAnEmptyQueueOfABrokerFarAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker, err := rehoptest.NewBroker(rehoptest.Config{Version: "4.3"})
		if err != nil {
			t.Fatal(err)
		}
		defer broker.Close()
		conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: broker.Dial})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		session, err := conn.Session(t.Context(), connection.Consume)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		if err := session.Do(t.Context(), func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare("orders", true, false, false, false, nil)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		broker.Slow(400 * time.Millisecond)
		began := time.Now()
		depth, err := ask.DepthOf(t.Context(), session, "orders")
		if err != nil || depth != (ask.Depth{}) {
			t.Errorf("%+v, %v; want an empty queue", depth, err)
		}
		if took := time.Since(began); took < 400*time.Millisecond {
			t.Errorf("it took %v: the broker is not far away", took)
		}
	})
}

func TestAQueueThatIsGoneIsToldFromOneThatIsAway(t *testing.T) {
	refused := func(code int, reason string) error {
		return fmt.Errorf("look: %w", &amqp.Error{Code: code, Reason: reason, Server: true})
	}
	for _, tt := range []struct {
		rule       string
		err        error
		gone, away bool
	}{
		{"no error", nil, false, false},
		{"another error", context.Canceled, false, false},
		{"no queue", refused(amqp.NotFound, "NOT_FOUND - no queue 'q' in vhost '/'"), true, false},
		{"no exchange", refused(amqp.NotFound, "NOT_FOUND - no exchange 'x' in vhost '/'"), true, false},
		{"its node is down", refused(amqp.NotFound, "NOT_FOUND - queue 'q' in vhost '/' process is stopped by supervisor or home node 'a@b' of durable queue is down or inaccessible"), false, true},
		{"a lock of another connection", refused(amqp.ResourceLocked, "RESOURCE_LOCKED - cannot obtain exclusive access"), false, false},
	} {
		if gone, away := ask.IsGone(tt.err), ask.IsAway(tt.err); gone != tt.gone || away != tt.away {
			t.Errorf("%s: gone %t, away %t", tt.rule, gone, away)
		}
	}
}
