package conformance

import (
	"context"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// Headers that come from another life of the message, or from a liar.

// forged returns headers that claim a long past in a queue.
func forged(w topology.WorkQueue) map[string]amqp.Table {
	death := func(queue, reason string, count int64) amqp.Table {
		return amqp.Table{
			"queue": queue, "reason": reason, "count": count, "exchange": "elsewhere",
			"routing-keys": []any{w.Name + "@2"}, "time": time.Unix(1_600_000_000, 0),
		}
	}
	return map[string]amqp.Table{
		"a broker's x-death": {
			"x-death":              []any{death(w.Name, "rejected", 7), death(route.WaitQueue(w.Name, 2), "expired", 3)},
			"x-first-death-queue":  w.Name,
			"x-first-death-reason": "rejected", "x-first-death-exchange": "elsewhere",
			"x-last-death-queue": w.Name, "x-last-death-reason": "rejected", "x-last-death-exchange": "elsewhere",
		},
		"an expiry as last death": {
			"x-death":            []any{death(route.WaitQueue(w.Name, 1), "expired", 1)},
			"x-last-death-queue": route.WaitQueue(w.Name, 1), "x-last-death-reason": "expired", "x-last-death-exchange": w.Name + ".rehop.return",
		},
		"our own counts": {
			"x-rehop-attempts": int64(3), "x-rehop-queue": w.Name, "x-rehop-not-before": time.Now().Add(time.Hour).UnixMilli(),
			"x-delivery-count": int64(19), "x-acquired-count": int64(19),
		},
		"both": {
			"x-death":          []any{death(w.Name, "rejected", 2)},
			"x-rehop-attempts": int64(2), "x-rehop-queue": w.Name,
		},
		"an origin": {
			"x-rehop-queue": w.Name, "x-rehop-exchange": "elsewhere", "x-rehop-routing-key": "order.forged",
		},
		"junk": {
			"x-death": "junk", "x-rehop-attempts": "many", "x-rehop-queue": int32(7), "x-rehop-history": true,
		},
		"junk in an array": {
			"x-death": []any{"junk", amqp.Table{"queue": w.Name, "reason": "rejected", "count": "7"}},
		},
	}
}

func TestForgedCounts(t *testing.T) {
	everywhere(t, func(e *env) {
		exchange, w := e.shop("work")
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			if d.Attempt == 4 {
				return nil
			}
			return errBroken
		})
		e.consume(w, j, consumer.Config{})
		ids := map[string]topology.Address{}
		for name, headers := range forged(w) {
			for _, key := range []string{"order.paid", "order." + w.Name + "@2"} {
				id := name + ", " + key
				e.rawPublish(exchange, key, amqp.Publishing{MessageId: id, Headers: headers})
				ids[id] = topology.Address{Exchange: exchange, RoutingKey: key}
			}
			// Straight to the queue.
			e.rawPublish("", w.Name, amqp.Publishing{MessageId: name, Headers: headers})
			ids[name] = topology.Address{RoutingKey: w.Name}
		}
		e.until("all are done", func() bool {
			for id := range ids {
				if !j.reached(id, consumer.DispositionDone) && !j.reached(id, consumer.DispositionDeadLetter) {
					return false
				}
			}
			return true
		})
		for id, from := range ids {
			e.checkAttempts(j, w, id, 4)
			for _, run := range j.of(id) {
				if got := (topology.Address{Exchange: run.Exchange, RoutingKey: run.RoutingKey}); got != from {
					e.Errorf("message %q, attempt %d: published to %v, want %v", id, run.Attempt, got, from)
				}
			}
		}
		e.atRest(w, 0)
	}, "forged counts do not count")
}

// A key that looks like one of this very queue's waits, bound to it by its owner.
func TestForgedWaitKey(t *testing.T) {
	everywhere(t, func(e *env) {
		exchange := e.name("all")
		w := e.workQueue("work")
		w.Bindings = []topology.Binding{{Exchange: exchange, RoutingKey: "#"}}
		e.declare(topology.Exchange{Name: exchange}, w)
		j := newJournal(fail)
		e.consume(w, j, consumer.Config{})
		id := e.publish(producer.Message{Exchange: exchange, RoutingKey: w.Name + "@4"})
		e.until("it is a dead letter", func() bool { return j.reached(id, consumer.DispositionDeadLetter) })
		e.checkAttempts(j, w, id, 5)
		e.atRest(w, 1)
	}, "forged counts do not count")
}

// republish publishes a raw delivery with all it carries, as people do by hand.
func (e *env) republish(queue string, d amqp.Delivery) {
	e.Helper()
	e.rawPublish("", queue, amqp.Publishing{
		Headers: d.Headers, ContentType: d.ContentType, MessageId: d.MessageId, Timestamp: d.Timestamp,
		Type: d.Type, Priority: d.Priority, Expiration: d.Expiration, Body: d.Body,
	})
}

func TestLetterMovedBackByHand(t *testing.T) {
	everywhere(t, func(e *env) {
		exchange, w := e.shop("work", waits(scaled[0], scaled[1]))
		id := e.publish(producer.Message{Exchange: exchange, RoutingKey: "order.paid", Body: []byte("body")})
		since := time.Now()
		for life := 1; life <= 3; life++ {
			j := newJournal(fail)
			r := e.consume(w, j, consumer.Config{})
			e.until("it is a dead letter", func() bool { return j.reached(id, consumer.DispositionDeadLetter) })
			e.checkAttempts(j, w, id, 3)
			e.halt(r)
			d := e.letter(w)
			e.checkLetter(w, d, wantLetter{
				cause: rehop.CauseExhausted, attempts: 3, err: errBroken.Error(), errorType: "*errors.errorString",
				exchange: exchange, key: "order.paid", since: since, firstGap: scaled[0] + scaled[1],
			})
			since = time.Now()
			e.republish(w.Name, d)
		}
		j := newJournal(succeed)
		e.consume(w, j, consumer.Config{})
		e.until("it is done", func() bool { return j.reached(id, consumer.DispositionDone) })
		e.checkAttempts(j, w, id, 1)
		e.atRest(w, 0)
	}, "letter moved back by hand starts anew")
}

// A message that the broker itself has dead-lettered carries an x-death of the
// work queue, which 3.x goes on counting.
func TestBrokersLetterMovedBackByHand(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work", waits(scaled[0], scaled[1]))
		plan := e.declare(w)
		id := e.publish(producer.Message{RoutingKey: w.Name})
		for range 3 {
			e.nack(w.Name)
			from := w.DeadLetterQueue().Name
			if plan.Engines[0].Engine == topology.EngineNack {
				from = w.Name // a rejection goes to a wait, and comes back from it
			}
			e.republish(w.Name, e.take(from, 1)[0])
		}
		j := newJournal(fail)
		e.consume(w, j, consumer.Config{})
		e.until("it is a dead letter", func() bool { return j.reached(id, consumer.DispositionDeadLetter) })
		e.checkAttempts(j, w, id, 3)
		e.atRest(w, 1)
	}, "letter moved back by hand starts anew")
}

// nack takes a message out of a queue and nacks it without requeue.
func (e *env) nack(queue string) {
	e.Helper()
	ch := e.channel()
	e.until("there is a message in "+queue, func() bool {
		d, ok, err := ch.Get(queue, false)
		if err != nil {
			e.Fatal(err)
		}
		if ok {
			e.noError("nack", d.Nack(false, false))
		}
		return ok
	})
	e.noError("close the channel", ch.Close()) // after which the broker has seen the nack
}
