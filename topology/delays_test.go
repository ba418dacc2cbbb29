package topology_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/topology"
)

func delaysPlan(t *testing.T, v connection.Version, specs ...topology.Spec) topology.Plan {
	t.Helper()
	plan, err := topology.NewPlan(v, specs...)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func TestDelaysPlan(t *testing.T) {
	orders := topology.WorkQueue{Name: "orders", Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}, {Exchange: "elsewhere", RoutingKey: "x"}}}
	shop := topology.Exchange{Name: "shop"}
	stars := "*" + strings.Repeat(".*", 28)
	for _, row := range []struct {
		rule  string
		v     connection.Version
		specs []topology.Spec
		want  []string
		not   []string
	}{
		{"levels as many as Max needs", v43, []topology.Spec{topology.Delays{Max: 3 * time.Second}},
			[]string{"queue     rehop.delays.1s.00 ", "queue     rehop.delays.1s.01 ", "x-message-ttl=2000", "delays    1s to 3s, 2 hops at most\n"}, []string{"rehop.delays.1s.02"}},
		{"all of them by default", v43, []topology.Spec{topology.Delays{}},
			[]string{"queue     rehop.delays.1s.27 ", "x-message-ttl=134217728000"}, []string{"rehop.delays.1s.28"}},
		{"at-least-once on 4.x", v40, []topology.Spec{topology.Delays{}}, []string{"x-dead-letter-strategy=at-least-once"}, []string{"note"}},
		{"what 3.x cannot promise is said", v310, []topology.Spec{topology.Delays{}}, []string{"note      exact delays of 1s: broker 3.10", "without a confirm"}, []string{"at-least-once\n", "x-overflow"}},
		{"two classes where priorities have two", v40, []topology.Spec{topology.Delays{}}, []string{"rehop.delays.1s.05.high"}, nil},
		{"one class elsewhere", v43, []topology.Spec{topology.Delays{}}, nil, []string{".high"}},
		{"a finer grain has names of its own", v43, []topology.Spec{topology.Delays{Grain: 10 * time.Millisecond}, topology.Delays{}},
			[]string{"queue     rehop.delays.10ms.00 x-dead-letter-exchange=rehop.delays.10ms.deliver", "queue     rehop.delays.1s.00 x-dead-letter-exchange=rehop.delays.1s.deliver"}, nil},
		{"a work queue is a target by its name", v43, []topology.Spec{topology.Delays{}, orders},
			[]string{"rehop.delays.1s.deliver --" + stars + ".=.orders--> orders\n"}, []string{">1.shop"}},
		{"and by its bindings to an exchange of the call", v43, []topology.Spec{orders, shop, topology.Delays{}},
			[]string{stars + ".>1.shop.order.#--> orders\n", ", queue orders, exchange shop\n"}, []string{"elsewhere.x"}},
		{"a fanout has every key", v43, []topology.Spec{orders, topology.Exchange{Name: "shop", Kind: "fanout"}, topology.Delays{}}, []string{stars + ".>1.shop.#--> orders\n"}, nil},
		{"a headers exchange is no target", v43, []topology.Spec{orders, topology.Exchange{Name: "shop", Kind: "headers"}, topology.Delays{}},
			[]string{"note      shop: messages cannot be delayed to an exchange of kind headers"}, []string{">1.shop"}},
		{"a wildcard of a direct exchange is none", v43, []topology.Spec{topology.WorkQueue{Name: "q", Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "a.*"}}}, topology.Exchange{Name: "shop", Kind: "direct"}, topology.Delays{}},
			[]string{"note      q: messages cannot be delayed to exchange \"shop\" with key \"a.*\""}, []string{">1.shop"}},
		{"a headers exchange may have any name", v43, []topology.Spec{topology.Exchange{Name: "a.#", Kind: "headers"}, topology.Delays{}}, []string{"note      a.#: messages cannot"}, nil},
		{"without delays nothing is added", v43, []topology.Spec{orders, shop}, nil, []string{"rehop.delays"}},
	} {
		t.Run(row.rule, func(t *testing.T) {
			text := delaysPlan(t, row.v, row.specs...).String()
			for _, want := range row.want {
				if !strings.Contains(text, want) {
					t.Errorf("want %q in the plan:\n%s", want, text)
				}
			}
			for _, not := range row.not {
				if strings.Contains(text, not) {
					t.Errorf("%q is in the plan:\n%s", not, text)
				}
			}
		})
	}
}

