package otel_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/faultproxy"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// account has what hooks of a user's own say of every message by its id.
type account struct {
	mu                      sync.Mutex
	published               map[string]int // receipts
	places                  map[producer.Place]int64
	received, settled       map[string]int
	dispositions            map[string]int64
	receivedAll, settledAll int64
	changed                 chan struct{} // has a value after a change
}

// reached waits until a condition of the account is true, and reports false if ctx has
// ended before.
func (a *account) reached(ctx context.Context, condition func() bool) bool {
	is := func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return condition()
	}
	for !is() {
		select {
		case <-a.changed:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// unlock ends a change.
func (a *account) unlock() {
	a.mu.Unlock()
	select {
	case a.changed <- struct{}{}:
	default: // one is waiting to be seen
	}
}

func (a *account) producer() producer.Trace {
	return producer.Trace{Published: func(_ context.Context, p producer.Published) {
		m, r := p.Message, p.Receipt
		a.mu.Lock()
		defer a.unlock()
		a.published[m.ID]++
		a.places[r.Place]++
	}}
}

func (a *account) consumer() consumer.Trace {
	return consumer.Trace{
		Received: func(ctx context.Context, d *consumer.Delivery) context.Context {
			a.mu.Lock()
			defer a.unlock()
			a.received[d.ID]++
			a.receivedAll++
			return ctx
		},
		Settled: func(_ context.Context, s consumer.Settled) {
			a.mu.Lock()
			defer a.unlock()
			a.settled[s.Delivery.ID]++
			a.settledAll++
			a.dispositions[string(s.Disposition)]++
		},
	}
}

var accounted = flag.Int("messages", 2000, "messages of TestTheNumbersAreThoseOfAnAccountByID")

// Many messages fail, wait, die, are stored, forwarded and replayed while the
// connections are cut. The metrics add up at every moment, and in the end they are the
// account's.
func TestTheNumbersAreThoseOfAnAccountByID(t *testing.T) {
	onEachInTurn(t, func(t *testing.T, s *service) {
		n := *accounted
		s.declare()
		address, err := url.Parse(s.broker.AMQPURL())
		check(t, err)
		proxy, err := faultproxy.Start(address.Host)
		check(t, err)
		t.Cleanup(proxy.Close)
		address.Host = proxy.Addr()
		s.conn = s.connect(address.String())
		a := &account{published: map[string]int{}, places: map[producer.Place]int64{}, received: map[string]int{}, settled: map[string]int{}, dispositions: map[string]int64{}, changed: make(chan struct{}, 1)}
		letters, _ := s.store()
		p := s.producer(s.conn, producer.Config{Fallback: []producer.Sink{letters}, FallbackAfter: 20 * time.Millisecond, Traces: []producer.Trace{a.producer()}})
		forwarder := s.producer(s.conn, producer.Config{Traces: []producer.Trace{a.producer()}})

		// Every fifth message fails once, every tenth always, until it is replayed.
		var replaying atomic.Bool
		var ended sync.Map
		stop := s.consume(s.orders, consumer.Config{Concurrency: 50, Traces: []consumer.Trace{a.consumer()}}, func(_ context.Context, d *consumer.Delivery) error {
			h := fnv.New32()
			fmt.Fprint(h, d.ID)
			switch which := h.Sum32() % 20; {
			case which < 2 && !replaying.Load():
				return errPaper
			case which == 2 && !replaying.Load():
				return consumer.DeadLetter(errPaper)
			case which < 6 && d.Attempt == 1:
				return errPaper
			}
			<-time.After(time.Millisecond) // so that a cut finds messages in hand
			ended.Store(d.ID, true)
			return nil
		})
		stopLetters := s.consume(s.orders.DeadLetterQueue(), consumer.Config{Concurrency: 10, Traces: []consumer.Trace{a.consumer()}}, letters.Collect)
		stopForward := s.forward(letters, forwarder)

		// Meanwhile somebody looks all the time, and somebody cuts.
		watching, endWatching := context.WithCancel(t.Context())
		var beside sync.WaitGroup
		looks := 0
		beside.Go(func() {
			for watching.Err() == nil {
				all := s.collect()
				received, settled, hand := s.sum(all, "messaging.client.consumed.messages"), s.sum(all, "rehop.consumer.settled"), s.sum(all, "rehop.consumer.in_hand")
				if received != settled+hand {
					t.Errorf("received %d, settled %d, in hand %d", received, settled, hand)
				}
				looks++
				pause.For(watching, 20*time.Millisecond)
			}
		})
		beside.Go(func() {
			// The broker is away until messages have gone to the store.
			stored := func() bool { return a.places[producer.PlaceFallback] > 0 }
			a.reached(watching, func() bool { return len(a.published) >= n/4 })
			check(t, proxy.Refuse(true))
			proxy.Cut()
			a.reached(watching, stored)
			check(t, proxy.Refuse(false))
			for part := range int64(5) {
				if a.reached(watching, func() bool { return a.receivedAll >= (part+2)*int64(n)/6 }) {
					proxy.Cut()
				}
			}
			for range 10 {
				if pause.For(watching, 2*time.Second) {
					proxy.Cut()
				}
			}
		})
		var callers sync.WaitGroup
		for caller := range 50 {
			callers.Go(func() {
				for i := range n / 50 {
					if _, err := p.Publish(t.Context(), producer.Message{Exchange: s.name, RoutingKey: "order.paid", ID: fmt.Sprintf("order-%d-%d", caller, i)}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
		count := func() (ids int) {
			ended.Range(func(any, any) bool { ids++; return true })
			return ids
		}
		t.Cleanup(func() {
			if t.Failed() {
				ready, _ := letters.Count(context.Background(), store.Query{States: []store.State{store.Ready}})
				held, _ := letters.Count(context.Background(), store.Query{States: []store.State{store.Held}})
				a.mu.Lock()
				defer a.mu.Unlock()
				t.Logf("%d done, %d letters to forward, %d held; %+v %v %v", count(), ready, held, a.places, a.dispositions, a.receivedAll)
			}
		})
		poll.Until(t, 5*time.Minute, "every message is done, or is a letter", func() bool {
			held, err := letters.Count(t.Context(), store.Query{States: []store.State{store.Held}})
			check(t, err)
			return count()+held >= n
		})
		replaying.Store(true)
		poll.Until(t, 5*time.Minute, "every message is done", func() bool {
			_, err := letters.Replay(t.Context(), forwarder, store.Query{All: true, States: []store.State{store.Held}}, store.ReplayOptions{})
			check(t, err)
			return count() == n
		})
		endWatching()
		beside.Wait()
		stop()
		stopLetters()
		stopForward()
		check(t, errors.Join(p.Close(), forwarder.Close()))

		all := s.collect()
		for _, row := range []struct {
			what string
			got  int64
			want int64
		}{
			{"published", s.sum(all, "messaging.client.sent.messages"), a.places[producer.PlaceQueue] + a.places[producer.PlaceFallback] + a.places[""]},
			{"published to a queue", s.sum(all, "messaging.client.sent.messages", "rehop.place", "queue"), a.places[producer.PlaceQueue]},
			{"published to the store", s.sum(all, "messaging.client.sent.messages", "rehop.place", "fallback"), a.places[producer.PlaceFallback]},
			{"not safe", s.sum(all, "messaging.client.sent.messages", "rehop.place", "unknown"), a.places[""]},
			{"durations of publishes", s.sum(all, "messaging.client.operation.duration"), a.places[producer.PlaceQueue] + a.places[producer.PlaceFallback] + a.places[""]},
			{"without a receipt", s.sum(all, "rehop.producer.unconfirmed"), 0},
			{"received", s.sum(all, "messaging.client.consumed.messages"), a.receivedAll},
			{"settled", s.sum(all, "rehop.consumer.settled"), a.settledAll},
			{"done", s.sum(all, "rehop.consumer.settled", "rehop.disposition", "done"), a.dispositions["done"]},
			{"waits", s.sum(all, "rehop.consumer.settled", "rehop.disposition", "wait"), a.dispositions["wait"]},
			{"dead letters", s.sum(all, "rehop.consumer.settled", "rehop.disposition", "dead-letter"), a.dispositions["dead-letter"]},
			{"back in the queue", s.sum(all, "rehop.consumer.settled", "rehop.disposition", "requeued"), a.dispositions["requeued"]},
			{"in hand", s.sum(all, "rehop.consumer.in_hand"), 0},
			{"copies unconfirmed", s.sum(all, "rehop.consumer.copies.unconfirmed"), 0},
			{"held", s.sum(all, "rehop.consumer.held"), 0},
		} {
			if row.got != row.want {
				t.Errorf("%s: the metrics say %d, the account %d", row.what, row.got, row.want)
			}
		}
		if a.receivedAll != a.settledAll {
			t.Errorf("the account has %d received and %d settled", a.receivedAll, a.settledAll)
		}
		for id, times := range a.received {
			if a.settled[id] != times {
				t.Errorf("%s was received %d times and settled %d times", id, times, a.settled[id])
			}
		}
		if a.places[producer.PlaceFallback] == 0 || a.dispositions["requeued"] == 0 {
			t.Errorf("%d messages went to the store and %d back to their queue, want some of each", a.places[producer.PlaceFallback], a.dispositions["requeued"])
		}
		if len(a.received) != n || len(a.published) != n {
			t.Errorf("%d ids published and %d received, want %d", len(a.published), len(a.received), n)
		}
		t.Logf("%d looks; %d to the store, %d received, %d back in a queue, %d dead letters",
			looks, a.places[producer.PlaceFallback], a.receivedAll, a.dispositions["requeued"], a.dispositions["dead-letter"])
	})
}
