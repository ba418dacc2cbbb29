package producer

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/internal/levels"
)

func TestWhichDelaysAMessageTakes(t *testing.T) {
	fine := levels.Delays{Levels: levels.Levels{Grain: 10 * time.Millisecond, Max: time.Minute}, Queues: []string{"orders"}}
	coarse := levels.Delays{Levels: levels.Levels{}.WithDefaults(), Queues: []string{"orders"}, Exchanges: []levels.Exchange{{Name: "shop", Kind: "topic"}}, Classes: true}
	coarse.Levels.Max = time.Hour
	coarse.Exchanges = append(coarse.Exchanges, levels.Exchange{Name: "keys", Kind: "direct"}, levels.Exchange{Name: "heads", Kind: "headers"})
	coarse.Apart = []levels.Binding{{Target: levels.Target{Exchange: "shop", RoutingKey: "ticket.#"}, To: "tickets"}}
	for _, row := range []struct {
		rule     string
		m        Message
		exchange string        // where it is published to
		takes    time.Duration // or else
		refused  []string
		class    rehop.Class
	}{
		{"the finest grain that reaches", Message{RoutingKey: "orders", Delay: 70 * time.Millisecond}, "rehop.delays.10ms.02", 70 * time.Millisecond, nil, ""},
		{"a coarser one beyond its Max", Message{RoutingKey: "orders", Delay: 61 * time.Second}, "rehop.delays.1s.05", 61 * time.Second, nil, ""},
		{"only those with the target", Message{Exchange: "shop", RoutingKey: "order.paid", Delay: 1500 * time.Millisecond}, "rehop.delays.1s.01", 2 * time.Second, nil, ""},
		{"below every grain: the finest", Message{RoutingKey: "orders", Delay: time.Millisecond}, "rehop.delays.10ms.00", 10 * time.Millisecond, nil, ""},
		{"to the exchange of lanes", Message{Exchange: "sms.lanes", Delay: time.Minute}, "", 0, []string{"sms.lanes", "Lanes.Bindings", "queue of a lane"}, rehop.ClassConfiguration},
		{"beyond every Max", Message{RoutingKey: "orders", Delay: 2 * time.Hour}, "", 0, []string{"Delay is 2h0m0s, want at most 1h0m0s", "a larger Max"}, rehop.ClassConfiguration},
		{"beyond every Max that there can be", Message{RoutingKey: "orders", Delay: 80_000 * time.Hour}, "", 0, []string{"want at most 1h0m0s", "the longest that topology.Delays can have is 74565h24m15s"}, rehop.ClassConfiguration},
		{"a queue that is no target", Message{RoutingKey: "tickets", Delay: time.Second}, "", 0, []string{`queue "tickets"`, `topology.Delays{Queues: []string{"tickets"}}`}, rehop.ClassConfiguration},
		{"an exchange that is no target", Message{Exchange: "office", RoutingKey: "orders", Delay: time.Second}, "", 0, []string{`exchange "office"`, `topology.Exchange{Name: "office"}`, "the queues that are bound to it, in one call"}, rehop.ClassConfiguration},
		{"a key with wildcards to a topic exchange", Message{Exchange: "shop", RoutingKey: "order.*", Delay: time.Second}, "rehop.delays.1s.00", time.Second, nil, ""},
		{"a key without to a direct exchange", Message{Exchange: "keys", RoutingKey: "order.paid", Delay: time.Second}, "rehop.delays.1s.00", time.Second, nil, ""},
		{"a key with wildcards to a direct exchange", Message{Exchange: "keys", RoutingKey: "order.*", Delay: time.Second}, "", 0, []string{`exchange "keys" with key "order.*"`, "kind direct"}, rehop.ClassBug},
		{"a headers exchange", Message{Exchange: "heads", Delay: time.Second}, "", 0, []string{"kind headers", "only to topic, direct and fanout"}, rehop.ClassBug},
		{"a queue that was declared apart", Message{Exchange: "shop", RoutingKey: "ticket.sold", Delay: time.Second}, "", 0, []string{`would not reach "tickets"`, `exchange "shop" with key "ticket.#"`, "in one call"}, rehop.ClassConfiguration},
	} {
		t.Run(row.rule, func(t *testing.T) {
			exchange, key, takes, err := wayOf([]levels.Delays{fine, coarse}, &row.m)
			if (err != nil) != (row.refused != nil) {
				t.Fatalf("the way of %+v is %q and %v", row.m, exchange, err)
			}
			if err != nil && rehop.ClassOf(err) != row.class {
				t.Errorf("the class of the error is %q, want %q", rehop.ClassOf(err), row.class)
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

// Nobody is told to raise a bound that cannot be raised.
func TestAdviceOnALongerDelayCanBeFollowed(t *testing.T) {
	for _, row := range []struct {
		rule   string
		levels levels.Levels
		delay  time.Duration
		want   string
	}{
		{"a Max that can be larger", levels.Levels{Grain: time.Second, Max: time.Hour}, 2 * time.Hour, "want at most 1h0m0s: for a longer one declare topology.Delays with a larger Max"},
		{"the largest Max of a fine grain", levels.Levels{Grain: 10 * time.Millisecond}.WithDefaults(), 1000 * time.Hour, "want at most 745h39m14.55s: for a longer one declare topology.Delays with a larger Grain"},
		{"the largest Max", levels.Levels{}.WithDefaults(), 80_000 * time.Hour, "want at most 74565h24m15s: the longest that topology.Delays can have is 74565h24m15s"},
	} {
		_, _, _, err := wayOf([]levels.Delays{{Levels: row.levels, Queues: []string{"orders"}}}, &Message{RoutingKey: "orders", Delay: row.delay})
		if err == nil || !strings.HasSuffix(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.rule, err, row.want)
		}
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
