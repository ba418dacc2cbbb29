package drift

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/integration/nodes"
	"github.com/rehop/rehop/integration/poll"
	"github.com/rehop/rehop/topology"
)

var (
	shop  = topology.Exchange{Name: "shop"}
	bound = []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}}
	waits = delay.Schedule{time.Minute, 5 * time.Minute}
	lanes = topology.Lanes{Name: "sms", Lanes: []topology.Lane{{Name: "vip"}, {Name: "bulk"}}, Waits: waits[:1], Bindings: []topology.Binding{{Exchange: "shop", RoutingKey: "sms.#"}}}
)

// wirings are what services declare. The queue "others" and the exchange "others.x" exist.
var wirings = map[string][]topology.Spec{
	"orders":    {shop, topology.WorkQueue{Name: "orders", Bindings: bound, Waits: waits}}, // nack on 4.x, carry on 3.x
	"classic":   {shop, topology.WorkQueue{Name: "orders", Type: topology.Classic, Bindings: bound, Waits: waits[:1]}},
	"republish": {shop, topology.WorkQueue{Name: "orders", Engine: topology.EngineRepublish, Bindings: bound, Waits: waits[:1]}},
	"carry":     {topology.WorkQueue{Name: "orders", Engine: topology.EngineCarry, Waits: waits, Bindings: []topology.Binding{{Exchange: "others.x", RoutingKey: "#"}}}},
	"existing":  {topology.WorkQueue{Name: "others", Existing: true, Waits: waits[:1]}},
	"single":    {topology.WorkQueue{Name: "orders ü/#+", SingleActiveConsumer: true, Waits: waits[:1]}},
	"letters":   {topology.WorkQueue{Name: "orders"}, topology.DeadLetterQueue{Name: "orders.dlq", Exchange: "letters", MaxAge: time.Hour}},
	"lanes":     {shop, lanes},
	"delays":    {shop, topology.Delays{Max: 7 * time.Second, Queues: []string{"others"}}, topology.WorkQueue{Name: "orders", Bindings: bound}, lanes},
}

// damage is one thing that is done to a virtual host.
type damage struct {
	name string
	do   func() error // of a broker that refuses it: nothing is damaged

	// code and of say what Verify has to find. Without a code it is to agree with Declare.
	code     topology.DriftCode
	kind, of string
}

// TestDamages prints how many damages were tried and found on each version.
func TestDamages(t *testing.T) {
	onEachVersion(t, func(t *testing.T, n *nodes.Node) {
		var all count
		forms := map[string]bool{}
		for _, name := range slices.Sorted(maps.Keys(wirings)) {
			specs := wirings[name]
			t.Run(name, func(t *testing.T) {
				v := declared(t, n, name, name)
				var here count
				whole := v.definitions()
				clean := func(when string) {
					t.Helper()
					drift := v.verify(v.conn, specs...)
					if len(drift.Differences)+len(drift.Unseen) > 0 || !drift.OK() {
						t.Fatalf("%s:\n%s", when, drift)
					}
					v.sameInAFile(when, drift, specs, "definitions", "definitions/"+v.path())
				}
				clean("after Declare")
				for _, d := range v.damages(whole, forms) {
					if err := d.do(); err != nil {
						here.refused++
						v.reset(whole, specs)
						continue
					}
					switch found, accepted := v.judge(d, specs); {
					case accepted:
						here.accepted++
					case found:
						here.tried, here.found = here.tried+1, here.found+1
					default:
						here.tried++
					}
					v.reset(whole, specs)
				}
				clean("when all is mended")
				fmt.Printf("broker %s, %s: %v\n", n.Version(), name, here)
				all = count{all.tried + here.tried, all.found + here.found, all.accepted + here.accepted, all.refused + here.refused}
			})
		}
		fmt.Printf("broker %s: %v\n", n.Version(), all)
	})
}