// Two services with a different Max agree on every part that both have.
func TestPlansOfDifferentMaxAgree(t *testing.T) {
	for _, v := range []connection.Version{v310, v40, v43} {
		long := delaysPlan(t, v, topology.Delays{})
		lines := map[string]bool{}
		for line := range strings.Lines(long.String()) {
			lines[line] = true
		}
		short := delaysPlan(t, v, topology.Delays{Max: time.Hour})
		for line := range strings.Lines(short.String()) {
			if !lines[line] && !strings.HasPrefix(line, "delays ") && !strings.HasPrefix(line, "plan ") {
				t.Errorf("the plan for an hour has a line that the longest has not: %s", line)
			}
		}
		if len(short.Queues()) >= len(long.Queues()) {
			t.Errorf("%d queues for an hour, %d for 8 years", len(short.Queues()), len(long.Queues()))
		}
	}
}

func TestDelaysRefuse(t *testing.T) {
	long := strings.Repeat("x", 200)
	for _, row := range []struct {
		rule  string
		specs []topology.Spec
		want  string
	}{
		{"a grain that is too fine", []topology.Spec{topology.Delays{Grain: time.Millisecond}}, "Grain is 1ms"},
		{"a Max beyond the levels", []topology.Spec{topology.Delays{Grain: 10 * time.Millisecond, Max: 1000 * time.Hour * 24}}, "Max is 24000h"},
		{"an empty queue", []topology.Spec{topology.Delays{Queues: []string{""}}}, "Delays.Queues[0] is empty"},
		{"a queue that a key cannot name", []topology.Spec{topology.Delays{Queues: []string{"a.#"}}}, "the word * or #"},
		{"a queue too long for a key", []topology.Spec{topology.Delays{Queues: []string{long}}}, "200 bytes long"},
		{"a work queue too long for a key", []topology.Spec{topology.Delays{}, topology.WorkQueue{Name: long}}, "want at most 195"},
		{"a binding too long for a key", []topology.Spec{topology.Delays{}, topology.Exchange{Name: "shop"},
			topology.WorkQueue{Name: "orders", Waits: delay.Default(), Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: long}}}}, "bytes too long together"},
	} {
		t.Run(row.rule, func(t *testing.T) {
			if _, err := topology.NewPlan(v43, row.specs...); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("the error is %v, want %q in it", err, row.want)
			}
		})
	}
}

