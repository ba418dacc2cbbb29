package conformance

import (
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/topology"
)

// What the tests do beside the SDK, with the client library alone.

// channel returns a raw channel for the rest of the test.
func (e *env) channel() *amqp.Channel {
	e.Helper()
	ch, err := e.raw.Channel()
	if err != nil {
		e.Fatal(err)
	}
	return ch
}

// deleteQueue deletes a queue, and returns when it is gone. RabbitMQ 3.10.8 at times answers
// that it has deleted a quorum queue, and keeps it, with its consumers (5 of 181 deletions
// beside busy cores).
func (e *env) deleteQueue(name string) {
	e.Helper()
	e.until("the queue is deleted", func() bool {
		ch := e.channel() // the question after a queue that is gone closes it
		defer ch.Close()
		if _, err := ch.QueueDelete(name, false, false, false); err != nil {
			e.Fatal(err)
		}
		_, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		return err != nil
	})
}

// rawQueue declares a queue of the type under test, deleted at the end.
func (e *env) rawQueue(name string, args amqp.Table) string {
	e.Helper()
	all := amqp.Table{"x-queue-type": string(e.queue)}
	for k, v := range args {
		all[k] = v
	}
	ch := e.channel()
	defer ch.Close()
	if _, err := ch.QueueDeclare(name, true, false, false, false, all); err != nil {
		e.Fatal(err)
	}
	e.deleteAtEnd([]string{name}, nil)
	return name
}

func (e *env) rawBind(queue, key, exchange string) {
	e.Helper()
	ch := e.channel()
	defer ch.Close()
	if err := ch.QueueBind(queue, key, exchange, false, nil); err != nil {
		e.Fatal(err)
	}
}

// rawPublish publishes persistent, mandatory and confirmed, one after the other.
func (e *env) rawPublish(exchange, key string, messages ...amqp.Publishing) {
	e.Helper()
	ch := e.channel()
	defer ch.Close()
	if err := ch.Confirm(false); err != nil {
		e.Fatal(err)
	}
	returned := ch.NotifyReturn(make(chan amqp.Return, 1))
	for _, p := range messages {
		p.DeliveryMode = amqp.Persistent
		confirm, err := ch.PublishWithDeferredConfirmWithContext(e.Context(), exchange, key, true, false, p)
		if err != nil {
			e.Fatal(err)
		}
		if acked, err := confirm.WaitContext(e.Context()); !acked {
			e.Fatalf("raw publish to %q %q is not confirmed: %v", exchange, key, err)
		}
		if len(returned) > 0 {
			e.Fatalf("raw publish to %q %q was returned", exchange, key)
		}
	}
}

// count returns how many messages of a queue are ready.
func (e *env) count(queue string) int {
	e.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.look == nil {
		e.look = e.channel()
	}
	q, err := e.look.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		e.look = nil
		e.Fatalf("look at queue %q: %v", queue, err)
	}
	return q.Messages
}

// atRest waits until neither the work queue nor its waits hold a message, and
// checks what its dead-letter queue holds then. A letter that the broker moves
// just then is in no count.
func (e *env) atRest(w topology.WorkQueue, letters int) {
	e.Helper()
	e.until(fmt.Sprintf("queue %s and its waits are empty, with %d letters", w.Name, letters), func() bool {
		held := e.count(w.Name)
		for waitNumber := range w.Waits {
			held += e.count(route.WaitQueue(w.Name, waitNumber+1))
		}
		return held == 0 && e.count(w.DeadLetterQueue().Name) >= letters
	})
	if got := e.count(w.DeadLetterQueue().Name); got != letters {
		e.Errorf("%s holds %d letters, want %d", w.DeadLetterQueue().Name, got, letters)
	}
}

// take takes exactly n messages off a queue.
func (e *env) take(queue string, n int) []amqp.Delivery {
	e.Helper()
	ch := e.channel()
	defer ch.Close()
	deliveries, err := ch.Consume(queue, e.prefix, false, false, false, false, nil)
	if err != nil {
		e.Fatal(err)
	}
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	var taken []amqp.Delivery
	for len(taken) < n {
		select {
		case d, ok := <-deliveries:
			if !ok {
				e.Fatalf("consuming %q ended after %d messages, want %d", queue, len(taken), n)
			}
			e.noError("ack", d.Ack(false))
			taken = append(taken, d)
		case <-deadline.C:
			e.Fatalf("queue %q gave %d messages within %v, want %d", queue, len(taken), patience, n)
		}
	}
	if err := ch.Cancel(e.prefix, false); err != nil {
		e.Fatal(err)
	}
	for d := range deliveries {
		e.Errorf("queue %q holds one message more than %d: %q", queue, n, d.MessageId)
	}
	return taken
}

// takeAll takes all messages that a queue has now, however often each is there.
func (e *env) takeAll(ch *amqp.Channel, queue string) (all []amqp.Delivery) {
	e.Helper()
	for {
		d, ok, err := ch.Get(queue, true)
		if err != nil {
			e.Fatal(err)
		}
		if !ok {
			return all
		}
		all = append(all, d)
	}
}

// letter takes the only letter of a work queue's dead-letter queue.
func (e *env) letter(w topology.WorkQueue) amqp.Delivery {
	e.Helper()
	return e.take(w.DeadLetterQueue().Name, 1)[0]
}

// crash is a consumer that dies with a message in its hands: it fetches one
// and closes its channel. It reports whether there was one, and it was
// redelivered.
func (e *env) crash(queue string) (d amqp.Delivery, ok bool) {
	e.Helper()
	ch := e.channel()
	defer ch.Close()
	if err := ch.Qos(1, 0, false); err != nil {
		e.Fatal(err)
	}
	d, ok, err := ch.Get(queue, false)
	if err != nil {
		e.Fatal(err)
	}
	return d, ok
}
