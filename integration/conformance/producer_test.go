package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// What Publish says, and what is true.

// newProducer returns a producer of its own, closed at the end.
func (e *env) newProducer(cfg producer.Config) *producer.Producer {
	e.Helper()
	p, err := producer.New(e.conn, cfg)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { e.noError("close the producer", p.Close()) })
	return p
}

// checkOutcome checks that an error is one of the producer's, and no other.
func (e *env) checkOutcome(r producer.Receipt, err, want error) {
	e.Helper()
	for _, known := range []error{producer.ErrReturned, producer.ErrNacked, producer.ErrRefused, producer.ErrUnconfirmed} {
		if got := errors.Is(err, known); got != errors.Is(want, known) {
			e.Errorf("Publish: %v; Is(%q) is %v, want %v", err, known, got, !got)
		}
	}
	if want != nil && (r.ID == "" || r.Place != "") {
		e.Errorf("Publish failed with the receipt %+v, want an id and no place", r)
	}
}

// full returns a queue that nacks what is published to it.
func (e *env) full() (queue string) {
	e.Helper()
	queue = e.rawQueue(e.name("full"), amqp.Table{"x-max-length": int64(1), "x-overflow": "reject-publish"})
	for range 20 { // a quorum queue takes a few more than its limit
		if _, err := e.producer.Publish(e.Context(), producer.Message{RoutingKey: queue}); err != nil {
			return queue
		}
	}
	e.Fatalf("queue %s with a length limit of 1 took 20 messages", queue)
	return ""
}

func TestConfirmed(t *testing.T) {
	everywhere(t, func(e *env) {
		queue := e.rawQueue(e.name("work"), nil)
		p := e.newProducer(producer.Config{})
		receipt, err := p.Publish(e.Context(), producer.Message{RoutingKey: queue, ID: "mine", Body: []byte("body")})
		e.checkOutcome(receipt, err, nil)
		if receipt != (producer.Receipt{ID: "mine", Place: producer.PlaceQueue}) {
			e.Errorf("receipt is %+v, want that mine is in its queue", receipt)
		}
		if d := e.take(queue, 1)[0]; d.MessageId != "mine" || d.DeliveryMode != amqp.Persistent || string(d.Body) != "body" || d.Timestamp.IsZero() {
			e.Errorf("published message is %+v, want id, body, timestamp, persistent", d)
		}
	}, "publish: confirmed")
}

func TestReturned(t *testing.T) {
	everywhere(t, func(e *env) {
		exchange, w := e.shop("work")
		p := e.newProducer(producer.Config{})
		for _, to := range []topology.Address{
			{Exchange: exchange, RoutingKey: "invoice.paid"}, // not bound
			{RoutingKey: e.name("nowhere")},                  // no such queue
			{Exchange: e.name("nowhere"), RoutingKey: "order.paid"},
		} {
			receipt, err := p.Publish(e.Context(), producer.Message{Exchange: to.Exchange, RoutingKey: to.RoutingKey})
			e.checkOutcome(receipt, err, producer.ErrReturned)
			if err != nil && !strings.Contains(err.Error(), to.Exchange) {
				e.Errorf("Publish to %v: %v; want the exchange in it", to, err)
			}
		}
		// The producer goes on.
		if _, err := p.Publish(e.Context(), producer.Message{Exchange: exchange, RoutingKey: "order.paid"}); err != nil {
			e.Error(err)
		}
		e.take(w.Name, 1)
	}, "publish: returned")
}

func TestNacked(t *testing.T) {
	everywhere(t, func(e *env) {
		p := e.newProducer(producer.Config{})
		queue := e.full()
		receipt, err := p.Publish(e.Context(), producer.Message{RoutingKey: queue})
		e.checkOutcome(receipt, err, producer.ErrNacked)
	}, "publish: nacked")
}