// declared makes a virtual host of a name with the parts of others, and declares a wiring there.
func declared(t *testing.T, n *nodes.Node, wiring, name string) *vhost {
	t.Helper()
	v := newVhost(t, n, name)
	v.must(http.MethodPut, "queues/"+v.path()+"/"+others, queue{Durable: true, Arguments: map[string]any{"x-queue-type": "classic"}})
	v.must(http.MethodPut, "exchanges/"+v.path()+"/"+others+".x", exchange{Type: "topic", Durable: true, Arguments: map[string]any{}})
	if err := topology.Declare(t.Context(), v.conn, wirings[wiring]...); err != nil {
		t.Fatal(err)
	}
	return v
}

// The wirings are side by side, because each waits until the broker reports its policies.
func TestPoliciesOfEachQueue(t *testing.T) {
	onEachVersion(t, func(t *testing.T, n *nodes.Node) {
		for name, specs := range wirings {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				v := declared(t, n, name, "policies of "+name)
				tried, found := v.underPolicies(v.definitions(), specs)
				fmt.Printf("broker %s, %s: %d policies were tried and %d found\n", n.Version(), name, tried, found)
			})
		}
	})
}

// A broker that somebody imports the definitions of a plan into is as planned, and Declare changes
// nothing on it.
func TestDefinitionsOfAPlanAreImported(t *testing.T) {
	onEachVersion(t, func(t *testing.T, n *nodes.Node) {
		for _, name := range slices.Sorted(maps.Keys(wirings)) {
			specs := wirings[name]
			t.Run(name, func(t *testing.T) {
				v := newVhost(t, n, "imported "+name)
				v.must(http.MethodPut, "queues/"+v.path()+"/"+others, queue{Durable: true, Arguments: map[string]any{"x-queue-type": "classic"}})
				v.must(http.MethodPut, "exchanges/"+v.path()+"/"+others+".x", exchange{Type: "topic", Durable: true, Arguments: map[string]any{}})
				plan, err := topology.NewPlan(v.conn.Server().Version, specs...)
				if err != nil {
					t.Fatal(err)
				}
				file, err := plan.Definitions(v.name)
				if err != nil {
					t.Fatal(err)
				}
				v.must(http.MethodPost, "definitions", json.RawMessage(file))
				drift, before := v.verified(v.conn, specs...)
				if len(drift.Differences)+len(drift.Unseen) > 0 {
					t.Errorf("after the import:\n%s", drift)
				}
				v.sameInAFile("after the import", drift, specs, "definitions", "definitions/"+v.path())
				if err := topology.Declare(t.Context(), v.conn, specs...); err != nil {
					t.Error(err)
				}
				if after := v.definitions(); !reflect.DeepEqual(before, after) {
					t.Errorf("Declare has changed what was imported:\n%+v\n%+v", before, after)
				}
			})
		}
	})
}

// count is how many damages were tried and found, how many are none because Declare accepts
// them too, and how many the broker refused to do.
type count struct{ tried, found, accepted, refused int }

func (c count) String() string {
	return fmt.Sprintf("%d damages were tried and %d found; Declare accepts %d more, and the broker refused %d", c.tried, c.found, c.accepted, c.refused)
}

// judge reports whether Verify finds a damage and agrees with Declare, or whether both
// accept it.
func (v *vhost) judge(d damage, specs []topology.Spec) (found, accepted bool) {
	v.Helper()
	drift, before := v.verified(v.conn, specs...)
	if !strings.HasSuffix(d.name, ": transient") && !strings.HasSuffix(d.name, ": internal") { // a file has no such part
		v.sameInAFile(d.name, drift, specs, "definitions/"+v.path())
	}
	has := func(class topology.DriftClass) bool {
		return slices.ContainsFunc(drift.Differences, func(e topology.Difference) bool { return e.Class == class })
	}
	if d.code != "" && !slices.ContainsFunc(drift.Differences, func(e topology.Difference) bool {
		return e.Code == d.code && e.Kind == d.kind && e.Name == d.of || e.Code == d.code && d.kind == "binding" && e.Kind == d.kind
	}) {
		v.Errorf("%s: found\n%s\nwant %s of %s %q", d.name, drift, d.code, d.kind, d.of)
		return false, false
	}
	err := topology.Declare(v.Context(), v.conn, specs...)
	changed := !reflect.DeepEqual(before, v.definitions())
	var conflict *topology.ConflictError
	switch {
	case errors.As(err, &conflict):
		if !has(topology.DriftDiffers) {
			v.Errorf("%s: Declare returns %v, and Verify has found\n%s", d.name, err, drift)
			return false, false
		}
		return true, false
	case err != nil:
		if drift.OK() {
			v.Errorf("%s: Declare returns %v, and Verify has found\n%s", d.name, err, drift)
			return false, false
		}
		return true, false
	case changed != has(topology.DriftMissing):
		v.Errorf("%s: Declare has changed the virtual host: %t, and Verify had found\n%s", d.name, changed, drift)
		return false, false
	case d.code == "" && !changed && !d.withoutTimeout(drift).OK():
		v.Errorf("%s: Declare accepts it, and Verify has found\n%s", d.name, drift)
		return false, false
	}
	found = d.code != "" || !drift.OK() || has(topology.DriftExtra)
	return found, !found
}

