package compat

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/broker"
	"github.com/rehop/rehop/integration/matrix"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

var (
	shop     = topology.Exchange{Name: "shop"}
	bindings = []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}}
	waits    = delay.Schedule{time.Minute, 5 * time.Minute}
	classes  = []topology.Lane{{Name: "vip", Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "vip.#"}}}, {Name: "normal"}, {Name: "bulk"}}
)

// wirings are what services declare. The name of a file is the name of its wiring, a dash
// and the version of the broker.
var wirings = map[string][]topology.Spec{
	"quorum":        {shop, topology.WorkQueue{Name: "orders", Bindings: bindings, Waits: waits}},
	"classic":       {shop, topology.WorkQueue{Name: "orders", Type: topology.Classic, Bindings: bindings, Waits: waits}},
	"republish":     {shop, topology.WorkQueue{Name: "orders", Engine: topology.EngineRepublish, Bindings: bindings, Waits: waits}},
	"carry":         {shop, topology.WorkQueue{Name: "orders", Engine: topology.EngineCarry, Bindings: bindings, Waits: waits}},
	"priority":      {shop, topology.WorkQueue{Name: "orders", Type: topology.Classic, NativePriority: true, Bindings: bindings, Waits: waits}},
	"no-waits":      {shop, topology.WorkQueue{Name: "orders", Bindings: bindings}},
	"one-by-one":    {shop, topology.WorkQueue{Name: "orders", SingleActiveConsumer: true, Bindings: bindings, Waits: waits}},
	"slow":          {shop, topology.WorkQueue{Name: "orders", ConsumerTimeout: time.Hour, Bindings: bindings, Waits: waits}},
	"lanes":         {shop, topology.Lanes{Name: "orders", Lanes: classes, Bindings: bindings, Waits: waits}},
	"lanes-one-dlq": {shop, topology.Lanes{Name: "orders", Lanes: classes, Bindings: bindings, Waits: waits, OneDeadLetterQueue: true}},
	"shards":        {topology.Shards{Name: "orders", Count: 2, Waits: waits}},
	"delays":        {shop, topology.Delays{}, topology.WorkQueue{Name: "orders", Bindings: bindings, Waits: waits}},
	"delays-lanes":  {shop, topology.Delays{Grain: 10 * time.Millisecond, Max: time.Minute}, topology.Lanes{Name: "orders", Lanes: classes, Bindings: bindings, Waits: waits}},
	"set-aside":     {topology.DeadLetterQueue{Name: "set-aside", Exchange: "dead", MaxAge: 24 * time.Hour}},
}

// refused are wirings that a version of the broker cannot have, as their files are named.
var refused = map[string]bool{"slow-3.10": true} // it has one consumer timeout for all queues

// parts returns the exchanges, queues and bindings of a plan, as it prints them.
func parts(plan topology.Plan) string {
	var s strings.Builder
	for line := range strings.Lines(plan.String()) {
		switch word, _, _ := strings.Cut(line, " "); word {
		case "exchange", "queue", "bind":
			s.WriteString(line)
		}
	}
	return s.String()
}

// TestTopology: today's plans are those of the release.
func TestTopology(t *testing.T) {
	for wiring, specs := range wirings {
		for version, v := range versions {
			name := wiring + "-" + version
			plan, err := topology.NewPlan(v, specs...)
			if refused[name] != (err != nil) {
				t.Errorf("%s is refused: %v, want that: %v", name, err, refused[name])
			}
			if err == nil {
				compare(t, "topology/"+name+".txt", parts(plan))
			}
		}
	}
}

// declareFile declares the parts that a file has, as another program would.
func declareFile(ch *amqp.Channel, text []byte) error {
	for line := range strings.Lines(string(text)) {
		kind, rest, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		rest = strings.TrimLeft(rest, " ")
		var err error
		switch kind {
		case "exchange":
			name, rest, _ := strings.Cut(rest, " ")
			exchangeKind, args, _ := strings.Cut(strings.TrimPrefix(rest, "("), ")")
			err = ch.ExchangeDeclare(name, exchangeKind, true, false, false, false, table(args))
		case "queue":
			name, args, _ := strings.Cut(rest, " ")
			_, err = ch.QueueDeclare(name, true, false, false, false, table(args))
		case "bind":
			source, rest, _ := strings.Cut(rest, " --")
			how, to, _ := strings.Cut(rest, "--> ")
			key, args, _ := strings.Cut(how, " ")
			if exchange, is := strings.CutPrefix(to, "exchange "); is {
				err = ch.ExchangeBind(exchange, key, source, false, table(args))
			} else {
				err = ch.QueueBind(to, key, source, false, table(args))
			}
		default:
			err = fmt.Errorf("unknown line")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", strings.TrimSpace(line), err)
		}
	}
	return nil
}

