package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"sync"
	"sync/atomic"
	"text/tabwriter"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// shardKeys is how many keys the messages of shards have. Each belongs to one of the goroutines that
// publish, so that its messages have an order.
const shardKeys = 16 * callers

// shardPrefetch is the prefetch of each queue: what a Consumer has by default with as many handlers and
// keys.
const shardPrefetch = 4 * callers

// shardRows are publishing and consuming at the same time, in order by key, on one queue and on several.
func shardRows() (rows []row) {
	for _, n := range []int{1, 2, 4, 8} {
		rows = append(rows, row{name: fmt.Sprintf("quorum: publish and consume, %d of each, in order by key over %d shards", callers, n),
			queue: topology.Quorum, shards: n, end: consumed, rehop: rehopShards, raw: rawShards})
	}
	return rows
}

// inOrder is what is known of the order of the messages of a trial.
type inOrder struct {
	keys     []string
	last     []atomic.Int64 // number of the latest message of each key that was handled
	misplace atomic.Int64   // handled after a later one
	warm     atomic.Int32
	warmed   chan struct{} // closed when each shard has been consumed
}

func newInOrder() *inOrder {
	o := &inOrder{last: make([]atomic.Int64, shardKeys), warmed: make(chan struct{})}
	for k := range shardKeys {
		o.keys = append(o.keys, fmt.Sprint("customer-", k))
		o.last[k].Store(-1)
	}
	return o
}

// handledInOrder is what handlers do.
func (t *trial) handledInOrder(body []byte) {
	o := t.order
	if len(body) != bodySize {
		if o.warm.Add(1) == int32(t.shards.Count) { //nolint:gosec // 100 at most
			close(o.warmed)
		}
		return
	}
	i := int64(binary.BigEndian.Uint64(body)) //nolint:gosec // below n
	if o.last[i%shardKeys].Swap(i) > i {
		o.misplace.Add(1)
	}
	t.handled(body)
}

// publishKeyFunc publishes one message of a key and waits for its confirm.
type publishKeyFunc func(ctx context.Context, key string, body []byte) error

// endToEndInOrder publishes while run consumes. A message of each shard goes all the way before
// the clock starts.
func (t *trial) endToEndInOrder(ctx context.Context, publish publishKeyFunc, run func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var published error
	var wg sync.WaitGroup
	wg.Go(func() {
		if published = t.publishInOrder(ctx, publish); published != nil {
			cancel(published)
		}
	})
	err := run(ctx)
	if err != nil {
		cancel(err)
	}
	wg.Wait()
	if n := t.order.misplace.Load(); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d messages were handled after a later one of their key", n))
	}
	return errors.Join(published, err)
}