// What the broker answers by closing the channel, in the midst of others.
func TestRefusedHarmsNoOther(t *testing.T) {
	everywhere(t, func(e *env) {
		queue := e.rawQueue(e.name("work"), nil)
		var lost atomic.Int64
		conn, err := connection.Open(e.Context(), connection.Config{URLs: []string{e.node.AMQPURL()}, Name: e.prefix, OpenTimeout: patience, Logger: e.log(),
			Traces: []connection.Trace{{State: func(s connection.State) {
				if s.Status == connection.Down {
					lost.Add(1)
				}
			}}}})
		if err != nil {
			e.Fatal(err)
		}
		e.closeLater(conn)
		p, err := producer.New(conn, producer.Config{Timeout: patience})
		if err != nil {
			e.Fatal(err)
		}
		e.Cleanup(func() { e.noError("close the producer", p.Close()) })
		var wg sync.WaitGroup
		var mu sync.Mutex
		copies := map[string]producer.Receipt{}
		for range 20 {
			wg.Go(func() {
				for range 25 {
					receipt, err := p.Publish(e.Context(), producer.Message{RoutingKey: queue})
					if err != nil {
						e.Error(err)
						return
					}
					mu.Lock()
					copies[receipt.ID] = receipt
					mu.Unlock()
				}
			})
		}
		for _, bad := range []struct {
			m    producer.Message
			want error
		}{
			{producer.Message{RoutingKey: queue, UserID: "somebody-else"}, producer.ErrRefused},
			{producer.Message{Exchange: e.name("nowhere"), RoutingKey: queue}, producer.ErrReturned},
			{producer.Message{RoutingKey: queue, Body: make([]byte, e.node.tooBig)}, producer.ErrRefused},
			{producer.Message{RoutingKey: queue, UserID: "somebody-else"}, producer.ErrRefused},
		} {
			wg.Go(func() {
				receipt, err := p.Publish(e.Context(), bad.m)
				e.checkOutcome(receipt, err, bad.want)
			})
		}
		wg.Wait()
		if n := lost.Load(); n > 0 {
			e.Errorf("the connection was lost %d times: a message that is refused costs its channel", n)
		}
		if e.Failed() {
			return
		}
		found := map[string]int{}
		ch := e.channel()
		defer ch.Close()
		e.until("every confirmed message has been found", func() bool {
			for _, d := range e.takeAll(ch, queue) {
				found[d.MessageId]++
			}
			return len(found) >= len(copies)
		})
		for id, n := range found {
			receipt, known := copies[id]
			if !known || n > 2 || n > 1 && !receipt.MaybeDuplicate {
				e.Errorf("message %q is in the queue %d times, its receipt is %+v", id, n, receipt)
			}
		}
	}, "publish: refused harms no other")
}

// What is faulty is never sent, and all faults are named.
func TestFaultyMessage(t *testing.T) {
	onNewest(t, func(e *env) {
		receipt, err := e.producer.Publish(e.Context(), producer.Message{
			RoutingKey: strings.Repeat("k", 256), Priority: 10, Expiration: -time.Second, Type: strings.Repeat("t", 256),
			Headers: amqp.Table{"list": []string{"a"}, "CC": "not an array"},
		})
		e.checkOutcome(receipt, err, nil)
		if err == nil {
			e.Fatal("Publish of a faulty message succeeded")
		}
		for _, want := range []string{"RoutingKey is 256 bytes", "Priority is 10", "Expiration is -1s", "Type is 256 bytes", `Headers["list"]`, `"CC"`} {
			if !strings.Contains(err.Error(), want) {
				e.Errorf("Publish: %v\nwant %q in it", err, want)
			}
		}
	}, "publish: refused harms no other")
}

func TestFallback(t *testing.T) {
	everywhere(t, func(e *env) {
		dlq := topology.DeadLetterQueue{Name: e.name("letters"), Type: e.queue, Exchange: e.name("unsent")}
		e.declare(dlq)
		sink, err := producer.NewExchangeSink(e.conn, dlq.Exchange)
		if err != nil {
			e.Fatal(err)
		}
		// The sink's channel may take longer to open here than the default allows.
		p := e.newProducer(producer.Config{Fallback: []producer.Sink{sink}, FallbackAfter: 20 * time.Second})
		full := e.full()
		open := e.rawQueue(e.name("open"), nil)
		for _, test := range []struct {
			exchange, key, user string
			err                 error
			cause               rehop.Cause
		}{
			{"", e.name("nowhere"), e.node.user, producer.ErrReturned, rehop.CauseUnroutable},
			{e.name("nowhere"), "order.paid", e.node.user, producer.ErrReturned, rehop.CauseUnroutable},
			{"", full, e.node.user, producer.ErrNacked, rehop.CauseNacked},
			{"", open, "somebody-else", producer.ErrRefused, rehop.CauseRefused},
		} {
			sent := e.fullMessage(test.exchange, test.key)
			sent.UserID = test.user
			sent.Expiration = 50 * time.Millisecond // must not make the letter vanish
			sent.ID = test.key
			before := time.Now().Truncate(time.Second)
			receipt, err := p.Publish(e.Context(), sent)
			if err != nil {
				e.Errorf("Publish with a fallback: %v", err)
				continue
			}
			if receipt.ID != sent.ID || receipt.Place != producer.PlaceFallback || receipt.Sink != "exchange "+dlq.Exchange || !errors.Is(receipt.Err, test.err) {
				e.Errorf("receipt is %+v, want %q in the fallback because of %q", receipt, sent.ID, test.err)
			}
			d := e.take(dlq.Name, 1)[0]
			h := e.parse(d)
			if h.Failure.Cause != test.cause || h.Exchange != test.exchange || h.RoutingKey != test.key || h.Failure.At.Before(before) ||
				h.Failure.Error == "" || h.Failure.Host == "" || h.Archived.Expiration != "50" || h.Archived.UserID != test.user {
				e.Errorf("the letter's headers say %+v, want %s, published to %q with key %q, expiration and user archived", h, test.cause, test.exchange, test.key)
			}
			sent.UserID = "" // a wrong one may be what was refused
			e.checkRaw(d, sent)
			if d.MessageId != sent.ID || d.DeliveryMode != amqp.Persistent || d.Expiration != "" {
				e.Errorf("the letter is %q, mode %d, expiration %q, want %q, persistent, none", d.MessageId, d.DeliveryMode, d.Expiration, sent.ID)
			}
		}
	}, "publish: fallback takes it")
}