// table returns the arguments that a plan has printed.
func table(text string) amqp.Table {
	args := amqp.Table{}
	for _, field := range strings.Fields(text) {
		name, value, _ := strings.Cut(field, "=")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			args[name] = n
		} else if value == "true" || value == "false" {
			args[name] = value == "true"
		} else {
			args[name] = value
		}
	}
	return args
}

// beside declares a file before and after today's program does, and then today's specs
// again, which must find all in order.
func beside(ctx context.Context, t *testing.T, conn *connection.Conn, ch func() *amqp.Channel, wiring string, text []byte) {
	t.Helper()
	specs, ok := wirings[wiring]
	if !ok {
		t.Fatalf("no wiring of the name %s", wiring)
	}
	clean := func() {
		if err := topology.DeleteAll(ctx, conn, specs...); err != nil {
			t.Error(err)
		}
	}
	defer clean()
	if err := declareFile(ch(), text); err != nil {
		t.Fatalf("the release declares on an empty broker: %v", err)
	}
	plan, err := topology.DeclarePlan(ctx, conn, specs...)
	if err != nil {
		t.Errorf("today's program declares beside the release: %v", err)
	} else if got := lines(parts(plan)); !slices.Equal(got, lines(string(text))) {
		t.Errorf("today's program beside the release declares\n%s\nwant\n%s", strings.Join(got, ""), text)
	}
	clean()
	if err := topology.Declare(ctx, conn, specs...); err != nil {
		t.Fatalf("today's program declares on an empty broker: %v", err)
	}
	if err := declareFile(ch(), text); err != nil {
		t.Errorf("the release declares beside today's program: %v", err)
	}
}

func lines(text string) []string { return slices.Sorted(strings.Lines(text)) }

// TestTopologyBesideTheRelease declares on the broker in the process.
func TestTopologyBesideTheRelease(t *testing.T) {
	files(t, "topology", func(t *testing.T, name string, text []byte) {
		wiring, version := split(t, name)
		rehoptest.Test(t, rehoptest.Config{Version: version}, func(t *testing.T, b *rehoptest.Broker) {
			beside(t.Context(), t, connect(t, b), func() *amqp.Channel { return channel(t, b) }, wiring, text)
		})
	})
}

// TestTopologyOnRabbitMQ declares on RabbitMQ.
func TestTopologyOnRabbitMQ(t *testing.T) {
	available, err := broker.Available(t.Context())
	must(t, err)
	if len(available) == 0 || nodes.Given() {
		available = []string{""}
	}
	for _, version := range available {
		node := pool.Of(t, version)
		column := matrix.Nearest(node.Version())
		conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{node.AMQPURL()}})
		must(t, err)
		raw, err := amqp.Dial(node.AMQPURL())
		must(t, err)
		files(t, "topology", func(t *testing.T, name string, text []byte) {
			wiring, of := split(t, name)
			if of != column {
				return
			}
			beside(t.Context(), t, conn, func() *amqp.Channel {
				ch, err := raw.Channel()
				must(t, err)
				return ch
			}, wiring, text)
		})
		must(t, raw.Close())
		must(t, conn.Close())
	}
}

// split returns the wiring and the version that a file is of.
func split(t *testing.T, name string) (wiring, version string) {
	t.Helper()
	at := strings.LastIndex(name, "-")
	wiring, version = name[:at], name[at+1:]
	if !slices.Contains(slices.Collect(maps.Keys(versions)), version) {
		t.Fatalf("%s names no version of a broker", name)
	}
	return wiring, version
}

func connect(t *testing.T, b *rehoptest.Broker) *connection.Conn {
	t.Helper()
	conn, err := connection.Open(t.Context(), connection.Config{URLs: []string{"amqp://guest:guest@broker"}, Dial: b.Dial})
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// channel opens a channel of a client without rehop.
func channel(t *testing.T, b *rehoptest.Broker) *amqp.Channel {
	t.Helper()
	socket, err := b.Dial(t.Context(), "tcp", "broker:5672")
	must(t, err)
	conn, err := amqp.Open(socket, amqp.Config{SASL: []amqp.Authentication{&amqp.PlainAuth{Username: "guest", Password: "guest"}}, Vhost: "/"})
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	must(t, err)
	return ch
}
