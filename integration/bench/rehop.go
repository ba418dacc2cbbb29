package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

// withConn gives do a connection of its own, as a program has one.
func withConn(ctx context.Context, t *trial, do func(*connection.Conn) error) error {
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{t.url}, Name: "rehop bench"})
	if err != nil {
		return err
	}
	return errors.Join(do(conn), conn.Close())
}

func withProducer(ctx context.Context, t *trial, do func(*producer.Producer) error) error {
	return withConn(ctx, t, func(conn *connection.Conn) error {
		publisher, err := producer.New(conn, producer.Config{})
		if err != nil {
			return err
		}
		return errors.Join(do(publisher), publisher.Close())
	})
}

func publishVia(publisher *producer.Producer, t *trial) publishFunc {
	return func(ctx context.Context, body []byte) error {
		_, err := publisher.Publish(ctx, producer.Message{RoutingKey: t.work.Name, Body: body})
		return err
	}
}

func rehopPublish(goroutines int) side {
	return func(ctx context.Context, t *trial) error {
		return withProducer(ctx, t, func(publisher *producer.Producer) error {
			err := t.publishAll(ctx, goroutines, publishVia(publisher, t))
			t.finish()
			return err
		})
	}
}

func rehopBatches(size int) side {
	return func(ctx context.Context, t *trial) error {
		return withProducer(ctx, t, func(publisher *producer.Producer) error {
			batch := make([]producer.Message, size)
			for i := range batch {
				batch[i] = producer.Message{RoutingKey: t.work.Name, Body: newBody()}
			}
			err := t.batches(size, func(from, to int) error {
				for i := from; i < to; i++ {
					number(batch[i-from].Body, i)
				}
				_, err := publisher.PublishAll(ctx, batch[:to-from])
				return err
			})
			t.finish()
			return err
		})
	}
}

// rehopConsume leaves the prefetch to the consumer if it is 0.
func rehopConsume(concurrency, prefetch int) side {
	return rehopConsumeWith(consumer.Config{Concurrency: concurrency, Prefetch: prefetch})
}

func rehopConsumeWith(cfg consumer.Config) side {
	return func(ctx context.Context, t *trial) error {
		return withConn(ctx, t, func(conn *connection.Conn) error {
			return consume(ctx, conn, t, cfg, func(_ context.Context, d *consumer.Delivery) error {
				t.handled(d.Body)
				return nil
			})
		})
	}
}

// preloadKeys returns a function that fills a queue with messages of so many keys. It is
// not measured.
func preloadKeys(keys int) func(ctx context.Context, url, queue string, n int) error {
	return func(ctx context.Context, url, queue string, n int) error {
		t := &trial{url: url}
		return withProducer(ctx, t, func(publisher *producer.Producer) error {
			messages := make([]producer.Message, n)
			for i := range messages {
				messages[i] = producer.Message{RoutingKey: queue, OrderKey: fmt.Sprint("customer-", i%keys), Body: number(newBody(), i)}
			}
			_, err := publisher.PublishAll(ctx, messages)
			return err
		})
	}
}

var errFailing = errors.New("the handler always fails")

func rehopFail(concurrency int) side {
	return func(ctx context.Context, t *trial) error {
		return withConn(ctx, t, func(conn *connection.Conn) error {
			// The plain program has its second connection before the clock
			// starts; a Conn dials the one for copies when the first is due.
			session, err := conn.Session(ctx, connection.Publish)
			if err != nil {
				return err
			}
			if err := session.Close(); err != nil {
				return err
			}
			return consume(ctx, conn, t, consumer.Config{Concurrency: concurrency}, func(_ context.Context, d *consumer.Delivery) error {
				t.handled(d.Body)
				return errFailing
			})
		})
	}
}

// consume runs a consumer until all messages were handled, and stops it in
// good order: when it returns, everything is settled.
func consume(ctx context.Context, conn *connection.Conn, t *trial, cfg consumer.Config, h consumer.Handler) error {
	return consumeFrom(ctx, conn, t, t.work, cfg, h)
}

func consumeFrom(ctx context.Context, conn *connection.Conn, t *trial, from topology.Source, cfg consumer.Config, h consumer.Handler) error {
	worker, err := consumer.New(conn, from, h, cfg)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-t.done:
			stop()
		case <-running.Done():
		}
	}()
	err = worker.Run(running)
	t.finish()
	return errors.Join(err, context.Cause(ctx))
}

func rehopEndToEnd(n int) side {
	return func(ctx context.Context, t *trial) error {
		return withConn(ctx, t, func(conn *connection.Conn) error {
			publisher, err := producer.New(conn, producer.Config{})
			if err != nil {
				return err
			}
			publish := publishVia(publisher, t)
			return errors.Join(t.endToEnd(ctx, n, publish, func(ctx context.Context) error {
				return consume(ctx, conn, t, consumer.Config{Concurrency: n}, func(_ context.Context, d *consumer.Delivery) error {
					t.handled(d.Body)
					return nil
				})
			}), publisher.Close())
		})
	}
}

// endToEnd publishes while run consumes. The first message goes all the way
// before the clock starts.
func (t *trial) endToEnd(ctx context.Context, goroutines int, publish publishFunc, run func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var published error
	var wg sync.WaitGroup
	wg.Go(func() {
		if published = publish(ctx, number(newBody(), 0)); published == nil {
			select {
			case <-t.begun:
				published = t.publishRest(ctx, goroutines, publish)
			case <-ctx.Done():
			}
		}
		if published != nil {
			cancel(published)
		}
	})
	err := run(ctx)
	if err != nil {
		cancel(err)
	}
	wg.Wait()
	return errors.Join(published, err)
}
