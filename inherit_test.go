package rehop_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// counts is a Telemetry that counts what its hooks tell.
type counts struct{ connected, published, handled atomic.Int32 }

func (c *counts) Connection(name string) connection.Trace {
	return connection.Trace{State: func(s connection.State) {
		if s.Status == connection.Up && name == "shop" {
			c.connected.Add(1)
		}
	}}
}

func (c *counts) Producer() producer.Trace {
	return producer.Trace{Published: func(context.Context, producer.Published) { c.published.Add(1) }}
}

func (c *counts) Consumer() consumer.Trace {
	return consumer.Trace{Settled: func(context.Context, consumer.Settled) { c.handled.Add(1) }}
}

// A producer and a consumer have the Logger and the Telemetry of their Conn, unless they
// name their own.
func TestAConnHandsLoggerAndTelemetryDown(t *testing.T) {
	for rule, own := range map[string]bool{"not named: those of the Conn": false, "named: their own": true} {
		t.Run(rule, func(t *testing.T) {
			rehoptest.Test(t, rehoptest.Config{}, func(t *testing.T, b *rehoptest.Broker) {
				var all counts
				var ofConn, ofParts bytes.Buffer
				conn, err := connection.Open(t.Context(), connection.Config{
					URLs: []string{"amqp://guest:guest@broker"}, Dial: b.Dial, Name: "shop",
					Telemetry: &all, Logger: slog.New(slog.NewTextHandler(&ofConn, nil)),
				})
				check(err)
				defer conn.Close()
				orders := topology.WorkQueue{Name: "orders"}
				check(topology.Declare(t.Context(), conn, orders))
				var publishing producer.Config
				var consuming consumer.Config
				if own {
					log := slog.New(slog.NewTextHandler(&ofParts, nil))
					publishing = producer.Config{Traces: []producer.Trace{}, Logger: log}
					consuming = consumer.Config{Traces: []consumer.Trace{}, Logger: log}
				}
				p, err := producer.New(conn, publishing)
				check(err)
				_, err = p.Publish(t.Context(), producer.Message{RoutingKey: "orders"})
				check(err)
				c, err := consumer.New(conn, orders, func(context.Context, *consumer.Delivery) error { return errors.New("no paper") }, consuming)
				check(err)
				stop := rehoptest.Run(t, c.Run)
				time.Sleep(time.Minute)
				stop()
				check(p.Close())
				want := int32(1)
				if own {
					want = 0
				}
				if all.connected.Load() != 2 || all.published.Load() != want || all.handled.Load() != want {
					t.Errorf("%d connected, %d published, %d handled; want 2 and each %d", all.connected.Load(), all.published.Load(), all.handled.Load(), want)
				}
				if strings.Contains(ofConn.String(), "no paper") == own || strings.Contains(ofParts.String(), "no paper") != own {
					t.Errorf("the Conn's log:\n%s\ntheir own:\n%s", &ofConn, &ofParts)
				}
			})
		})
	}
}
