package conformance

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/topology"
)

const ruleByHand = "a queue with retries by hand: over to rehop and back, messages in flight"

// byHand is a queue as RabbitMQ's own pages build retries: what a consumer rejects waits in another queue
// for a time, and comes back by the dead-letter exchange. x-death counts.
type byHand struct {
	e                    *env
	queue, retry, failed string
	tries                int

	mu      sync.Mutex
	handled map[string]int // by id
}

func (e *env) byHand(tries int) *byHand {
	e.Helper()
	h := &byHand{e: e, queue: e.name("hand"), retry: e.name("hand-retry"), failed: e.name("hand-failed"), tries: tries, handled: map[string]int{}}
	e.rawQueue(h.failed, nil)
	e.rawQueue(h.retry, amqp.Table{"x-message-ttl": int32(1000), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": h.queue})
	e.rawQueue(h.queue, amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": h.retry})
	return h
}

// works says what becomes of a message: good ones succeed at once, slow ones at the second try, and bad
// ones never.
func (h *byHand) works(id string, attempt int) error {
	if strings.HasPrefix(id, "bad") || strings.HasPrefix(id, "slow") && attempt < 2 {
		return errBroken
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handled[id]++
	return nil
}

func (h *byHand) done() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.handled)
}

// send publishes n messages of each kind.
func (h *byHand) send(name string, n int) (ids []string) {
	var messages []amqp.Publishing
	for i := range n {
		for _, kind := range []string{"good", "slow", "bad"} {
			id := fmt.Sprintf("%s-%s-%d", kind, name, i)
			messages, ids = append(messages, amqp.Publishing{MessageId: id, Body: []byte("body")}), append(ids, id)
		}
	}
	h.e.rawPublish("", h.queue, messages...)
	return ids
}

// consume is the consumer of those pages, until stop. It gives back what it has not begun.
func (h *byHand) consume() (stop func()) {
	e := h.e
	e.Helper()
	ch := e.channel()
	if err := ch.Qos(20, 0, false); err != nil {
		e.Fatal(err)
	}
	deliveries, err := ch.Consume(h.queue, e.name("by-hand"), false, false, false, false, nil)
	if err != nil {
		e.Fatal(err)
	}
	out := e.channel()
	if err := out.Confirm(false); err != nil {
		e.Fatal(err)
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case d, ok := <-deliveries:
				if !ok {
					return
				}
				tries := 1 + h.rejected(d.Headers)
				switch {
				case h.works(d.MessageId, tries) == nil:
					err = d.Ack(false)
				case tries < h.tries:
					err = d.Nack(false, false)
				default:
					var letter *amqp.DeferredConfirmation
					letter, err = out.PublishWithDeferredConfirmWithContext(e.Context(), "", h.failed, true, false, amqp.Publishing{MessageId: d.MessageId, DeliveryMode: amqp.Persistent})
					if err == nil && letter.Wait() {
						err = d.Ack(false)
					}
				}
				if err != nil {
					e.Error(err)
					return
				}
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(end)
		<-ended
		// Not ch.Close with deliveries in its buffer: the client waits for somebody who reads them.
		_ = ch.Cancel(e.name("by-hand"), true)
		go func() {
			for range deliveries {
			}
		}()
		_ = out.Close()
		_ = ch.Close()
	})
}

// rejected returns how often the queue's consumers have rejected a message.
func (h *byHand) rejected(headers amqp.Table) int {
	deaths, _ := headers["x-death"].([]any)
	for _, death := range deaths {
		if d, _ := death.(amqp.Table); d["queue"] == h.queue && d["reason"] == "rejected" {
			n, _ := d["count"].(int64)
			return int(n)
		}
	}
	return 0
}

func TestByHand(t *testing.T) {
	everywhere(t, func(e *env) {
		const each = 20
		h := e.byHand(3)
		ids := h.send("before", each)
		stop := h.consume()
		defer stop()
		e.until("some are done by hand", func() bool { return h.done() >= each/4 })

		w := topology.WorkQueue{Name: h.queue, Existing: true, Waits: shortly}
		e.declare(w)
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error { return h.works(d.ID, d.Attempt) })
		r := e.consume(w, j, consumer.Config{})
		ids = append(ids, h.send("beside", each)...)
		e.until("both work", func() bool { return j.done() >= each/4 })
		stop()
		ids = append(ids, h.send("over", each)...)
		e.until("rehop works alone", func() bool { return h.done() >= 3*each })

		waiting := func() (n int) {
			for _, name := range e.mustPlan(w).Queues() {
				if name != w.DeadLetterQueue().Name {
					n += e.count(name)
				}
			}
			return n
		}
		defer h.consume()()
		for r.Pause(); ; r.Pause() { // under carry the consumer brings back what waits, also while it is paused
			e.until("nothing waits for rehop", func() bool { return waiting() == 0 })
			e.halt(r)
			if waiting() == 0 {
				break
			}
			r = e.consume(w, j, consumer.Config{}) // a handler was at work when nothing was waiting
		}
		ids = append(ids, h.send("back", each)...)
		good := 2 * len(ids) / 3
		e.until("all are done or failed", func() bool {
			return h.done() >= good && e.count(h.failed)+e.count(w.DeadLetterQueue().Name) >= len(ids)-good
		})
		if n := e.count(h.queue) + e.count(h.retry) + waiting(); n > 0 {
			e.Errorf("all have an end, and %d are in a queue", n)
		}
		ends := map[string]int{}
		for id, n := range h.handled {
			ends[id] += n
		}
		for _, queue := range []string{h.failed, w.DeadLetterQueue().Name} {
			for _, d := range e.takeAll(e.channel(), queue) {
				ends[d.MessageId]++
			}
		}
		for _, id := range ids {
			if ends[id] != 1 {
				e.Errorf("message %q has %d ends, want 1", id, ends[id])
			}
			if runs := j.of(id); len(runs) > 0 && runs[0].Attempt != 1 {
				e.Errorf("rehop begins message %q with attempt %d, want 1 whatever was done by hand", id, runs[0].Attempt)
			}
		}
		if len(ends) != len(ids) {
			e.Errorf("%d messages have an end, want the %d that were sent", len(ends), len(ids))
		}
	}, ruleByHand)
}