// withoutTimeout returns what Verify has found beside a consumer timeout of a damaged queue that Declare accepts, and that cuts handlers short.
func (d damage) withoutTimeout(drift topology.Drift) topology.Drift {
	drift.Differences = slices.DeleteFunc(slices.Clone(drift.Differences), func(e topology.Difference) bool {
		return strings.Contains(d.name, ": x-consumer-timeout ") && e.Code == "queue-arguments" && e.Class == topology.DriftOverridden && e.Kind == d.kind && e.Name == d.of
	})
	return drift
}

// sameInAFile checks that files of definitions show what the broker does.
func (v *vhost) sameInAFile(when string, want topology.Drift, specs []topology.Spec, paths ...string) {
	v.Helper()
	for _, path := range paths {
		drift, err := topology.VerifyDefinitions(v.must(http.MethodGet, path, nil), v.name, specs...)
		if err != nil {
			v.Fatalf("%s: GET /api/%s: %v", when, path, err)
		}
		if !reflect.DeepEqual(drift.Differences, want.Differences) {
			v.Errorf("%s: GET /api/%s shows\n%s\nand the broker\n%s", when, path, drift, want)
		}
	}
}

// role is the last part of a queue's name without numbers. The queues of a role have the
// same form.
func role(name string) string {
	return strings.TrimRight(name[strings.LastIndex(name, ".")+1:], "0123456789")
}

