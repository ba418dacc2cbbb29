package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"text/tabwriter"

	"github.com/ThreeDotsLabs/watermill"
	watermillamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqpx "github.com/jxsl13/amqpx/pool"
	"github.com/jxsl13/amqpx/types"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/wagslane/go-rabbitmq"
)

// peer is another library that does the work of a row, set up as its own
// documentation advises.
type peer struct {
	name string
	do   side
}

func publishPeers(goroutines int) []peer {
	return []peer{
		{"watermill-amqp", watermillPublish(goroutines)},
		{"go-rabbitmq", goRabbitPublish(goroutines)},
		{"amqpx", amqpxPublish(goroutines)},
	}
}

// consumePeers has watermill only where handlers run one after the other: a
// subscription of it handles the next message when the last one is acked. It has
// amqpx only where the prefetch is as good as none, because that is what amqpx
// always consumes with.
func consumePeers(concurrency, prefetch int) []peer {
	var peers []peer
	if concurrency == 1 {
		peers = append(peers, peer{"watermill-amqp", watermillConsume(prefetch)})
	}
	peers = append(peers, peer{"go-rabbitmq", goRabbitConsume(concurrency, prefetch)})
	if prefetch == noPrefetch {
		peers = append(peers, peer{"amqpx", amqpxConsume(concurrency)})
	}
	return peers
}

// noPrefetch is the largest prefetch that rehop takes.
const noPrefetch = 10_000

// printPeers writes the medians of all sides of the rows that have peers.
func (r report) printPeers(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	rate := func(of []sample) string { return strconv.FormatFloat(middle(of, sample.perSecond), 'f', 0, 64) }
	some := false
	for _, row := range r.Rows {
		if len(row.Peers)+len(row.Failed) == 0 {
			continue
		}
		if !some {
			fmt.Fprintf(w, "\nBeside other libraries, msg/s:\n\n")
			fmt.Fprintln(table, "rehop\traw\twatermill-amqp\tgo-rabbitmq\tamqpx\t  row")
			some = true
		}
		fmt.Fprintf(table, "%s\t%s\t", rate(row.Rehop), rate(row.Raw))
		for _, name := range []string{"watermill-amqp", "go-rabbitmq", "amqpx"} {
			switch of := row.Peers[name]; {
			case row.Failed[name] != "":
				fmt.Fprint(table, "failed\t")
			case len(of) > 0:
				fmt.Fprintf(table, "%s\t", rate(of))
			default:
				fmt.Fprint(table, "-\t")
			}
		}
		fmt.Fprintf(table, "  %s\n", row.Name)
	}
	_ = table.Flush() // to the terminal: there is nobody to tell
}

// existing is the topology of a place that is there already.
type existing struct{}

func (existing) BuildTopology(*amqp.Channel, watermillamqp.BuildTopologyParams, watermillamqp.Config, watermill.LoggerAdapter) error {
	return nil
}

func (existing) ExchangeDeclare(*amqp.Channel, string, watermillamqp.Config) error { return nil }

func watermillConfig(t *trial) watermillamqp.Config {
	cfg := watermillamqp.NewDurableQueueConfig(t.url)
	cfg.TopologyBuilder = existing{}
	return cfg
}

func watermillPublish(goroutines int) side {
	return func(ctx context.Context, t *trial) error {
		cfg := watermillConfig(t)
		cfg.Publish.ConfirmDelivery = true
		cfg.Publish.ChannelPoolSize = goroutines
		cfg.Publish.Mandatory = true
		p, err := watermillamqp.NewPublisher(cfg, watermill.NopLogger{})
		if err != nil {
			return err
		}
		err = t.publishAll(ctx, goroutines, func(_ context.Context, body []byte) error {
			return p.Publish(t.work.Name, message.NewMessage(watermill.NewUUID(), append([]byte(nil), body...)))
		})
		t.finish()
		return errors.Join(err, p.Close())
	}
}

func watermillConsume(prefetch int) side {
	return func(ctx context.Context, t *trial) error {
		cfg := watermillConfig(t)
		cfg.Consume.Qos.PrefetchCount = prefetch
		s, err := watermillamqp.NewSubscriber(cfg, watermill.NopLogger{})
		if err != nil {
			return err
		}
		messages, err := s.Subscribe(ctx, t.work.Name)
		if err != nil {
			return errors.Join(err, s.Close())
		}
		go func() {
			for m := range messages {
				t.handled(m.Payload)
				m.Ack()
			}
		}()
		err = t.wait(ctx)
		err = errors.Join(err, s.Close())
		t.finish()
		return err
	}
}

