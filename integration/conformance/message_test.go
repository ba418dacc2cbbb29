package conformance

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
	"github.com/rehop/rehop/xdeath"
)

// What a message is after its waits: the same.

// shop declares an exchange and a work queue bound to it.
func (e *env) shop(what string, change ...func(*topology.WorkQueue)) (exchange string, w topology.WorkQueue) {
	exchange = e.name("shop")
	w = e.workQueue(what, change...)
	w.Bindings = []topology.Binding{{Exchange: exchange, RoutingKey: "order.#"}}
	e.declare(topology.Exchange{Name: exchange}, w)
	return exchange, w
}

// fullMessage returns a message with every property and many kinds of headers.
func (e *env) fullMessage(exchange, key string) producer.Message {
	return producer.Message{
		Exchange: exchange, RoutingKey: key, Body: []byte("a body \x00 with bytes"),
		ContentType: "application/json", ContentEncoding: "identity", Type: "order", CorrelationID: "c-1",
		ReplyTo: "replies", AppID: "conformance", UserID: e.node.user,
		Timestamp: time.Unix(1_700_000_000, 0), Priority: 7,
		Headers: amqp.Table{
			"text": "täxt", "yes": true, "int": int64(1) << 40, "small": int32(-7), "float": 2.5, "none": nil,
			"bytes": []byte{0, 1, 2}, "time": time.Unix(1_600_000_000, 0),
			"table": amqp.Table{"inner": []any{"a", int64(2), amqp.Table{"deep": "est"}}},
			"x-own": "of the user", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		},
	}
}

// checkRaw checks body, properties and the user's headers of a raw delivery.
func (e *env) checkRaw(d amqp.Delivery, want producer.Message) {
	e.Helper()
	e.checkSame(want, producer.Message{
		Body: d.Body, Headers: d.Headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, Type: d.Type,
		CorrelationID: d.CorrelationId, ReplyTo: d.ReplyTo, AppID: d.AppId, UserID: d.UserId, Timestamp: d.Timestamp, Priority: d.Priority,
	})
}

// checkRun likewise, of what a handler was given.
func (e *env) checkRun(d consumer.Delivery, want producer.Message) {
	e.Helper()
	e.checkSame(want, producer.Message{
		Body: d.Body, Headers: d.Headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, Type: d.Type,
		CorrelationID: d.CorrelationID, ReplyTo: d.ReplyTo, AppID: d.AppID, UserID: d.UserID, Timestamp: d.Timestamp, Priority: d.Priority,
	})
}

func (e *env) checkSame(want, got producer.Message) {
	e.Helper()
	got.Exchange, got.RoutingKey, got.ID, got.Expiration = want.Exchange, want.RoutingKey, want.ID, want.Expiration // checked elsewhere
	headers := amqp.Table{}
	for key, v := range got.Headers {
		if _, isUsers := want.Headers[key]; isUsers || !strings.HasPrefix(key, "x-") {
			headers[key] = v
		}
	}
	got.Headers = headers
	if !got.Timestamp.Equal(want.Timestamp) {
		e.Errorf("timestamp is %v, want %v", got.Timestamp, want.Timestamp)
	}
	got.Timestamp = want.Timestamp
	if !reflect.DeepEqual(got, want) {
		e.Errorf("message has changed:\ngot  %#v\nwant %#v", got, want)
	}
}

func TestPropertiesUnchanged(t *testing.T) {
	everywhere(t, func(e *env) {
		exchange, w := e.shop("work")
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			if d.Attempt <= len(w.Waits) {
				return errBroken
			}
			return nil
		})
		e.consume(w, j, consumer.Config{})
		sent := e.fullMessage(exchange, "order.paid")
		id := e.publish(sent)
		e.until("it is done", func() bool { return j.reached(id, consumer.DispositionDone) })
		e.checkAttempts(j, w, id, 5)
		for _, run := range j.of(id) {
			e.checkRun(run.Delivery, sent)
			if run.Exchange != exchange || run.RoutingKey != "order.paid" {
				e.Errorf("attempt %d came with exchange %q and key %q, want the producer's", run.Attempt, run.Exchange, run.RoutingKey)
			}
		}
		e.atRest(w, 0)
	}, "properties and headers unchanged", "routing key is the producer's")
}

// A user-id of somebody else cannot be: the broker checks it. It is archived
// only for a foreign letter, which the SDK's unit tests cover.