// damages returns each part of a virtual host damaged in each way. Of the queues of one
// form only one gets every argument; forms has those that were met.
func (v *vhost) damages(whole definitions, forms map[string]bool) (all []damage) {
	put := func(path string, body any) error {
		if _, err := v.call(v.Context(), http.MethodDelete, path, nil); err != nil {
			return err
		}
		_, err := v.call(v.Context(), http.MethodPut, path, body)
		return err
	}
	add := func(name string, code topology.DriftCode, kind, of string, do func() error) {
		all = append(all, damage{name: fmt.Sprintf("%s %q: %s", kind, of, name), do: do, code: code, kind: kind, of: of})
	}
	for _, q := range whole.Queues {
		path := "queues/" + v.path() + "/" + url.PathEscape(q.Name)
		if q.Name == others && v.name != "drift/existing" && v.name != "drift/delays" {
			continue
		}
		add("deleted", "queue-missing", "queue", q.Name, func() error {
			_, err := v.call(v.Context(), http.MethodDelete, path, nil)
			return err
		})
		if q.Name == others {
			continue // it may have any form
		}
		put := func(path string, body any) error { // bound as it was, or Verify finds damaged bindings with each damaged form
			err := put(path, body)
			for _, b := range whole.Bindings {
				if err == nil && b.DestinationType == "queue" && b.Destination == q.Name {
					_, err = v.call(v.Context(), http.MethodPost, b.path(v), map[string]any{"routing_key": b.RoutingKey, "arguments": b.Arguments})
				}
			}
			return err
		}
		with := func(name string, value any) queue {
			q := q
			if q.Arguments = maps.Clone(q.Arguments); value == nil {
				delete(q.Arguments, name)
			} else {
				q.Arguments[name] = value
			}
			return q
		}
		add("a length limit", "", "queue", q.Name, func() error { return put(path, with("x-max-length", 5)) })
		every := map[string]any{
			"x-max-length-bytes": 5000, "x-expires": 3600000, "x-message-ttl": 700, "x-delivery-limit": 7, "x-single-active-consumer": true,
			"x-overflow": "drop-head", "x-dead-letter-strategy": "at-most-once", "x-dead-letter-routing-key": "elsewhere", "x-max-priority": 5,
			"x-queue-leader-locator": "client-local", "x-queue-mode": "lazy", "x-queue-version": 2, "x-quorum-initial-group-size": 1, "x-consumer-timeout": 90000,
			"x-quorum-target-group-size": 1, "x-team": "eu",
		}
		form := fmt.Sprint(role(q.Name), q.Arguments["x-queue-type"], slices.Sorted(maps.Keys(q.Arguments)))
		if forms[form] {
			clear(every)
		}
		forms[form] = true
		for name, value := range every {
			add(fmt.Sprintf("%s %v", name, value), "", "queue", q.Name, func() error { return put(path, with(name, value)) })
		}
		for name := range q.Arguments {
			if len(every) == 0 {
				continue
			}
			add("without "+name, "", "queue", q.Name, func() error { return put(path, with(name, nil)) })
		}
		add("other dead letters", "queue-arguments", "queue", q.Name, func() error { return put(path, with("x-dead-letter-exchange", "elsewhere")) })
		bare := func(t string) queue { return queue{Durable: true, Arguments: map[string]any{"x-queue-type": t}} }
		add("a bare quorum queue", "", "queue", q.Name, func() error { return put(path, bare("quorum")) })
		add("a bare classic queue", "", "queue", q.Name, func() error { return put(path, bare("classic")) })
		add("a stream", "queue-type", "queue", q.Name, func() error { return put(path, bare("stream")) })
		add("transient", "queue-lifetime", "queue", q.Name, func() error {
			q := bare("classic")
			q.Durable = false
			return put(path, q)
		})
		add("auto-delete", "queue-lifetime", "queue", q.Name, func() error {
			q := bare("classic")
			q.AutoDelete = true
			return put(path, q)
		})
		more := binding{Source: others + ".x", Destination: q.Name, DestinationType: "queue", RoutingKey: "more"}
		add("one binding too many", "binding-extra", "binding", q.Name, func() error {
			_, err := v.call(v.Context(), http.MethodPost, more.path(v), map[string]any{"routing_key": more.RoutingKey})
			return err
		})
	}
	for _, x := range whole.Exchanges {
		path := "exchanges/" + v.path() + "/" + url.PathEscape(x.Name)
		if x.Name == others+".x" && v.name != "drift/carry" {
			continue
		}
		add("deleted", "exchange-missing", "exchange", x.Name, func() error {
			_, err := v.call(v.Context(), http.MethodDelete, path, nil)
			return err
		})
		if x.Name == others+".x" {
			continue
		}
		change := func(do func(*exchange)) func() error {
			x := x
			do(&x)
			return func() error { return put(path, x) }
		}
		for _, kind := range []string{"topic", "direct", "fanout", "headers"} {
			if kind != x.Type {
				add("of kind "+kind, "exchange-kind", "exchange", x.Name, change(func(x *exchange) { x.Type = kind }))
			}
		}
		add("another alternate", "exchange-arguments", "exchange", x.Name, change(func(x *exchange) { x.Arguments = map[string]any{"alternate-exchange": "elsewhere"} }))
		add("transient", "exchange-lifetime", "exchange", x.Name, change(func(x *exchange) { x.Durable = false }))
		add("auto-delete", "exchange-lifetime", "exchange", x.Name, change(func(x *exchange) { x.AutoDelete = true }))
		add("internal", "exchange-lifetime", "exchange", x.Name, change(func(x *exchange) { x.Internal = true }))
		if x.Name != "shop" && x.Name != "letters" { // others bind to these
			more := binding{Source: x.Name, Destination: others, DestinationType: "queue"}
			add("one binding too many", "binding-extra", "binding", x.Name, func() error {
				_, err := v.call(v.Context(), http.MethodPost, more.path(v), map[string]any{"routing_key": "more"})
				return err
			})
		}
	}
	for _, b := range whole.Bindings {
		add("unbound", "binding-missing", "binding", fmt.Sprintf("%s --%s--> %s", b.Source, b.RoutingKey, b.Destination), func() error { return v.unbind(b) })
	}
	return all
}