// The broker moves a message that has expired with the user-id of its producer, which it
// refuses from anybody else.
func TestALetterOfAnotherLogin(t *testing.T) {
	onEveryEngine(t, func(e *env) {
		w := e.workQueue("work")
		e.declare(w)
		e.publish(producer.Message{RoutingKey: w.Name, ID: "m-1", UserID: e.node.user, Expiration: time.Millisecond})
		letter := e.take(w.DeadLetterQueue().Name, 1)[0]
		if letter.UserId != e.node.user {
			e.Fatalf("the letter has user-id %q, want %q, or this test shows nothing", letter.UserId, e.node.user)
		}
		for _, login := range []struct {
			conn                   *connection.Conn
			rule, property, header string
		}{
			{e.connectAs("operator", "^$", ".*", "^$"), "another login", "", e.node.user},
			{e.conn, "the login itself", e.node.user, ""},
		} {
			p, err := producer.New(login.conn, producer.Config{})
			if err != nil {
				e.Fatal(err)
			}
			e.Cleanup(func() { e.noError("close the producer", p.Close()) })
			m := producer.FromDelivery(letter)
			m.Expiration = 0
			if _, err := p.Publish(e.Context(), m); err != nil {
				e.Errorf("%s: %v", login.rule, err)
				continue
			}
			d := e.take(w.Name, 1)[0]
			if header, _ := d.Headers["x-rehop-user-id"].(string); d.UserId != login.property || header != login.header {
				e.Errorf("%s: user-id %q and %q in the header, want %q and %q", login.rule, d.UserId, header, login.property, login.header)
			}
		}
	}, "publish: a letter with the user-id of another login")
}

func TestFallbackFailsToo(t *testing.T) {
	everywhere(t, func(e *env) {
		missing := e.name("no-exchange")
		sink, err := producer.NewExchangeSink(e.conn, missing)
		if err != nil {
			e.Fatal(err)
		}
		p := e.newProducer(producer.Config{Fallback: []producer.Sink{sink, brokenSink{}}, FallbackAfter: 20 * time.Second}) // as in TestFallback
		full := e.full()
		receipt, err := p.Publish(e.Context(), producer.Message{RoutingKey: full, ID: "mine"})
		if !errors.Is(err, producer.ErrNacked) || !errors.Is(err, errBroken) {
			e.Errorf("Publish: %v; want one error that is both ErrNacked and the last sink's", err)
		}
		for _, want := range []string{"mine", "nacked", missing, "does not exist", "broken sink", errBroken.Error()} {
			if err == nil || !strings.Contains(err.Error(), want) {
				e.Errorf("Publish: %v; want %q in it", err, want)
			}
		}
		if receipt.Place != "" {
			e.Errorf("receipt is %+v, want no place", receipt)
		}
	}, "publish: both fail")
}

type brokenSink struct{}

func (brokenSink) Name() string                                       { return "broken sink" }
func (brokenSink) Put(context.Context, producer.Message, error) error { return errBroken }

func TestManyGoroutines(t *testing.T) {
	everywhere(t, func(e *env) {
		const goroutines, each = 64, 40
		queue := e.rawQueue(e.name("work"), nil)
		p := e.newProducer(producer.Config{})
		ids := make([][]string, goroutines)
		var wg sync.WaitGroup
		for g := range ids {
			wg.Go(func() {
				for i := range each {
					receipt, err := p.Publish(e.Context(), producer.Message{RoutingKey: queue, ID: fmt.Sprintf("%d-%d", g, i), Body: []byte(fmt.Sprint(g))})
					if err != nil || receipt.Place != producer.PlaceQueue {
						e.Errorf("Publish: %+v, %v", receipt, err)
						return
					}
					ids[g] = append(ids[g], receipt.ID)
				}
			})
		}
		wg.Wait()
		last := map[string]int{}
		for _, d := range e.take(queue, goroutines*each) {
			var g, i int
			if _, err := fmt.Sscanf(d.MessageId, "%d-%d", &g, &i); err != nil {
				e.Fatal(err)
			}
			if string(d.Body) != fmt.Sprint(g) {
				e.Errorf("message %q has the body %q", d.MessageId, d.Body)
			}
			last[string(d.Body)]++
			if !slices.Contains(ids[g], d.MessageId) {
				e.Errorf("message %q was never confirmed, or is there twice", d.MessageId)
			} else {
				ids[g] = slices.DeleteFunc(ids[g], func(id string) bool { return id == d.MessageId })
			}
		}
		if len(last) != goroutines {
			e.Errorf("messages of %d goroutines arrived, want %d", len(last), goroutines)
		}
	}, "publish: 64 goroutines")
}