func TestCCAndBCC(t *testing.T) {
	everywhere(t, func(e *env) {
		exchange, w := e.shop("work")
		// One receiver by CC, one by BCC, and one that is bound for the same key. The
		// keys are the queues' names: a copy by the default exchange would find them too.
		cc, bcc, also := e.rawQueue(e.name("cc"), nil), e.rawQueue(e.name("bcc"), nil), e.rawQueue(e.name("also"), nil)
		e.rawBind(cc, cc, exchange)
		e.rawBind(bcc, bcc, exchange)
		e.rawBind(also, "order.paid", exchange)
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			if d.Type == "succeeds" && d.Attempt == 4 {
				return nil
			}
			return errBroken
		})
		e.consume(w, j, consumer.Config{})
		ends := map[string]consumer.Disposition{"succeeds": consumer.DispositionDone, "exhausted": consumer.DispositionDeadLetter}
		for kind, end := range ends {
			id := e.publish(producer.Message{Exchange: exchange, RoutingKey: "order.paid", Type: kind, Headers: amqp.Table{
				"CC": []any{cc}, "BCC": []any{bcc},
			}})
			e.until("it has reached its end", func() bool { return j.reached(id, end) })
			for i, run := range j.of(id) {
				if run.Attempt != i+1 || run.Exchange != exchange || run.RoutingKey != "order.paid" {
					e.Errorf("run %d is attempt %d with exchange %q, key %q, want the producer's", i+1, run.Attempt, run.Exchange, run.RoutingKey)
				}
			}
		}
		e.atRest(w, 1)
		for _, queue := range []string{cc, bcc, also} {
			e.take(queue, len(ends)) // and none more
		}
	}, "CC and BCC receivers get it once")
}

func TestExpirationDoesNotShortenWaits(t *testing.T) {
	everywhere(t, func(e *env) {
		const wait, expiration = 6 * time.Second, 5 * time.Second // long, so that a busy machine handles it in time
		w := e.workQueue("work", waits(wait, wait))
		e.declare(w)
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			if d.Type == "first" || d.Attempt == 3 {
				return nil
			}
			return errBroken
		})
		e.consume(w, j, consumer.Config{})
		first := e.publish(producer.Message{RoutingKey: w.Name, Type: "first"})
		e.until("the consumer consumes", func() bool { return j.reached(first, consumer.DispositionDone) })
		// Alone in its waits: one that is due later, ahead of it, would hide that it expires too soon.
		id := e.publish(producer.Message{RoutingKey: w.Name, Expiration: expiration})
		e.until("it is done", func() bool { return j.reached(id, consumer.DispositionDone) })
		e.checkAttempts(j, w, id, 3)
		e.atRest(w, 0)
	}, "expiration does not shorten waits")
}

func TestExpiredInWorkQueue(t *testing.T) {
	everywhere(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		dlq := w.DeadLetterQueue()
		id := e.publish(producer.Message{RoutingKey: w.Name, Expiration: 100 * time.Millisecond})
		e.until("it is a dead letter", func() bool { return e.count(dlq.Name) == 1 })
		j := newJournal(succeed)
		e.consume(dlq, j, consumer.Config{})
		e.until("the letter is handled", func() bool { return j.reached(id, consumer.DispositionDone) })
		got := j.of(id)[0]
		if got.History.Count(w.Name, xdeath.ReasonExpired) != 1 {
			e.Errorf("letter's deaths are %v, want one by expiry in %s", got.History.Deaths, w.Name)
		}
		e.atRest(w, 0)
	}, "expired in the work queue")
}

func TestNoHeadOfLineBlocking(t *testing.T) {
	everywhere(t, func(e *env) {
		const short, long = 200 * time.Millisecond, time.Hour
		w := e.workQueue("work", waits(short, long))
		e.declare(w)
		j := newJournal(func(_ context.Context, d *consumer.Delivery) error {
			switch {
			case d.Attempt > 1:
				return nil
			case d.Type == "long":
				return consumer.RetryAfter(long, errBroken)
			}
			return errBroken
		})
		e.consume(w, j, consumer.Config{})
		slow := e.publish(producer.Message{RoutingKey: w.Name, Type: "long"})
		e.until("the long wait has begun", func() bool { return j.reached(slow, consumer.DispositionWait) })
		var quick []string
		for range 5 {
			quick = append(quick, e.publish(producer.Message{RoutingKey: w.Name}))
		}
		for _, id := range quick {
			e.until("a message with the short wait is done", func() bool { return j.reached(id, consumer.DispositionDone) })
			e.checkAttempts(j, w, id, 2)
		}
		if runs := j.of(slow); len(runs) != 1 {
			e.Errorf("the message with the long wait has %d runs, want 1", len(runs))
		}
	}, "long wait does not block a short one")
}
