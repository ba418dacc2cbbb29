package ask_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/internal/ask"
	"github.com/rehop/rehop/rehoptest"
)

// connected returns a Conn whose broker gives no answer about a queue while that is silent: the zeros, after a while.
func connected(t *testing.T, silent *atomic.Bool) (*rehoptest.Broker, *connection.Conn) {
	t.Helper()
	broker, err := rehoptest.NewBroker(rehoptest.Config{Version: "4.3"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = broker.Close() })
	conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		socket, err := broker.Dial(ctx, network, address)
		return &leaderless{socket, silent}, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return broker, conn
}

type leaderless struct {
	net.Conn
	silent *atomic.Bool
}

func (c *leaderless) Write(p []byte) (int, error) {
	if c.silent.Load() && bytes.Contains(p, []byte{0, 50, 0, 10}) { // queue.declare
		<-time.After(260 * time.Millisecond)
	}
	return c.Conn.Write(p)
}

// declared returns a channel on which the queue orders was declared.
func declared(t *testing.T, conn *connection.Conn) *connection.Session {
	t.Helper()
	session, err := conn.Session(t.Context(), connection.Consume)
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Do(t.Context(), func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare("orders", true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return session
}

// A caller with little time gets no answer from a queue that gives none, and keeps the channel: a call that is left would
// cost it.
func TestAQuestionEndsBeforeItsCtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent atomic.Bool
		_, conn := connected(t, &silent)
		for _, limit := range []time.Duration{time.Second, 10 * time.Second} {
			session := declared(t, conn)
			silent.Store(true)
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			depth, err := ask.DepthOf(ctx, session, "orders")
			cancel()
			synctest.Wait()
			if err != nil || !depth.Unknown || session.Err() != nil {
				t.Errorf("within %v: %+v, %v, the channel %v; want an unknown depth", limit, depth, err, session.Err())
			}
			silent.Store(false)
			_ = session.Close()
		}
	})
}

// A broker that is far away answers late, and that an empty queue is empty is known all the same.
func TestAnEmptyQueueOfABrokerFarAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker, conn := connected(t, new(atomic.Bool))
		session := declared(t, conn)
		defer session.Close()
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
		{"no refusal", (*amqp.Error)(nil), false, false},
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

// A channel that was lost between two questions costs no answer.
func TestAQuestionAfterALostSocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker, conn := connected(t, new(atomic.Bool))
		session := declared(t, conn)
		defer session.Close()
		aside := ask.Aside{Conn: conn}
		defer aside.Close()
		for range 3 {
			if depth, err := aside.DepthOf(t.Context(), "orders"); err != nil || depth.Unknown {
				t.Errorf("%+v, %v; want the depth", depth, err)
			}
			broker.Cut("")
			<-time.After(time.Minute)
		}
	})
}
