package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
)

// A message that the broker cannot hand over over AMQP 0-9-1 costs the socket that its
// consumer is on, at each delivery.

func TestAMessageThatCannotBeHandedOverStopsItsQueueAlone(t *testing.T) {
	everywhere(t, func(e *env) {
		bad, good := e.workQueue("bad"), e.workQueue("good")
		e.declare(bad, good)
		conn, err := connection.Open(e.Context(), connection.Config{
			URLs: []string{e.node.AMQPURL()}, Name: e.prefix, OpenTimeout: patience, Logger: e.log(),
		})
		if err != nil {
			e.Fatal(err)
		}
		e.closeLater(conn)
		const concurrency = 5
		var interrupted atomic.Int32
		handled := newJournal(func(ctx context.Context, _ *consumer.Delivery) error {
			select {
			case <-ctx.Done():
				interrupted.Add(1)
			case <-time.After(50 * time.Millisecond):
			}
			return nil
		})
		beside := e.consumeOn(conn, good, handled, consumer.Config{Concurrency: concurrency})
		stuck := e.consumeOn(conn, bad, newJournal(succeed), consumer.Config{Concurrency: concurrency})
		e.until("both consume", func() bool { return beside.Health() == nil && stuck.Health() == nil })

		if err := sendUUID(e.node.AMQPURL(), bad.Name); err != nil {
			e.Fatal(err)
		}
		named := false
		for !named {
			for _, id := range e.send(good.Name, 2*concurrency) {
				e.until("the message beside it is handled", func() bool { return handled.reached(id, consumer.DispositionDone) })
			}
			err := stuck.Health()
			named = err != nil && strings.Contains(err.Error(), "cannot hand over")
		}
		var health *rehop.HealthError
		if err := stuck.Health(); !errors.As(err, &health) || !strings.Contains(err.Error(), bad.Name) {
			e.Errorf("Health = %v, want a *HealthError that names %q", err, bad.Name)
		}
		if n, most := interrupted.Load(), int32(2*concurrency); n > most {
			e.Errorf("%d handlers of the other queue were interrupted, want %d or fewer: those of two sockets", n, most)
		}
		interrupted.Store(0)

		e.noError("take the message out", take10(e.node.AMQPURL(), bad.Name))
		e.send(bad.Name, 1)
		e.until("the queue is consumed again", func() bool { return e.count(bad.Name) == 0 && stuck.Health() == nil })
		e.until("no queue has a socket of its own", func() bool {
			list, err := e.node.Exec(e.Context(), "rabbitmqctl", "-q", "list_connections", "client_properties")
			e.noError("list the connections", err)
			return !strings.Contains(list, bad.Name+" consume") && !strings.Contains(list, good.Name+" consume")
		})
		if n := interrupted.Load(); n > 0 {
			e.Errorf("%d handlers were interrupted after the queue had a socket of its own, want none", n)
		}
	}, "a message that cannot be handed over stops its queue alone")
}

// The broker counts each lost connection for all messages in hand, and handlers have no time for those that came just
// before the guilty one.
func TestAMessageThatCannotBeHandedOverTakesNoNeighbourAlong(t *testing.T) {
	everywhere(t, func(e *env) {
		var ends []func()
		for name, keyLimit := range map[string]int{"ordered": 1, "unordered": 0} {
			w := e.workQueue(name)
			e.declare(w)
			var all []string
			send := func() {
				messages := make([]producer.Message, 8)
				for i := range messages {
					messages[i] = producer.Message{RoutingKey: w.Name, OrderKey: "a", Body: []byte("body")}
				}
				all = append(all, e.publishAll(messages)...)
			}
			send()
			if err := sendUUID(e.node.AMQPURL(), w.Name); err != nil {
				e.Fatal(err)
			}
			send()
			handled := newJournal(func(ctx context.Context, _ *consumer.Delivery) error {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(100 * time.Millisecond):
					return nil
				}
			})
			e.consumeOn(e.connect(e.node.AMQPURL()), w, handled, consumer.Config{KeyLimit: keyLimit})
			ends = append(ends, func() { // both run meanwhile
				e.until("all others are handled, "+name, func() bool {
					return !slices.ContainsFunc(all, func(id string) bool { return !handled.reached(id, consumer.DispositionDone) })
				})
				e.until("the message is a letter, "+name, func() bool { return e.count(w.DeadLetterQueue().Name) > 0 })
				if n := e.count(w.DeadLetterQueue().Name); n != 1 {
					e.Errorf("%d letters, want the one message that cannot be handed over, %s", n, name)
				}
			})
		}
		for _, end := range ends {
			end()
		}
	}, "a message that cannot be handed over takes no neighbour along")
}