func (t *trial) publishInOrder(ctx context.Context, publish publishKeyFunc) error {
	warm := map[string]bool{}
	for _, key := range t.order.keys {
		if queue := t.shards.Queue(key); !warm[queue] {
			warm[queue] = true
			if err := publish(ctx, key, []byte("warm")); err != nil {
				return err
			}
		}
	}
	select {
	case <-t.order.warmed:
	case <-ctx.Done():
		return nil // the reason is that of the consumer
	}
	t.begin()
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for g := range callers {
		wg.Go(func() {
			body := newBody()
			for i := g; i < t.n && errs[g] == nil; i += callers {
				errs[g] = publish(ctx, t.order.keys[i%shardKeys], number(body, i))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func rehopShards(ctx context.Context, t *trial) error {
	return withConn(ctx, t, func(conn *connection.Conn) error {
		publisher, err := producer.New(conn, producer.Config{})
		if err != nil {
			return err
		}
		publish := func(ctx context.Context, key string, body []byte) error {
			_, err := publisher.Publish(ctx, producer.Message{RoutingKey: t.shards.Queue(key), OrderKey: key, Body: body})
			return err
		}
		cfg := consumer.Config{Concurrency: callers, KeyLimit: 1, RetryInPlace: true}
		return errors.Join(t.endToEndInOrder(ctx, publish, func(ctx context.Context) error {
			return consumeFrom(ctx, conn, t, t.shards, cfg, func(_ context.Context, d *consumer.Delivery) error {
				t.handledInOrder(d.Body)
				return nil
			})
		}), publisher.Close())
	})
}

// rawShards has quorum queues of its own, which are declared by hand. It publishes as rawPublish does, and consumes each queue on a
// channel of one connection. The workers are as many as rehop's: each has some of the keys of one queue,
// and acks what it has handled.
func rawShards(ctx context.Context, t *trial) (err error) {
	own := t.shards
	own.Name += "-raw"
	remove, err := declareRaw(t, own)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	p, err := newRawPublisher(t.url, "")
	if err != nil {
		return err
	}
	publish := func(ctx context.Context, key string, body []byte) error {
		confirm, err := p.sendTo(ctx, own.Queue(key), amqp.Table{"key": key}, body)
		if err != nil {
			return err
		}
		return confirmed(ctx, confirm)
	}
	return errors.Join(t.endToEndInOrder(ctx, publish, func(ctx context.Context) error { return rawConsumeShards(ctx, t, own) }), p.close())
}

// declareRaw declares the queues. remove deletes them, and returns an error if messages were left: see
// maxBack.
func declareRaw(t *trial, own topology.Shards) (remove func() error, err error) {
	conn, channel, err := rawChannel(t.url)
	if err != nil {
		return nil, err
	}
	for _, q := range own.WorkQueues() {
		args := amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum, amqp.SingleActiveConsumerArg: true}
		if _, err := channel.QueueDeclare(q.Name, true, false, false, false, args); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return func() (err error) {
		left := 0
		for _, q := range own.WorkQueues() {
			n, failed := channel.QueueDelete(q.Name, false, false, false)
			left, err = left+n, errors.Join(err, failed)
		}
		if left > maxBack {
			err = errors.Join(err, fmt.Errorf("%d messages are left in the queues", left))
		}
		return errors.Join(err, conn.Close())
	}, nil
}

// rawConsumeShards consumes all queues until all messages were handled, and stops as rawConsume does.
func rawConsumeShards(ctx context.Context, t *trial, own topology.Shards) error {
	conn, err := amqp.Dial(t.url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	var channels []*amqp.Channel
	errs := make([]error, own.Count)
	var wg sync.WaitGroup
	for i, q := range own.WorkQueues() {
		channel, err := conn.Channel()
		if err != nil {
			return err
		}
		if err := channel.Qos(shardPrefetch, 0, false); err != nil {
			return err
		}
		deliveries, err := channel.Consume(q.Name, consumerTag, false, false, false, false, nil)
		if err != nil {
			return err
		}
		channels = append(channels, channel)
		wg.Go(func() { errs[i] = t.byKey(callers/own.Count, deliveries) })
	}
	select {
	case <-t.done:
	case <-ctx.Done():
		return context.Cause(ctx) // closing the connection ends the workers
	}
	var failed error
	for _, channel := range channels {
		failed = errors.Join(failed, channel.Cancel(consumerTag, false))
	}
	wg.Wait()
	for _, channel := range channels {
		failed = errors.Join(failed, channel.Close())
	}
	t.finish()
	return errors.Join(append(errs, failed)...)
}

// byKey has workers, each of which handles the messages of its keys one after the other.
func (t *trial) byKey(workers int, deliveries <-chan amqp.Delivery) error {
	errs := make([]error, workers)
	var wg sync.WaitGroup
	of := make([]chan amqp.Delivery, workers)
	for w := range of {
		of[w] = make(chan amqp.Delivery, shardPrefetch)
		wg.Go(func() {
			for d := range of[w] {
				t.handledInOrder(d.Body)
				errs[w] = errors.Join(errs[w], d.Ack(false))
			}
		})
	}
	for d := range deliveries {
		key, _ := d.Headers["key"].(string)
		h := fnv.New32a()
		_, _ = h.Write([]byte(key)) // never fails
		of[int(h.Sum32())%workers] <- d
	}
	for _, w := range of {
		close(w)
	}
	wg.Wait()
	return errors.Join(errs...)
}

// printShards writes what the rows of shards cost beside queues that are declared by hand.
func (r report) printShards(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range r.Rows {
		if row.Shards == 0 {
			continue
		}
		cpu := middle(row.Rehop, sample.cpuMicros) / middle(row.Raw, sample.cpuMicros)
		fmt.Fprintf(table, "%.2f of the rate (wanted: 0.95)\t%.2f of the CPU (wanted: 1.15 at most)\t%d shards\t\n", row.Ratio.Median, cpu, row.Shards)
	}
	_ = table.Flush() // to the terminal: there is nobody to tell
}