// harms are policies of both kinds that break promises.
var harms = []struct {
	path, column string
	code         topology.DriftCode
	definition   map[string]any
}{
	{"policies", "policy", "policy", map[string]any{"expires": 3600000}},
	{"operator-policies", "operator_policy", "operator-policy", map[string]any{"max-length": 50}},
}

// underPolicies has each queue of the plan under a policy of one kind, and its neighbours under one of the other kind, and then
// the other way round. It returns how many policies there were and how many Verify has found, each on its queue. A broker
// reports the policies of its queues every five seconds, so all of them change at once.
func (v *vhost) underPolicies(whole definitions, specs []topology.Spec) (tried, found int) {
	v.Helper()
	queues := slices.DeleteFunc(slices.Clone(whole.Queues), func(q queue) bool { return q.Name == others })
	path := func(i, kind int) string { return fmt.Sprintf("%s/%s/harm-%d", harms[kind].path, v.path(), i) }
	become := func(under func(i, kind int) bool) {
		for i, q := range queues {
			pattern := "^" + strings.NewReplacer(".", `\.`, "+", `\+`).Replace(q.Name) + "$"
			for kind, harm := range harms {
				if under(i, kind) {
					v.must(http.MethodPut, path(i, kind), map[string]any{"pattern": pattern, "apply-to": "queues", "definition": harm.definition})
				} else if _, err := v.call(v.Context(), http.MethodDelete, path(i, kind), nil); err != nil && !strings.Contains(err.Error(), "404") {
					v.Fatal(err)
				}
			}
		}
		for i, q := range queues {
			poll.Until(v, time.Minute, "the policies of "+q.Name+" apply", func() bool {
				var has map[string]any
				if answer := v.must(http.MethodGet, "queues/"+v.path()+"/"+url.PathEscape(q.Name)+"?columns=policy,operator_policy", nil); string(answer) == "[]" {
					return false // nothing is reported yet
				} else if err := json.Unmarshal(answer, &has); err != nil {
					v.Fatal(err)
				}
				for kind, harm := range harms {
					if name, _ := has[harm.column].(string); (name == fmt.Sprint("harm-", i)) != under(i, kind) {
						return false
					}
				}
				return true
			})
		}
	}
	for turn := range harms {
		become(func(i, kind int) bool { return (i+turn)%len(harms) == kind })
		drift, before := v.verified(v.conn, specs...)
		v.sameInAFile("under policies", drift, specs, "definitions", "definitions/"+v.path())
		if len(drift.Unseen) > 0 || drift.OK() {
			v.Errorf("under policies: OK: %t, want false, and nothing unseen:\n%s", drift.OK(), drift)
		}
		for _, d := range drift.Differences {
			if d.Class != topology.DriftOverridden || d.Kind != "queue" || !slices.ContainsFunc(queues, func(q queue) bool { return q.Name == d.Name }) {
				v.Errorf("under policies: %s of %s %q is %s", d.Code, d.Kind, d.Name, d.Class)
			}
		}
		for i, q := range queues {
			tried++
			var codes []topology.DriftCode
			for _, d := range drift.Differences {
				if d.Kind == "queue" && d.Name == q.Name {
					codes = append(codes, d.Code)
				}
			}
			if want := harms[(i+turn)%len(harms)].code; slices.Equal(slices.Compact(codes), []topology.DriftCode{want}) {
				found++
			} else {
				v.Errorf("queue %q under a policy of its own: found %q, want %s:\n%s", q.Name, codes, want, drift)
			}
		}
		if err := topology.Declare(v.Context(), v.conn, specs...); err != nil || !reflect.DeepEqual(before, v.definitions()) {
			v.Errorf("under policies Declare returns %v; it should accept them, and change nothing", err)
		}
	}
	become(func(int, int) bool { return false })
	return tried, found
}
