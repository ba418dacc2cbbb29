package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// flat publishes and consumes as many messages as the measure large has letters, of ever
// new keys and in batches, and tells how much memory is in use after each tenth of them.
func (b *bench) flat(ctx context.Context) (err error) {
	conn, err := b.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	w := topology.WorkQueue{Name: "bench.flat"}
	if err := topology.Declare(ctx, conn, w); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, topology.DeleteAll(ctx, conn, w)) }()
	p, err := producer.New(conn, producer.Config{})
	if err != nil {
		return err
	}
	defer p.Close()

	var handled atomic.Int64
	progress := make(chan struct{}, 1)
	c, err := consumer.NewBatch(conn, w, func(_ context.Context, batch []*consumer.Delivery) error {
		handled.Add(int64(len(batch)))
		select {
		case progress <- struct{}{}:
		default:
		}
		return nil
	}, consumer.Batch{Size: 100, Linger: 10 * time.Millisecond}, consumer.Config{Concurrency: 4, KeyLimit: 1})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- c.Run(running) }()
	defer func() { stop(); err = errors.Join(err, <-ran) }()

	reached := func(n int) error {
		for handled.Load() < int64(n) {
			select {
			case <-progress:
			case <-time.After(time.Minute):
				return fmt.Errorf("%d of %d messages were handled, and none for a minute", handled.Load(), n)
			}
		}
		return nil
	}
	const ahead, together = 10_000, 1000
	body := make([]byte, bodySize)
	heaps := ""
	began := time.Now()
	for sent := 0; sent < b.rows; {
		some := make([]producer.Message, min(together, b.rows-sent))
		for i := range some {
			// Each key has ten messages, one after the other, and is never seen again.
			some[i] = producer.Message{RoutingKey: w.Name, ID: fmt.Sprint(sent + i), OrderKey: fmt.Sprint("customer-", (sent+i)/10_000*1000+(sent+i)%1000), Body: body}
		}
		if _, err := p.PublishAll(ctx, some); err != nil {
			return err
		}
		sent += len(some)
		if err := reached(sent - ahead); err != nil {
			return err
		}
		if sent%max(b.rows/10, together) == 0 {
			if err := reached(sent); err != nil {
				return err
			}
			heaps += fmt.Sprintf(" %.1f", float64(inUse())/(1<<20))
		}
	}
	row(fmt.Sprintf("MiB in use after each tenth of %d messages in batches of 100, with KeyLimit 1 and %d keys", b.rows, b.rows/10), "%s; %.0f/s", heaps[1:], float64(b.rows)/time.Since(began).Seconds())
	return nil
}

// inUse returns the bytes in use.
func inUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