// wait returns when all messages were handled.
func (t *trial) wait(ctx context.Context) error {
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// silent is the logger of go-rabbitmq.
type silent struct{}

func (silent) Fatalf(string, ...any) {}
func (silent) Errorf(string, ...any) {}
func (silent) Warnf(string, ...any)  {}
func (silent) Infof(string, ...any)  {}
func (silent) Debugf(string, ...any) {}

func goRabbitPublish(goroutines int) side {
	return func(ctx context.Context, t *trial) error {
		conn, err := rabbitmq.NewConn(t.url, rabbitmq.WithConnectionOptionsLogger(silent{}))
		if err != nil {
			return err
		}
		p, err := rabbitmq.NewPublisher(conn, rabbitmq.WithPublisherOptionsLogger(silent{}), rabbitmq.WithPublisherOptionsConfirm)
		if err != nil {
			return errors.Join(err, conn.Close())
		}
		err = t.publishAll(ctx, goroutines, func(ctx context.Context, body []byte) error {
			confirms, err := p.PublishWithDeferredConfirmWithContext(ctx, body, []string{t.work.Name},
				rabbitmq.WithPublishOptionsMandatory, rabbitmq.WithPublishOptionsPersistentDelivery)
			if err != nil {
				return err
			}
			for _, c := range confirms {
				if acked, err := c.WaitContext(ctx); err != nil || !acked {
					return errors.Join(errNotConfirmed, err)
				}
			}
			return nil
		})
		t.finish()
		p.Close()
		return errors.Join(err, conn.Close())
	}
}

func goRabbitConsume(concurrency, prefetch int) side {
	return func(ctx context.Context, t *trial) error {
		conn, err := rabbitmq.NewConn(t.url, rabbitmq.WithConnectionOptionsLogger(silent{}))
		if err != nil {
			return err
		}
		c, err := rabbitmq.NewConsumer(conn, t.work.Name, rabbitmq.WithConsumerOptionsLogger(silent{}),
			rabbitmq.WithConsumerOptionsQueueNoDeclare,
			rabbitmq.WithConsumerOptionsConcurrency(concurrency), rabbitmq.WithConsumerOptionsQOSPrefetch(prefetch))
		if err != nil {
			return errors.Join(err, conn.Close())
		}
		ran := make(chan error, 1)
		go func() {
			ran <- c.Run(func(d rabbitmq.Delivery) rabbitmq.Action {
				t.handled(d.Body)
				return rabbitmq.Ack
			})
		}()
		err = t.wait(ctx)
		c.Close()
		err = errors.Join(err, <-ran)
		t.finish()
		return errors.Join(err, conn.Close())
	}
}

var silentSlog = slog.New(slog.DiscardHandler)

func amqpxPublish(goroutines int) side {
	return func(ctx context.Context, t *trial) error {
		p, err := amqpx.New(ctx, t.url, 1, goroutines, amqpx.WithConfirms(true), amqpx.WithLogger(silentSlog))
		if err != nil {
			return err
		}
		defer p.Close()
		out := amqpx.NewPublisher(p)
		err = t.publishAll(ctx, goroutines, func(ctx context.Context, body []byte) error {
			return out.Publish(ctx, "", t.work.Name, types.Publishing{Mandatory: true, Body: body})
		})
		t.finish()
		out.Close()
		return err
	}
}

// amqpxConsume has a handler for each message at a time. The library has no
// prefetch that could be set.
func amqpxConsume(concurrency int) side {
	return func(ctx context.Context, t *trial) error {
		p, err := amqpx.New(ctx, t.url, 1, concurrency, amqpx.WithLogger(silentSlog))
		if err != nil {
			return err
		}
		defer p.Close()
		s := amqpx.NewSubscriber(p)
		for range concurrency {
			s.RegisterHandlerFunc(t.work.Name, func(_ context.Context, d types.Delivery) error {
				t.handled(d.Body)
				return nil
			})
		}
		if err := s.Start(ctx); err != nil {
			return err
		}
		err = t.wait(ctx)
		s.Close()
		t.finish()
		return err
	}
}
