package desk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/internal/letter"
	"github.com/rehop/rehop/topology"
)

const (
	// collectConcurrency is how many letters of a queue are stored at a time.
	collectConcurrency = 16

	// collectNoted is how often a collector writes down how many letters it has. It runs
	// for months, and its file grows by a line each time.
	collectNoted = time.Minute

	// collectTold is how often a collector calls progress.
	collectTold = 10 * time.Second
)

// Collect takes letters out of queues and stores them until ctx ends.
func (c *storeSource) Collect(ctx context.Context, queues []string, by By, progress func(int)) (int, error) {
	consumers, collected, err := c.collectors(ctx, queues)
	if err != nil {
		return 0, err
	}
	a, err := c.cfg.Journal.undertake(Record{By: by, Action: "collect", Source: "queue " + strings.Join(queues, ", queue "), Which: "into " + c.cfg.Name})
	if err != nil {
		return 0, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error)
	for i, one := range consumers {
		go func() { ended <- missing(context.WithoutCancel(ctx), c.conn, queues[i], one.Run(ctx)) }()
	}
	told, noted := time.NewTicker(collectTold), time.NewTicker(collectNoted)
	defer told.Stop()
	defer noted.Stop()
	var errs []error
	for left, lastTold, lastNoted := len(consumers), 0, 0; left > 0; {
		select {
		case err := <-ended:
			errs = append(errs, err)
			left--
			stop()
		case <-told.C:
			if n := int(collected.Load()); n != lastTold && progress != nil {
				progress(n)
				lastTold = n
			}
		case <-noted.C:
			if n := int(collected.Load()); n != lastNoted {
				// The letters are in the store whether the file can be written or not.
				_ = a.write(actProgress{Count: n})
				lastNoted = n
			}
		}
	}
	n := int(collected.Load())
	return n, a.end(n, errors.Join(errs...))
}

// collectors returns a consumer of each queue, and the number of letters that they have
// stored.
func (c *storeSource) collectors(ctx context.Context, queues []string) ([]*consumer.Consumer, *atomic.Int64, error) {
	switch {
	case c.conn == nil:
		return nil, nil, rehop.WithClass(errors.New("desk: there is no Conn to collect letters on"), rehop.ClassConfiguration)
	case len(queues) == 0:
		return nil, nil, rehop.WithClass(errors.New("desk: there is no queue to collect letters from"), rehop.ClassBug)
	}
	var all []*consumer.Consumer
	var collected atomic.Int64
	var errs []error
	for _, queue := range queues {
		of, err := ownerOf(ctx, c.conn, queue)
		if err != nil {
			return nil, nil, err
		}
		one, err := consumer.New(c.conn, topology.DeadLetterQueue{Name: queue}, func(ctx context.Context, d *consumer.Delivery) error {
			if l := fromDelivery(d.AMQP(), queue, of); l.Doubt != "" {
				doubted := *d
				doubted.Headers = letter.WithDoubt(d.Headers, l.Doubt)
				d = &doubted
			}
			err := c.store.Collect(ctx, d)
			if err == nil {
				collected.Add(1)
			}
			return err
		}, consumer.Config{Concurrency: collectConcurrency})
		if err != nil {
			errs = append(errs, fmt.Errorf("desk: %w", err))
		}
		all = append(all, one)
	}
	return all, &collected, errors.Join(errs...)
}
