package drift

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/topology"
)

// The form of an exchange of a plugin's kind is found without the management API: with the plugin, without it,
// and when the plugin has been disabled under the exchange. No connection ends over it, and nothing is made. Declare
// says that the broker has no such kind.
func TestKindsOfPlugins(t *testing.T) {
	const kind = "x-consistent-hash"
	eachOwn(t, "plugins", func(t *testing.T, n *nodes.Node) {
		plugin := func(verb string) {
			t.Helper()
			if out, err := n.Exec(t.Context(), "rabbitmq-plugins", verb, "rabbitmq_consistent_hash_exchange"); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		v := newVhost(t, n, "plugins")
		conn := v.connect("")
		session, err := conn.Session(t.Context(), connection.Consume)
		if err != nil {
			t.Fatal(err)
		}
		is3 := !conn.Server().Version.AtLeast(4, 0)
		add := func(name, kind string, durable bool, alternate ...string) {
			t.Helper()
			args := map[string]any{}
			if len(alternate) > 0 {
				args["alternate-exchange"] = alternate[0]
			}
			v.must(http.MethodPut, "exchanges/"+v.path()+"/"+name, exchange{Type: kind, Durable: durable, Arguments: args})
		}
		planned := func(name string) topology.Exchange { return topology.Exchange{Name: name, Kind: kind} }
		// found returns the codes of what is found, and what is unseen of exchanges.
		found := func(name string) (codes []topology.DriftCode, unseen string, err error) {
			t.Helper()
			before := v.definitions()
			drift, err := topology.VerifyByDeclaring(t.Context(), conn, planned(name))
			for _, d := range drift.Differences {
				codes = append(codes, d.Code)
			}
			for _, u := range drift.Unseen {
				if strings.Contains(u, "exchange") {
					unseen += u
				}
			}
			if after := v.definitions(); len(before.Exchanges) != len(after.Exchanges) {
				t.Errorf("%s: VerifyByDeclaring has made an exchange: %v", name, after.Exchanges)
			}
			select {
			case <-session.Done():
				t.Fatalf("%s: the connection has ended: %v", name, session.Err())
			default:
			}
			return codes, unseen, err
		}
		wants := func(when, name string, want ...topology.DriftCode) {
			t.Helper()
			codes, unseen, err := found(name)
			isUnseen := strings.Contains(unseen, `lifetime and alternate of exchange "`+name+`"`)
			ofKind := !slices.Contains(want, "exchange-kind") && !slices.Contains(want, "exchange-missing")
			if err != nil || !slices.Equal(codes, want) || isUnseen != (is3 && ofKind) {
				t.Errorf("%s, %s: found %v, %v, unseen %q; want %v", when, name, codes, err, unseen, want)
			}
		}

		add("topic", "topic", true)
		add("fanout", "fanout", true)
		add("fading", "fanout", false)
		wants("without the plugin", "none", "exchange-missing")
		wants("without the plugin", "topic", "exchange-kind")
		wants("without the plugin", "fanout", "exchange-kind")
		wants("without the plugin", "fading", "exchange-kind")

		plugin("enable")
		add("ring", kind, true)
		add("led", kind, true, "fanout")
		add("brief", kind, false)
		wants("with the plugin", "ring")
		wants("with the plugin", "topic", "exchange-kind")
		if is3 { // where that is unseen
			wants("with the plugin", "led")
			wants("with the plugin", "brief")
		} else {
			wants("with the plugin", "led", "exchange-arguments")
			wants("with the plugin", "brief", "exchange-lifetime")
		}

		plugin("disable")
		wants("when the plugin is gone", "topic", "exchange-kind")
		if is3 {
			wants("when the plugin is gone", "ring")
		} else if codes, _, err := found("ring"); err == nil || !strings.Contains(err.Error(), "Exchange.Kind is one that this broker does not have") {
			t.Errorf("when the plugin is gone: found %v, %v; want that the broker does not have the kind", codes, err)
		}

		// What the look at the kind rests on: an exchange that exists is compared, and none is made.
		raw := func(name, kind string) string {
			t.Helper()
			c, err := amqp.DialConfig(n.AMQPURL(), amqp.Config{Vhost: v.name})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ch, err := c.Channel()
			if err != nil {
				t.Fatal(err)
			}
			err = ch.ExchangeDeclare(name, kind, true, false, false, false, amqp.Table{"alternate-exchange": int32(0)})
			if err == nil {
				t.Fatalf("exchange %q of kind %q is declared, with a number for its alternate", name, kind)
			}
			return err.Error()
		}
		for name, want := range map[string]string{
			"topic": "inequivalent arg 'type' for exchange 'topic' in vhost 'drift/plugins': received 'fanout' but current is 'topic'",
			"ring":  "inequivalent arg 'type' for exchange 'ring' in vhost 'drift/plugins': received 'fanout' but current is ''x-consistent-hash''",
			"new":   "invalid type",
		} {
			if got := raw(name, "fanout"); !strings.Contains(got, want) {
				t.Errorf("%s as a fanout: %s\nwant %s", name, got, want)
			}
		}
		for _, name := range []string{"ring", "new"} {
			if err := topology.Declare(t.Context(), v.conn, planned(name)); err == nil || !strings.Contains(err.Error(), "Exchange.Kind is one that this broker does not have") {
				t.Errorf("Declare of %s without the plugin: %v", name, err)
			}
		}
		for _, x := range v.definitions().Exchanges {
			if x.Name == "new" {
				t.Error("a declaration whose alternate is no name has made an exchange")
			}
		}
	})
}
