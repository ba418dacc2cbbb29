package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/store"
)

// How long callers publish before and after an outage. A quorum queue that is
// killed young may be wiped by the broker itself.
const (
	calmBefore = 15 * time.Second
	calmAfter  = 5 * time.Second
)

// received is what the caller of Publish was told: the ledger is to hold little,
// since its memory is measured with the rest.
type received struct {
	place producer.Place
	safe  bool
}

// away kills the broker under 1,000 messages a second and starts it again.
func (b *bench) away(ctx context.Context) error {
	if os.Getenv("AMQP_URL") != "" {
		log.Print("AMQP_URL is set: that broker is not ours to kill, there is no outage")
		return nil
	}
	const queue = "store-bench-outage"
	forwarder, end, err := b.producer(ctx, queue)
	if err != nil {
		return err
	}
	defer end()
	db, s, err := b.open(ctx, "outage.db")
	if err != nil {
		return err
	}
	defer db.Close()
	conn, err := b.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	publisher, err := producer.New(conn, producer.Config{Fallback: []producer.Sink{s}})
	if err != nil {
		return err
	}
	defer publisher.Close()
	forwarding, stop := context.WithCancel(ctx)
	defer stop()
	forwarded := make(chan error, 1)
	go func() { forwarded <- runForwarder(forwarding, s, forwarder, store.ForwardConfig{}) }()

	heap := newHeap()
	var phase atomic.Int32 // before, in, after
	var back atomic.Bool
	var took [3]latencies
	var mu sync.Mutex
	receipts := map[string]received{}
	load, quit := context.WithCancel(ctx)
	defer quit()
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			<-time.After(time.Duration(c) * time.Millisecond) // not all at the same moment
			tick := time.NewTicker(callers * time.Millisecond)
			defer tick.Stop()
			for i := 0; load.Err() == nil; i++ {
				id := fmt.Sprint(c, "-", i)
				at, began := phase.Load(), time.Now()
				receipt, err := publisher.Publish(ctx, producer.Message{RoutingKey: queue, ID: id, Body: make([]byte, bodySize)})
				took[at].add(time.Since(began))
				if at == 1 && receipt.Place == producer.PlaceQueue && back.Load() {
					phase.CompareAndSwap(1, 2)
				}
				mu.Lock()
				receipts[id] = received{receipt.Place, err == nil}
				mu.Unlock()
				<-tick.C
			}
		})
	}
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	wait := func(long time.Duration) {
		for over := time.Now().Add(long); time.Now().Before(over); <-look.C {
			heap.look()
		}
	}
	wait(calmBefore)
	phase.Store(1)
	if err := b.broker.Kill(ctx); err != nil {
		return err
	}
	down := time.Now()
	wait(b.outage)
	if err := b.broker.Start(ctx); err != nil {
		return err
	}
	back.Store(true)
	length := time.Since(down)
	wait(calmAfter)
	quit()
	all.Wait()
	for {
		n, err := s.Count(ctx, store.Query{States: []store.State{store.Ready}})
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		wait(100 * time.Millisecond)
	}
	stop()
	if err := <-forwarded; err != nil {
		return err
	}
	for i, name := range []string{"before", "in", "after"} {
		row(fmt.Sprintf("Publish at 1,000/s, 64 goroutines, %s an outage of %v: p50, p99, max", name, length.Round(time.Second)), "%v", &took[i])
	}
	row("heap in use: before, highest in the outage", "%v", heap)
	return b.audit(queue, receipts)
}

// audit compares what is in the queue with what the callers were told.
func (b *bench) audit(queue string, receipts map[string]received) error {
	there, err := drain(b.broker.AMQPURL(), queue)
	if err != nil {
		return err
	}
	var unsafe, stored, lost, twice, unexpected int
	for id, r := range receipts {
		switch {
		case !r.safe:
			unsafe++
		case there[id] == 0:
			lost++
		case there[id] > 1:
			twice++
		}
		if r.place == producer.PlaceFallback {
			stored++
		}
	}
	for id := range there {
		if _, known := receipts[id]; !known {
			unexpected++
		}
	}
	row("messages: published, stored meanwhile, lost, twice, without a safe receipt", "%d, %d, %d, %d, %d", len(receipts), stored, lost, twice, unsafe)
	if lost+unexpected > 0 {
		return fmt.Errorf("%d messages are lost, %d are nobody's", lost, unexpected)
	}
	return nil
}

// drain counts the message ids in a queue.
func drain(url, queue string) (ids map[string]int, err error) {
	conn, err := amqp.Dial(url)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	if err := ch.Qos(1000, 0, false); err != nil {
		return nil, err
	}
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		return nil, err
	}
	ids = map[string]int{}
	for {
		select {
		case d, open := <-deliveries:
			if !open {
				return nil, errors.New("the channel was closed")
			}
			ids[d.MessageId]++
			if err := d.Ack(false); err != nil {
				return nil, err
			}
		case <-time.After(3 * time.Second):
			return ids, nil
		}
	}
}