// Delete is given fewer levels than another service has declared.
func TestDelaysAreDeletedWithAllTheirLevels(t *testing.T) {
	for _, version := range []string{"3.10", "4.0", "4.3"} {
		t.Run(version, func(t *testing.T) {
			s := start(t, version)
			orders := topology.WorkQueue{Name: "orders"}
			s.declare(orders, topology.Delays{Max: time.Minute})
			publisher, err := producer.New(s.conn, producer.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer publisher.Close()
			if _, err := publisher.Publish(t.Context(), producer.Message{RoutingKey: "orders", ID: "later", Delay: 40 * time.Second}); err != nil {
				t.Fatal(err)
			}
			fewer := topology.Delays{Max: 2 * time.Second}
			if err := topology.Delete(t.Context(), s.conn, fewer); !errors.Is(err, topology.ErrInUse) {
				t.Fatalf("Delete = %v while a message is delayed, want ErrInUse", err)
			}
			for _, name := range s.Queues() {
				s.Drain(name)
			}
			if err := topology.Delete(t.Context(), s.conn, orders, fewer); err != nil {
				t.Fatal(err)
			}
			if left := s.Queues(); len(left) > 0 {
				t.Errorf("queues %q are left", left)
			}
			if s.DeleteExchange("rehop.delays.1s.05") {
				t.Error("an exchange of a level is left")
			}
		})
	}
}

// A message that is published straight reaches the queue of each row. One with a Delay
// reaches it too, or is refused before it is sent.
func TestDelaysReachTheirQueuesOrAreRefused(t *testing.T) {
	binding := func(key string) []topology.Binding {
		return []topology.Binding{{Exchange: "shop", RoutingKey: key}}
	}
	orders := func(key string) topology.WorkQueue {
		return topology.WorkQueue{Name: "orders", Bindings: binding(key)}
	}
	lanes := topology.Lanes{Name: "sms", Lanes: []topology.Lane{{Name: "vip"}, {Name: "normal"}}, Bindings: binding("order.paid")}
	shop := func(kind string) topology.Exchange { return topology.Exchange{Name: "shop", Kind: kind} }
	delays := topology.Delays{Max: time.Minute}
	fine := topology.Delays{Grain: 10 * time.Millisecond, Max: time.Minute}
	call := func(specs ...topology.Spec) []topology.Spec { return specs }
	for _, row := range []struct {
		rule    string
		calls   [][]topology.Spec
		key     string
		warns   string // in the log of Declare; "": nothing
		refused string // by Publish; "": not
	}{
		{"in one call", [][]topology.Spec{call(delays, shop("topic"), orders("order.*"))}, "order.*", "", ""},
		{"the key # is a word in a topic exchange", [][]topology.Spec{call(delays, shop("topic"), orders("#"))}, "#", "", ""},
		{"a fanout has every key", [][]topology.Spec{call(delays, shop("fanout"), orders("#"))}, "order.*", "", ""},
		{"a direct exchange", [][]topology.Spec{call(delays, shop("direct"), orders("order.paid"))}, "order.paid", "", ""},
		{"a direct exchange, a word of a key", [][]topology.Spec{call(delays, shop("direct"), orders("order.*"))}, "order.*", `key "order.*"`, "kind direct"},
		{"a direct exchange, the key #", [][]topology.Spec{call(delays, shop("direct"), orders("#"))}, "#", `key "#"`, "kind direct"},
		{"a direct exchange to lanes", [][]topology.Spec{call(delays, shop("direct"), lanes), call(orders("#"))}, "#", "", "kind direct"},
		{"a headers exchange", [][]topology.Spec{call(delays, shop("headers"), orders(""))}, "", "", "kind headers"},
		{"the queue in a later call", [][]topology.Spec{call(delays, shop("topic")), call(orders("order.#"))}, "order.paid", "orders: messages that are delayed to exchange \"shop\"", `would not reach "orders"`},
		{"in an earlier one", [][]topology.Spec{call(shop("topic"), orders("order.#")), call(delays, shop("topic"))}, "order.paid", "orders: messages that are delayed to exchange \"shop\"", `would not reach "orders"`},
		{"lanes in a later call", [][]topology.Spec{call(delays, shop("direct")), call(lanes)}, "order.paid", "sms: messages that are delayed to exchange \"shop\"", `would not reach "sms"`},
		{"the exchange apart from its delays", [][]topology.Spec{call(shop("topic"), orders("order.#")), call(delays)}, "order.paid", "", "no exact delays to exchange"},
		{"apart, and then in one call", [][]topology.Spec{call(shop("topic"), orders("order.#")), call(delays, shop("topic"), orders("order.#"))}, "order.paid", "", ""},
		{"in one call, and then alone", [][]topology.Spec{call(delays, shop("topic"), orders("order.#")), call(orders("order.#"))}, "order.paid", "", ""},
		{"a grain of its own without the queue", [][]topology.Spec{call(delays, shop("topic"), orders("order.#")), call(fine, shop("topic"))}, "order.paid", "grain 10ms", ""},
	} {
		t.Run(row.rule, func(t *testing.T) {
			s := start(t, "4.3")
			var log warnings
			conn := s.connect(connection.Config{Logger: slog.New(&log)})
			for _, specs := range row.calls {
				if err := topology.Declare(t.Context(), conn, specs...); err != nil {
					t.Fatal(err)
				}
			}
			if all := log.all(); (all != "") != (row.warns != "") || !strings.Contains(all, row.warns) {
				t.Errorf("the warnings are %q, want %q in them", all, row.warns)
			}
			publisher, err := producer.New(conn, producer.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer publisher.Close()
			m := producer.Message{Exchange: "shop", RoutingKey: row.key}
			if _, err := publisher.Publish(t.Context(), m); err != nil {
				t.Errorf("published straight: %v", err)
			}
			m.Delay = time.Minute
			if _, err := publisher.Publish(t.Context(), m); (err != nil) != (row.refused != "") || err != nil && !strings.Contains(err.Error(), row.refused) {
				t.Errorf("with a Delay the error is %v, want %q in it", err, row.refused)
			}
		})
	}
}

// warnings are the warnings of a log.
type warnings struct {
	mu    sync.Mutex
	lines []string
}

func (w *warnings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (w *warnings) WithAttrs([]slog.Attr) slog.Handler               { return w }
func (w *warnings) WithGroup(string) slog.Handler                    { return w }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, r.Message)
	return nil
}

func (w *warnings) all() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.lines, "\n")
}

