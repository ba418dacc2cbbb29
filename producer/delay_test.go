package producer

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/internal/levels"
)

func TestWhichDelaysAMessageTakes(t *testing.T) {
	fine := levels.Delays{Levels: levels.Levels{Grain: 10 * time.Millisecond, Max: time.Minute}, Queues: []string{"orders"}}
	coarse := levels.Delays{Levels: levels.Levels{}.WithDefaults(), Queues: []string{"orders"}, Exchanges: []string{"shop"}, Classes: true}
	coarse.Levels.Max = time.Hour
	for _, row := range []struct {
		rule     string
		m        Message
		exchange string        // where it is published to
		takes    time.Duration // or else
		refused  []string
	}{
		{"the finest grain that reaches", Message{RoutingKey: "orders", Delay: 70 * time.Millisecond}, "rehop.delays.10ms.02", 70 * time.Millisecond, nil},
		{"a coarser one beyond its Max", Message{RoutingKey: "orders", Delay: 61 * time.Second}, "rehop.delays.1s.05", 61 * time.Second, nil},
		{"only those with the target", Message{Exchange: "shop", RoutingKey: "order.paid", Delay: 1500 * time.Millisecond}, "rehop.delays.1s.01", 2 * time.Second, nil},
		{"below every grain: the finest", Message{RoutingKey: "orders", Delay: time.Millisecond}, "rehop.delays.10ms.00", 10 * time.Millisecond, nil},
		{"to the exchange of lanes", Message{Exchange: "sms.lanes", Delay: time.Minute}, "", 0, []string{"sms.lanes", "Lanes.Bindings", "queue of a lane"}},
		{"beyond every Max", Message{RoutingKey: "orders", Delay: 2 * time.Hour}, "", 0, []string{"Delay is 2h0m0s, want at most 1h0m0s", "a larger Max"}},
		{"a queue that is no target", Message{RoutingKey: "tickets", Delay: time.Second}, "", 0, []string{`queue "tickets"`, `topology.Delays{Queues: []string{"tickets"}}`}},
		{"an exchange that is no target", Message{Exchange: "office", RoutingKey: "orders", Delay: time.Second}, "", 0, []string{`exchange "office"`, `topology.Exchange{Name: "office"}`, "the queues that are bound to it, in one call"}},
	} {
		t.Run(row.rule, func(t *testing.T) {
			exchange, key, takes, err := wayOf([]levels.Delays{fine, coarse}, &row.m)
			if (err != nil) != (row.refused != nil) {
				t.Fatalf("the way of %+v is %q and %v", row.m, exchange, err)
			}
			for _, text := range row.refused {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("the error is %q, want %q in it", err, text)
				}
			}
			if exchange != row.exchange || takes != row.takes {
				t.Errorf("the way of %+v is %q, key %q, %v, want %q, %v", row.m, exchange, key, takes, row.exchange, row.takes)
			}
		})
	}
}

func TestDelayExcludes(t *testing.T) {
	for _, row := range []struct {
		rule string
		m    Message
		want string
	}{
		{"a negative one", Message{RoutingKey: "orders", Delay: -1}, "Delay is -1ns"},
		{"Expiration", Message{RoutingKey: "orders", Delay: time.Second, Expiration: time.Second}, "Expiration is 1s and Delay 1s"},
		{"CC", Message{RoutingKey: "orders", Delay: time.Second, Headers: amqp.Table{"CC": []any{"a"}}}, "Headers has CC"},
		{"BCC", Message{RoutingKey: "orders", Delay: time.Second, Headers: amqp.Table{"BCC": []any{"a"}}}, "Headers has BCC"},
	} {
		t.Run(row.rule, func(t *testing.T) {
			if err := row.m.Validate(); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("the error is %v, want %q in it", err, row.want)
			}
		})
	}
}
