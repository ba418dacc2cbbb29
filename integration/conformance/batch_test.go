package conformance

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// What PublishAll says, and what is true.

func TestBatchKeepsItsOrder(t *testing.T) {
	everywhere(t, func(e *env) {
		const n = 500
		queue := e.rawQueue(e.name("work"), nil)
		p := e.newProducer(producer.Config{Window: 64})
		if receipts, err := p.PublishAll(e.Context(), nil); len(receipts) != 0 || err != nil {
			e.Errorf("PublishAll of nothing = %v, %v", receipts, err)
		}
		batch := make([]producer.Message, n)
		for i := range batch {
			batch[i] = producer.Message{RoutingKey: queue, Body: []byte(fmt.Sprint(i))}
		}
		receipts, err := p.PublishAll(e.Context(), batch)
		if err != nil || len(receipts) != n {
			e.Fatalf("PublishAll = %d receipts, %v, want %d", len(receipts), err, n)
		}
		for i, d := range e.take(queue, n) {
			if string(d.Body) != fmt.Sprint(i) || d.MessageId != receipts[i].ID || d.Timestamp.IsZero() || receipts[i].Place != producer.PlaceQueue {
				e.Fatalf("message %d is %q with id %q; its receipt says %+v", i, d.Body, d.MessageId, receipts[i])
			}
		}
		if batch[0].ID != "" {
			e.Error("the caller's messages were changed")
		}
	}, "batch: confirmed, in order, larger than the window")
}

func TestBatchOutcomes(t *testing.T) {
	everywhere(t, func(e *env) {
		exchange, w := e.shop("work")
		full := e.full()
		p := e.newProducer(producer.Config{})
		tests := []struct {
			m    producer.Message
			want error
		}{
			{producer.Message{Exchange: exchange, RoutingKey: "order.paid"}, nil},
			{producer.Message{Exchange: exchange, RoutingKey: "invoice.paid"}, producer.ErrReturned},
			{producer.Message{RoutingKey: full}, producer.ErrNacked},
			{producer.Message{Exchange: exchange, RoutingKey: "order.paid"}, nil},
			{producer.Message{Exchange: e.name("nowhere"), RoutingKey: "order.paid"}, producer.ErrReturned},
			{producer.Message{Exchange: exchange, RoutingKey: "order.paid", UserID: "somebody-else"}, producer.ErrRefused},
			{producer.Message{Exchange: exchange, RoutingKey: "order.paid"}, nil},
		}
		var batch []producer.Message
		for i, test := range tests {
			test.m.ID = fmt.Sprint(i)
			batch = append(batch, test.m)
		}
		receipts, err := p.PublishAll(e.Context(), batch)
		if len(receipts) != len(tests) {
			e.Fatalf("PublishAll = %d receipts, %v", len(receipts), err)
		}
		safe := map[string]producer.Receipt{}
		for i, r := range receipts {
			if r.ID != fmt.Sprint(i) {
				e.Errorf("receipt %d is of message %q", i, r.ID)
			}
			e.checkOutcome(r, r.Err, tests[i].want)
			if r.Err != nil && !errors.Is(err, r.Err) {
				e.Errorf("PublishAll: %v; want %q in it", err, r.Err)
			}
			if tests[i].want == nil {
				safe[r.ID] = r
			}
			if (r.Place == producer.PlaceQueue) != (tests[i].want == nil) {
				e.Errorf("receipt of message %d is %+v", i, r)
			}
		}
		found := map[string]int{}
		ch := e.channel()
		defer ch.Close()
		e.until("every confirmed message has been found", func() bool {
			for _, d := range e.takeAll(ch, w.Name) {
				found[d.MessageId]++
			}
			return len(found) >= len(safe)
		})
		for id, n := range found {
			if r, known := safe[id]; !known || n > 2 || n > 1 && !r.MaybeDuplicate {
				e.Errorf("message %q is in the queue %d times, its receipt is %+v", id, n, r)
			}
		}
	}, "batch: each message has its own outcome")
}

func TestFaultyBatch(t *testing.T) {
	onNewest(t, func(e *env) {
		queue := e.rawQueue(e.name("work"), nil)
		receipts, err := e.producer.PublishAll(e.Context(), []producer.Message{
			{RoutingKey: queue}, {RoutingKey: queue, Priority: 10}, {RoutingKey: queue}, {RoutingKey: strings.Repeat("k", 256), Expiration: -time.Second},
		})
		if err == nil || receipts != nil {
			e.Fatalf("PublishAll of faulty messages = %v, %v", receipts, err)
		}
		e.checkOutcome(producer.Receipt{}, err, nil)
		for _, want := range []string{"messages[1]: ", "Priority is 10", "messages[3]: ", "RoutingKey is 256 bytes", "Expiration is -1s"} {
			if !strings.Contains(err.Error(), want) {
				e.Errorf("PublishAll: %v\nwant %q in it", err, want)
			}
		}
		e.publish(producer.Message{RoutingKey: queue, ID: "after"})
		if d := e.take(queue, 1)[0]; d.MessageId != "after" {
			e.Errorf("message %q of the faulty batch was sent", d.MessageId)
		}
	}, "batch: a faulty message stops all")
}

func TestBatchFallback(t *testing.T) {
	everywhere(t, func(e *env) {
		dlq := topology.DeadLetterQueue{Name: e.name("letters"), Type: e.queue, Exchange: e.name("unsent")}
		e.declare(dlq)
		sink, err := producer.NewExchangeSink(e.conn, dlq.Exchange)
		if err != nil {
			e.Fatal(err)
		}
		p := e.newProducer(producer.Config{Fallback: []producer.Sink{sink}, FallbackAfter: 20 * time.Second}) // as in TestFallback
		queue := e.rawQueue(e.name("work"), nil)
		receipts, err := p.PublishAll(e.Context(), []producer.Message{{RoutingKey: queue}, {RoutingKey: e.name("nowhere"), ID: "lost"}, {RoutingKey: queue}})
		if err != nil || len(receipts) != 3 {
			e.Fatalf("PublishAll with a fallback = %v, %v", receipts, err)
		}
		if r := receipts[1]; r.Place != producer.PlaceFallback || r.Sink != "exchange "+dlq.Exchange || !errors.Is(r.Err, producer.ErrReturned) {
			e.Errorf("receipt is %+v, want the message in the fallback because it was returned", r)
		}
		if d := e.take(dlq.Name, 1)[0]; d.MessageId != "lost" {
			e.Errorf("the letter is %q", d.MessageId)
		}
		e.take(queue, 2)
	}, "batch: fallback takes what failed")
}
