package consumer_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/consumer"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

// A consumer that carries keeps a channel for each wait. A socket that cannot have so
// many is refused when Run begins, with the number that is needed; otherwise messages
// would stay in the waits, and Run would try for ever.
func TestASocketWithTooFewChannelsIsRefused(t *testing.T) {
	waits := delay.Schedule{time.Minute, 2 * time.Minute, 3 * time.Minute}
	orders := topology.WorkQueue{Name: "orders", Waits: waits}
	lanes := topology.Lanes{Name: "sms", Lanes: []topology.Lane{{Name: "vip"}, {Name: "bulk"}}, Waits: waits}
	for _, tt := range []struct {
		rule, version string
		sources       []topology.Source
		needed        int
	}{
		{"four, and one for each wait", "3.10", []topology.Source{orders}, 7},
		{"the waits of each lane", "3.10", []topology.Source{lanes}, 16},
		{"all consumers of a Conn", "3.10", []topology.Source{orders, orders.DeadLetterQueue()}, 10},
		{"no wait is carried", "4.0", []topology.Source{orders}, 3},
		{"no wait is carried, and each lane is asked for messages", "4.0", []topology.Source{lanes}, 8},
	} {
		run := func(t *testing.T, channelMax int, test func(b *rehoptest.Broker, runs *atomic.Int32, consumers []*consumer.Consumer, stops []func() error)) {
			synctest.Test(t, func(t *testing.T) {
				b, err := rehoptest.NewBroker(rehoptest.Config{Version: tt.version})
				if err != nil {
					t.Fatal(err)
				}
				defer b.Close()
				open := func(query string) *connection.Conn {
					conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker" + query}, Dial: b.Dial})
					if err != nil {
						t.Fatal(err)
					}
					return conn
				}
				free := open("")
				err = topology.Declare(t.Context(), free, orders, lanes)
				if err != nil {
					t.Fatal(err)
				}
				defer free.Close()
				conn := open(fmt.Sprintf("?channel_max=%d", channelMax))
				defer conn.Close()
				var runs atomic.Int32
				fail := func(_ context.Context, d *consumer.Delivery) error {
					if d.Queue == orders.Name {
						runs.Add(1)
						return errBroken
					}
					return nil
				}
				var consumers []*consumer.Consumer
				var stops []func() error
				for _, source := range tt.sources {
					c, err := consumer.New(conn, source, fail, consumer.Config{})
					if err != nil {
						t.Fatal(err)
					}
					consumers, stops = append(consumers, c), append(stops, running(c))
					time.Sleep(10 * time.Second) // an empty queue of 3.10 is consumed after 2 s
				}
				test(b, &runs, consumers, stops)
			})
		}
		t.Run(tt.rule+": enough", func(t *testing.T) {
			run(t, tt.needed, func(b *rehoptest.Broker, runs *atomic.Int32, consumers []*consumer.Consumer, stops []func() error) {
				_, published := tt.sources[0].(topology.WorkQueue)
				if published {
					if _, err := b.Publish(rehoptest.Message{RoutingKey: orders.Name}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(15 * time.Minute)
				if n := int(runs.Load()); published && n != len(waits)+1 {
					t.Errorf("%d attempts, want %d", n, len(waits)+1)
				}
				for i, c := range consumers {
					if err := c.Health(); err != nil {
						t.Errorf("Health of consumer %d: %v", i, err)
					}
				}
				for _, stop := range stops {
					if err := stop(); err != nil {
						t.Error(err)
					}
				}
			})
		})
		t.Run(tt.rule+": one too few", func(t *testing.T) {
			run(t, tt.needed-1, func(_ *rehoptest.Broker, _ *atomic.Int32, consumers []*consumer.Consumer, stops []func() error) {
				last := len(stops) - 1
				if consumers[last].Health() == nil {
					t.Error("Health of a consumer that was refused is nil")
				}
				err := stops[last]()
				if err == nil || rehop.ClassOf(err) != rehop.ClassConfiguration ||
					!strings.Contains(err.Error(), fmt.Sprintf("need %d channels or more, and channel_max of their socket is %d", tt.needed, tt.needed-1)) {
					t.Errorf("Run = %v", err)
				}
				for _, stop := range stops[:last] {
					if err := stop(); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}