// A queue that is deleted takes its bindings with it.
func TestDelaysForgetBindingsOfDeletedQueues(t *testing.T) {
	delays, shop := topology.Delays{Max: time.Minute}, topology.Exchange{Name: "shop"}
	orders := topology.WorkQueue{Name: "orders", Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}}}
	s := start(t, "4.3")
	publisher, err := producer.New(s.conn, producer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer publisher.Close()
	refused := func() bool {
		_, err := publisher.Publish(t.Context(), producer.Message{Exchange: "shop", RoutingKey: "order.paid", Delay: time.Minute})
		return err != nil
	}
	s.declare(delays, shop)
	s.declare(orders)
	if !refused() {
		t.Error("a message is delayed to a queue that was declared apart")
	}
	if err := topology.Delete(t.Context(), s.conn, orders); err != nil {
		t.Fatal(err)
	}
	if refused() {
		t.Error("a message is refused because of a queue that is gone")
	}
	s.declare(delays, shop, orders)
	if err := topology.DeleteAll(t.Context(), s.conn, orders); err != nil {
		t.Fatal(err)
	}
	s.declare(orders)
	if !refused() {
		t.Error("a message is delayed to a queue that was declared apart when it was gone")
	}
}

// Nothing is delayed to what was deleted on the Conn: it would be stranded.
func TestNothingIsDelayedToWhatIsDeleted(t *testing.T) {
	delays, shop, bills := topology.Delays{Max: time.Minute}, topology.Exchange{Name: "shop"}, topology.Shards{Name: "bills", Count: 3}
	orders := topology.WorkQueue{Name: "orders", Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}}}
	s := start(t, "4.3")
	publisher, err := producer.New(s.conn, producer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer publisher.Close()
	targets := []topology.Address{{RoutingKey: "bills.00"}, {RoutingKey: "bills.01"}, {RoutingKey: "bills.02"}, {RoutingKey: "orders"}, {Exchange: "shop", RoutingKey: "order.paid"}}
	taken := func(when string, want ...bool) {
		t.Helper()
		for i, to := range targets {
			_, err := publisher.Publish(t.Context(), producer.Message{Exchange: to.Exchange, RoutingKey: to.RoutingKey, Delay: time.Minute})
			if (err == nil) != want[i] || err != nil && !strings.Contains(err.Error(), "are declared on this Conn: ") {
				t.Errorf("%s: to %v: %v, want it taken: %t", when, to, err, want[i])
			}
		}
	}
	s.declare(delays, shop, orders, bills)
	taken("all are there", true, true, true, true, true)
	other := s.connect(connection.Config{})
	if err := topology.Delete(t.Context(), other, bills.WorkQueues()[1]); err != nil {
		t.Fatal(err)
	}
	if err := topology.Delete(t.Context(), s.conn, bills.WorkQueues()[1], bills.WorkQueues()[2]); err != nil {
		t.Fatal(err)
	}
	taken("two shards are deleted, one of them by another process first", true, false, false, true, true)
	if err := topology.Delete(t.Context(), s.conn, orders, shop); err != nil {
		t.Fatal(err)
	}
	taken("the queue and the exchange are deleted", true, false, false, false, false)
	s.declare(delays, shop, orders, bills)
	taken("declared again", true, true, true, true, true)
}
