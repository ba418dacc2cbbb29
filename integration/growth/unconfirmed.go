package main

import (
	"context"
	"errors"
	"net/url"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/faultproxy"
	"github.com/rehop/rehop/internal/pause"
	"github.com/rehop/rehop/producer"
)

// unconfirmedSize is the size of each message that a stalled broker does not confirm.
const unconfirmedSize = 64 << 10

// unconfirmed is about what a client keeps of messages that a broker does not take. All callers have the same
// body, so that the heap shows what the client adds to it.
func unconfirmed() experiment {
	return experiment{
		name: "unconfirmed", x: "MiB that callers publish", at: []int{1, 8, 32, 64, 128, 256},
		columns: []string{"rehop, MiB of heap", "amqp091-go, MiB of heap"},
		plots:   []plotted{{file: "unconfirmed", title: "client memory behind a broker that reads nothing", y: "MiB", columns: []int{0, 1}}},
		measure: func(ctx context.Context, g *growth, x int) ([]float64, error) {
			n := x << 20 / unconfirmedSize
			rehop, err := g.stalled(ctx, n, rehopStalled)
			if err != nil {
				return nil, err
			}
			raw, err := g.stalled(ctx, n, rawStalled)
			return []float64{rehop, raw}, err
		},
	}
}

// stalledSide opens a client and returns how it publishes one message, and its end.
type stalledSide func(ctx context.Context, address string) (publish func(context.Context, []byte), end func() error, err error)

// stalled returns how the heap has grown while n callers wait for a broker that reads nothing.
func (g *growth) stalled(ctx context.Context, n int, open stalledSide) (grown float64, err error) {
	broker, err := url.Parse(g.url)
	if err != nil {
		return 0, err
	}
	proxy, err := faultproxy.Start(broker.Host)
	if err != nil {
		return 0, err
	}
	defer proxy.Close()
	via := *broker
	via.Host = proxy.Addr()
	publish, end, err := open(ctx, via.String())
	if err != nil {
		return 0, err
	}
	before := heap()
	proxy.BlackHole(faultproxy.ToBroker, true)
	publishing, stop := context.WithCancel(ctx)
	body := make([]byte, unconfirmedSize)
	var callers sync.WaitGroup
	for range n {
		callers.Go(func() { publish(publishing, body) })
	}
	if !pause.For(ctx, g.duration) {
		err = ctx.Err()
	}
	grown = heap() - before
	stop()
	proxy.Reset() // what blocks in a write ends
	callers.Wait()
	return grown, errors.Join(err, end())
}

func rehopStalled(ctx context.Context, address string) (func(context.Context, []byte), func() error, error) {
	conn, err := connection.Open(ctx, connection.Config{URLs: []string{address}})
	if err != nil {
		return nil, nil, err
	}
	publisher, err := producer.New(conn, producer.Config{})
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	publish := func(ctx context.Context, body []byte) {
		_, _ = publisher.Publish(ctx, producer.Message{Exchange: "amq.fanout", RoutingKey: "growth", Body: body}) // it cannot succeed
	}
	return publish, func() error { publisher.Close(); conn.Close(); return nil }, nil // what a stalled broker makes of an end does not matter
}

func rawStalled(_ context.Context, address string) (func(context.Context, []byte), func() error, error) {
	conn, err := amqp.Dial(address)
	if err != nil {
		return nil, nil, err
	}
	channel, err := conn.Channel()
	if err == nil {
		err = channel.Confirm(false)
	}
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	publish := func(ctx context.Context, body []byte) {
		confirm, err := channel.PublishWithDeferredConfirmWithContext(ctx, "amq.fanout", "growth", false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: body})
		if err == nil {
			_, _ = confirm.WaitContext(ctx) // it cannot succeed
		}
	}
	return publish, func() error { _ = conn.Close(); return nil }, nil // as above
}
