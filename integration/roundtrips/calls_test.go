package roundtrips

import (
	"context"
	"errors"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/integration/queues"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

func (b *bench) open() (measured, error) {
	var conn *connection.Conn
	return measured{
		do:    func(ctx context.Context) (err error) { conn, err = b.dial(ctx); return err },
		after: func() error { return conn.Close() },
	}, nil
}

func (b *bench) declareFirst() (measured, error) {
	conn, err := b.dial(context.Background())
	if err != nil {
		return measured{}, err
	}
	var plan topology.Plan
	return measured{
		do: func(ctx context.Context) (err error) {
			plan, err = topology.DeclarePlan(ctx, conn, b.shop, b.work)
			return err
		},
		after: func() error { return errors.Join(remove(conn, plan), conn.Close()) },
	}, nil
}

func (b *bench) declareAgain() (measured, error) {
	conn, after, err := b.prepared()
	return measured{
		do:    func(ctx context.Context) error { return topology.Declare(ctx, conn, b.shop, b.work) },
		after: after,
	}, err
}

func (b *bench) publish() (measured, error) {
	conn, after, err := b.prepared()
	if err != nil {
		return measured{}, err
	}
	publisher, err := producer.New(conn, producer.Config{})
	return measured{
		do: func(ctx context.Context) error {
			_, err := publisher.Publish(ctx, producer.Message{Exchange: b.shop.Name, RoutingKey: "order.paid"})
			return err
		},
		after: func() error { return errors.Join(publisher.Close(), after()) },
	}, err
}

// deliver begins with a message in the queue.
func (b *bench) deliver() (measured, error) {
	conn, after, err := b.prepared()
	if err != nil {
		return measured{}, err
	}
	if err := b.publishOne(); err != nil {
		return measured{}, err
	}
	c, err := b.consume(conn)
	return measured{
		do:    func(ctx context.Context) error { return c.first(ctx) },
		after: func() error { return errors.Join(c.stop(), after()) },
	}, err
}

// prefetched begins with more messages in the queue than the prefetch, and ends when as
// many as the prefetch are delivered. The first one comes alone, in case that consumers
// have died of it.
func (b *bench) prefetched() (measured, error) {
	conn, after, err := b.prepared()
	if err != nil {
		return measured{}, err
	}
	const prefetch = 100
	if err := b.publishMany(2 * prefetch); err != nil {
		return measured{}, err
	}
	delivered := make(chan struct{}, 2*prefetch)
	c, err := consumer.New(conn, b.work, func(context.Context, *consumer.Delivery) error {
		delivered <- struct{}{}
		return nil
	}, consumer.Config{Prefetch: prefetch})
	if err != nil {
		return measured{}, err
	}
	run, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	return measured{
		do: func(ctx context.Context) error {
			go func() { ended <- c.Run(run) }()
			for range prefetch {
				select {
				case <-delivered:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			return nil
		},
		after: func() error {
			cancel()
			return errors.Join(<-ended, after())
		},
	}, nil
}

// stop begins when the consumer has handled a message and has nothing to do.
func (b *bench) stop() (measured, error) {
	conn, after, err := b.prepared()
	if err != nil {
		return measured{}, err
	}
	if err := b.publishOne(); err != nil {
		return measured{}, err
	}
	c, err := b.consume(conn)
	if err != nil {
		return measured{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.first(ctx); err != nil {
		return measured{}, err
	}
	// Until the ack is written and the prefetch is what it is to be.
	<-time.After(500 * time.Millisecond)
	return measured{
		do:    func(context.Context) error { return c.stop() },
		after: after,
	}, nil
}

func (b *bench) publishOne() error { return b.publishMany(1) }

func (b *bench) publishMany(n int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := b.dial(ctx)
	if err != nil {
		return err
	}
	publisher, err := producer.New(conn, producer.Config{})
	if err != nil {
		return err
	}
	messages := make([]producer.Message, n)
	for i := range messages {
		messages[i].RoutingKey = b.work.Name
	}
	_, err = publisher.PublishAll(ctx, messages)
	return errors.Join(err, publisher.Close(), conn.Close())
}

// running is a consumer that may run.
type running struct {
	*consumer.Consumer
	delivered chan struct{}
	cancel    context.CancelFunc
	ended     chan error
}

func (b *bench) consume(conn *connection.Conn) (r *running, err error) {
	r = &running{delivered: make(chan struct{}, 1), ended: make(chan error, 1), cancel: func() {}}
	r.Consumer, err = consumer.New(conn, b.work, func(context.Context, *consumer.Delivery) error {
		r.delivered <- struct{}{}
		return nil
	}, consumer.Config{Concurrency: 16})
	return r, err
}

// first runs the consumer and returns when it has handled a message.
func (r *running) first(ctx context.Context) error {
	run, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.ended <- r.Run(run) }()
	select {
	case <-r.delivered:
		return nil
	case err := <-r.ended:
		r.ended <- err
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *running) stop() error {
	r.cancel()
	return <-r.ended
}

func remove(conn *connection.Conn, plan topology.Plan) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return queues.Delete(ctx, conn, plan)
}
