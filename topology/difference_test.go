package topology

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/management"
)

// shown returns a broker that has exactly the parts of plans, as the management API shows
// it after each was declared in turn.
func shown(plans ...Plan) observed {
	have := observed{parts: map[part]bool{}, queues: map[string]management.Form{}, exchanges: map[string]management.Exchange{},
		to: map[part][]management.Binding{}, from: map[string][]management.Binding{}, vhost: "/"}
	for _, p := range plans {
		for _, n := range p.needed() {
			have.parts[n.part] = true
			if n.kind == "exchange" {
				have.exchanges[n.name] = management.Exchange{Name: n.name, Type: "topic", Durable: true}
			} else if _, there := have.queues[n.name]; !there {
				have.queues[n.name] = management.Form{Name: n.name, Durable: true, Queue: management.Queue{Type: "classic"}}
				have.to[n.part] = []management.Binding{}
			}
		}
		for _, q := range p.queues {
			have.parts[part{"queue", q.Name}] = true
			have.queues[q.Name] = management.Form{Name: q.Name, Durable: true, Queue: management.Queue{Type: q.Args["x-queue-type"].(string), Arguments: asAnswer(q.Args)}}
			if have.to[part{"queue", q.Name}] == nil {
				have.to[part{"queue", q.Name}] = []management.Binding{{Destination: q.Name, RoutingKey: q.Name}}
			}
		}
		for _, e := range p.exchanges {
			have.parts[part{"exchange", e.Name}] = true
			have.exchanges[e.Name] = management.Exchange{Name: e.Name, Type: e.Kind, Durable: true, Arguments: asAnswer(e.Args)}
			if e.isOurs() && have.from[e.Name] == nil {
				have.from[e.Name], have.to[part{"exchange", e.Name}] = []management.Binding{}, []management.Binding{}
			}
		}
		for _, b := range p.bindings {
			have.bind(b)
		}
	}
	return have
}

// bind adds a binding to the lists that have it.
func (o observed) bind(b plannedBinding) {
	m := management.Binding{Source: b.Exchange, Destination: b.destination().name, ToExchange: b.ToExchange != "", RoutingKey: b.RoutingKey, Arguments: asAnswer(b.Args)}
	o.unbind(b)
	if list, looked := o.to[b.destination()]; looked {
		o.to[b.destination()] = append(slices.Clip(list), m)
	}
	if list, looked := o.from[b.Exchange]; looked {
		o.from[b.Exchange] = append(slices.Clip(list), m)
	}
}

func (o observed) clone() observed {
	o.parts, o.queues, o.exchanges = maps.Clone(o.parts), maps.Clone(o.queues), maps.Clone(o.exchanges)
	o.to, o.from = maps.Clone(o.to), maps.Clone(o.from)
	return o
}

func (o observed) unbind(b plannedBinding) {
	is := func(m management.Binding) bool { return asPlanned(m).identity() == b.identity() }
	if list, looked := o.to[b.destination()]; looked {
		o.to[b.destination()] = slices.DeleteFunc(slices.Clone(list), is)
	}
	if list, looked := o.from[b.Exchange]; looked {
		o.from[b.Exchange] = slices.DeleteFunc(slices.Clone(list), is)
	}
}

// askedFor takes away what the API is not asked for.
func (o observed) askedFor(p Plan) {
	queues, exchanges := p.names()
	isOf := func(name string, patterns []string) bool {
		return regexp.MustCompile("^(?:" + strings.Join(patterns, "|") + ")$").MatchString(name)
	}
	maps.DeleteFunc(o.queues, func(name string, _ management.Form) bool { return !isOf(name, queues) })
	maps.DeleteFunc(o.exchanges, func(name string, _ management.Exchange) bool { return !isOf(name, exchanges) })
}

// remove deletes a part as a broker does, with its bindings.
func (o observed) remove(p Plan, at part) {
	o.parts[at] = false
	delete(o.queues, at.name)
	delete(o.exchanges, at.name)
	for _, b := range p.bindings {
		if b.destination() == at || at == (part{"exchange", b.Exchange}) {
			o.unbind(b)
		}
	}
}

// damage is one thing that is wrong with a broker.
type damage struct {
	name string
	do   func(observed)
	code DriftCode
	at   part

	stops bool // a program
}

// damages returns each part of a plan damaged in each way.
func damages(p Plan) (all []damage) {
	add := func(name string, code DriftCode, at part, do func(observed)) {
		all = append(all, damage{fmt.Sprintf("%s: %s", at, name), do, code, at, true})
	}
	for _, at := range p.parts() {
		add("deleted", DriftCode(at.kind+"-missing"), at, func(o observed) { o.remove(p, at) })
	}
	for _, q := range p.queues {
		at := part{"queue", q.Name}
		change := func(do func(*management.Form)) func(observed) {
			return func(o observed) {
				f := o.queues[q.Name]
				f.Arguments = asAnswer(q.Args)
				do(&f)
				o.queues[q.Name] = f
			}
		}
		add("a length limit", "queue-arguments", at, change(func(f *management.Form) { f.Arguments["x-max-length"] = json.Number("5") }))
		add("other dead letters", "queue-arguments", at, change(func(f *management.Form) { f.Arguments["x-dead-letter-exchange"] = "elsewhere" }))
		add("a stream", "queue-type", at, change(func(f *management.Form) {
			f.Type, f.Arguments = "stream", map[string]any{"x-queue-type": "stream"}
		}))
		add("transient", "queue-lifetime", at, change(func(f *management.Form) { f.Durable = false }))
		add("auto-delete", "queue-lifetime", at, change(func(f *management.Form) { f.AutoDelete = true }))
		add("policy", "policy", at, change(func(f *management.Form) {
			f.Policy, f.Definition = "p", map[string]any{"expires": json.Number("60000")}
		}))
		add("operator policy", "operator-policy", at, change(func(f *management.Form) {
			f.OperatorPolicy, f.Definition = "p", map[string]any{"expires": json.Number("60000")}
		}))
		more := plannedBinding{Exchange: "other", RoutingKey: "#", Queue: q.Name}
		all = append(all, damage{at.String() + ": one binding too many", func(o observed) { o.bind(more) }, "binding-extra", part{"binding", more.describe()}, false})
	}
	for _, e := range p.exchanges {
		at := part{"exchange", e.Name}
		change := func(do func(*management.Exchange)) func(observed) {
			return func(o observed) {
				x := o.exchanges[e.Name]
				do(&x)
				o.exchanges[e.Name] = x
			}
		}
		add("another kind", "exchange-kind", at, change(func(x *management.Exchange) { x.Type = "x-other" }))
		add("another alternate", "exchange-arguments", at, change(func(x *management.Exchange) { x.Arguments = map[string]any{"alternate-exchange": "elsewhere"} }))
		add("transient", "exchange-lifetime", at, change(func(x *management.Exchange) { x.Durable = false }))
		add("internal", "exchange-lifetime", at, change(func(x *management.Exchange) { x.Internal = true }))
		if e.isOurs() {
			more := plannedBinding{Exchange: e.Name, RoutingKey: "more", Queue: "other"}
			all = append(all, damage{at.String() + ": one binding too many", func(o observed) { o.bind(more) }, "binding-extra", part{"binding", more.describe()}, isWiring(e.Name)})
		}
	}
	for _, b := range p.bindings {
		at := part{"binding", b.describe()}
		add("unbound", "binding-missing", at, func(o observed) { o.unbind(b) })
	}
	return all
}

var versions = []connection.Version{{Major: 3, Minor: 10, Patch: 8}, {Major: 4, Minor: 0, Patch: 5}, {Major: 4, Minor: 3, Patch: 6}}

// wirings are specifications that have every kind of part.
var wirings = map[string][]Spec{
	"engine of the version":  {Exchange{Name: "shop"}, WorkQueue{Name: "orders", Waits: delay.Default(), Bindings: []Binding{{Exchange: "shop", RoutingKey: "order.#"}}}},
	"classic":                {WorkQueue{Name: "orders", Type: Classic, Waits: delay.Default(), Bindings: []Binding{{Exchange: "of.others", RoutingKey: "order.#"}}}},
	"republish":              {WorkQueue{Name: "orders", Engine: EngineRepublish, Waits: delay.Default()}},
	"carry":                  {WorkQueue{Name: "orders", Engine: EngineCarry, Waits: delay.Default()}},
	"existing":               {WorkQueue{Name: "orders", Existing: true, Waits: delay.Default()}},
	"no waits":               {WorkQueue{Name: "orders"}},
	"single active consumer": {WorkQueue{Name: "orders", SingleActiveConsumer: true, Waits: delay.Default()}},
	"letters of its own":     {WorkQueue{Name: "orders"}, DeadLetterQueue{Name: "orders.dlq", MaxAge: time.Hour, Exchange: "letters"}},
	"lanes": {Exchange{Name: "shop", Kind: "direct"}, Lanes{Name: "sms", Lanes: []Lane{{Name: "vip"}, {Name: "bulk"}}, Waits: delay.Default(), OneDeadLetterQueue: true,
		Bindings: []Binding{{Exchange: "shop", RoutingKey: "sms"}}}},
	"delays": {Exchange{Name: "shop"}, Delays{Max: 3 * time.Second, Queues: []string{"of.others"}}, WorkQueue{Name: "orders", Bindings: []Binding{{Exchange: "shop", RoutingKey: "order.#"}}},
		Lanes{Name: "sms", Lanes: []Lane{{Name: "vip"}, {Name: "bulk"}}, Bindings: []Binding{{Exchange: "shop", RoutingKey: "sms"}}}},
	"a name like that of a part": {WorkQueue{Name: "orders.rehop.x.wait.1", Waits: delay.Default()}},
	"a name like that of lanes":  {WorkQueue{Name: "sms.lanes.x", Waits: delay.Default()}, Lanes{Name: "sms", Lanes: []Lane{{Name: "vip"}, {Name: "bulk"}}}},
	"a binding with headers": {Exchange{Name: "by", Kind: "headers"}, WorkQueue{Name: "orders", Bindings: []Binding{{Exchange: "by", Headers: amqp.Table{
		"x-match": "any", "a": int32(1), "b": []byte("c"), "d": true, "e": 1.5, "f": time.Unix(1000, 0), "g": amqp.Table{"h": int64(2)}}}}}},
}

// Each part of each wiring, damaged in each way, is named with its code, and nothing is
// named that is whole.
func TestDamages(t *testing.T) {
	tried, found := 0, 0
	for name, specs := range wirings {
		for _, v := range versions {
			plan, err := NewPlan(v, specs...)
			if err != nil {
				t.Fatal(name, v, err)
			}
			picture := shown(plan)
			whole, err := compare(v, specs, picture)
			if err != nil || len(whole.Differences)+len(whole.Unseen) > 0 || !whole.OK() {
				t.Errorf("%s on %s: nothing is damaged, and %v, %v", name, v, whole, err)
			}
			for _, d := range damages(plan) {
				tried++
				have := picture.clone()
				d.do(have)
				drift, err := compare(v, specs, have)
				if err != nil {
					t.Errorf("%s on %s, %s: %v", name, v, d.name, err)
				} else if !slices.ContainsFunc(drift.Differences, func(e Difference) bool { return e.Code == d.code && e.Kind == d.at.kind && e.Name == d.at.name }) {
					t.Errorf("%s on %s, %s: found\n%s\nwant %s", name, v, d.name, drift, d.code)
				} else if drift.OK() == d.stops {
					t.Errorf("%s on %s, %s: OK is %t\n%s", name, v, d.name, drift.OK(), drift)
				} else {
					found++
				}
			}
		}
	}
	t.Logf("%d damages were tried and %d found", tried, found)
}

// An exchange between a work queue and its waits leads to what its name says, whatever schedule or engine it was declared for. Any
// other binding of it takes messages out of their way, or round for ever, also where the plan has both of its ends.
func TestABindingThatTheRoleOfAnExchangeDoesNotHave(t *testing.T) {
	v, waits := versions[2], delay.Schedule{time.Minute, time.Hour}
	shop := Exchange{Name: "shop"}
	lanes := Lanes{Name: "l", Lanes: []Lane{{Name: "hi"}, {Name: "lo"}}, Waits: waits}
	together := lanes
	together.OneDeadLetterQueue = true
	a, b := WorkQueue{Name: "a", Waits: waits}, WorkQueue{Name: "b", Waits: waits}
	for _, tt := range []struct {
		specs    []Spec
		exchange string
		key      string
		args     amqp.Table
		to       string // a queue, or an exchange after "exchange "
		class    DriftClass
	}{
		{[]Spec{b}, "b.rehop.unrouted", "", nil, "b", DriftDiffers},
		{[]Spec{b}, "b.rehop.return", "", nil, "b.dlq", DriftDiffers},
		{[]Spec{b}, "b.rehop.return.spare", "", nil, "b.wait.1", DriftDiffers},
		{[]Spec{b}, "b.rehop.return", "", nil, "exchange b.rehop.dlx", DriftDiffers},
		{[]Spec{b}, "b.rehop.dlx", "", matchRej, "b", DriftDiffers},
		{[]Spec{b}, "b.rehop.dlx", "", matchAny, "exchange b.rehop.delay", DriftDiffers}, // also what came back too often
		{[]Spec{b}, "b.rehop.delay", "b@1", nil, "b.wait.1", DriftDiffers},
		{[]Spec{b}, "b.rehop.delay.first", "", nil, "b.wait.2", DriftDiffers},
		{[]Spec{b}, "b.rehop.delay.spare", "", matchAny, "b.wait.1", DriftDiffers},
		{[]Spec{shop, lanes}, "l.hi.rehop.unrouted", "", nil, "exchange shop", DriftDiffers},
		{[]Spec{lanes}, "l.hi.rehop.return", "", nil, "l.lo", DriftDiffers},
		{[]Spec{together}, "l.hi.rehop.unrouted", "", nil, "l.lo", DriftDiffers},
		{[]Spec{a}, "a.rehop.unrouted", "", nil, "a.wait.1", DriftDiffers},
		{[]Spec{a, b}, "a.rehop.unrouted", "", nil, "b", DriftDiffers},
		{[]Spec{a, b}, "a.rehop.unrouted", "", nil, "b.dlq", DriftDiffers},
		{[]Spec{WorkQueue{Name: "a"}}, "a.rehop.unrouted", "", nil, "a.wait.9", DriftDiffers}, // an extra queue

		// An exchange leads a message to a queue once, however many bindings lead it there.
		{[]Spec{b}, "b.rehop.unrouted", "x", nil, "b.dlq", DriftExtra},
		{[]Spec{b}, "b.rehop.unrouted", "", amqp.Table{"a": "b"}, "b.dlq", DriftExtra},
		{[]Spec{b}, "b.rehop.return.spare", "x", nil, "b", DriftExtra},
		{[]Spec{b}, "b.rehop.return", "x", matchAny, "b", DriftExtra},
		{[]Spec{b}, "b.rehop.dlx", "x", matchRej, "exchange b.rehop.delay", DriftExtra},
		{[]Spec{b}, "b.rehop.delay.first", "x", nil, "b.wait.1", DriftExtra},
		{[]Spec{b}, "b.rehop.delay", "b@1", amqp.Table{"a": "b"}, "b.wait.2", DriftExtra},
		{[]Spec{b}, "b.rehop.delay", "b@2", nil, "b.wait.2", DriftDiffers},

		{[]Spec{lanes}, "l.hi.rehop.unrouted", "", nil, "l.dlq", DriftExtra},
		{[]Spec{lanes, DeadLetterQueue{Name: "l.dlq"}}, "l.hi.rehop.unrouted", "", nil, "l.dlq", DriftExtra},
		{[]Spec{WorkQueue{Name: "a", Engine: EngineCarry, Waits: waits}}, "a.rehop.delay.spare", "", matchRej, "a.wait.1", DriftExtra}, // of the engine nack
	} {
		plan, err := NewPlan(v, tt.specs...)
		if err != nil {
			t.Fatal(err)
		}
		have, more := shown(plan), plannedBinding{Exchange: tt.exchange, RoutingKey: tt.key, Args: tt.args, Queue: tt.to}
		if name, isExchange := strings.CutPrefix(tt.to, "exchange "); isExchange {
			more.Queue, more.ToExchange = "", name
		} else if _, there := have.queues[tt.to]; !there {
			have.queues[tt.to] = management.Form{Name: tt.to, Durable: true, Queue: management.Queue{Type: "quorum"}}
		}
		have.bind(more)
		drift, err := compare(v, tt.specs, have)
		if err != nil || drift.OK() != (tt.class == DriftExtra) || !slices.ContainsFunc(drift.Differences, func(e Difference) bool {
			return e.Code == "binding-extra" && e.Class == tt.class && e.Name == more.describe()
		}) {
			t.Errorf("%s: %v\n%s\nwant it to be of class %s", more.describe(), err, drift, tt.class)
		}
	}
}

// Declare accepts any x-consumer-timeout of a work queue. One that is shorter than the specification counts on cuts handlers short, as such a
// policy does, unless consumers ask for another.
func TestAConsumerTimeoutThatAQueueWasDeclaredWith(t *testing.T) {
	v3, v4, v43 := versions[0], versions[1], versions[2]
	carried := WorkQueue{Name: "orders", Engine: EngineCarry, Waits: delay.Schedule{time.Minute}}
	for _, tt := range []struct {
		v      connection.Version
		spec   WorkQueue
		at     string
		has    string // in ms
		policy string // in ms, "" for none
		want   string
	}{
		{v43, WorkQueue{Name: "orders"}, "orders", "2000", "", "queue-arguments, overridden: no x-consumer-timeout below 30m0s, unless the broker's configuration has less; x-consumer-timeout 2s; " +
			"the broker takes a message away from a handler that has it for 2s, and not for 30m0s: it is handled again"},
		{v43, WorkQueue{Name: "orders"}, "orders", "1800000", "", ""},
		{v43, WorkQueue{Name: "orders", ConsumerTimeout: time.Minute}, "orders", "2000", "", ""}, // consumers ask
		{v43, WorkQueue{Name: "orders", Type: Classic}, "orders", "2000", "", ""},
		{v4, WorkQueue{Name: "orders"}, "orders", "2000", "", "queue-arguments, overridden: no x-consumer-timeout below 30m0s, unless the broker's configuration has less; x-consumer-timeout 2s; " +
			"the broker takes a message away from a handler that has it for 2s, and not for 30m0s: it is handled again"},
		{v4, WorkQueue{Name: "orders", Type: Classic, ConsumerTimeout: time.Hour}, "orders", "60000", "", "queue-arguments, overridden: no x-consumer-timeout below 1h0m0s; x-consumer-timeout 1m0s; " +
			"the broker takes a message away from a handler that has it for 1m0s, and not for 1h0m0s: it is handled again"},
		{v4, carried, "orders.wait.1", "2000", "", "queue-arguments, overridden: no x-consumer-timeout below 30m0s, unless the broker's configuration has less; x-consumer-timeout 2s; " +
			"the broker takes messages that wait away from their consumer every 2s, and not every 30m0s"},
		{v4, carried, "orders.dlq", "2000", "", ""},
		{v3, WorkQueue{Name: "orders"}, "orders", "2000", "", ""},
		// The specification says what a policy breaks, and not an argument that nobody plans.
		{v4, WorkQueue{Name: "orders"}, "orders", "7200000", "3600000", ""},
		{v43, WorkQueue{Name: "orders"}, "orders", "7200000", "2000", `policy, overridden: no consumer-timeout below 30m0s, unless the broker's configuration has less; policy "p" sets consumer-timeout to 2s; ` +
			"the broker takes a message away from a handler that has it for 2s, and not for 30m0s: it is handled again"},
	} {
		plan, err := NewPlan(tt.v, tt.spec)
		if err != nil {
			t.Fatal(err)
		}
		have := shown(plan)
		form := have.queues[tt.at]
		form.Arguments[consumerTimeoutArgument] = json.Number(tt.has)
		if tt.policy != "" {
			form.Policy, form.Definition = "p", map[string]any{consumerTimeoutKey: json.Number(tt.policy)}
		}
		have.queues[tt.at] = form
		drift, err := compare(tt.v, []Spec{tt.spec}, have)
		got := ""
		for _, e := range drift.Differences {
			got += fmt.Sprintf("%s, %s: %s; %s; %s", e.Code, e.Class, e.Expected, e.Found, e.Effect)
			if others := e.Code == "queue-arguments" && tt.at == "orders" && tt.v == v4; strings.HasSuffix(e.Remedy, bindAgain) != others {
				t.Errorf("%s of %v on %s: %s\nOthers have bound it, and it is deleted: %t", tt.at, tt.spec, tt.v, e.Remedy, others)
			}
		}
		if err != nil || got != tt.want {
			t.Errorf("%s of %v with %s and policy %q on %s: %v\n%s\nwant %s", tt.at, tt.spec, tt.has, tt.policy, tt.v, err, drift, tt.want)
		}
	}
}

// An argument that the broker does not compare is no difference: Declare returns no error, and nothing that was planned is otherwise.
func TestArgumentsThatTheBrokerDoesNotCompare(t *testing.T) {
	v3, v4, v43 := versions[0], versions[1], versions[2]
	for _, tt := range []struct {
		argument string
		value    any
		compared []connection.Version // measured
	}{
		{"x-team", "eu", nil},
		{"alternate-exchange", "shop", nil},
		{"x-quorum-target-group-size", json.Number("3"), nil},
		{"x-delayed-retry-type", "all", []connection.Version{v43}},
		{"x-delayed-retry-max", json.Number("1000"), []connection.Version{v43}},
		{"x-quorum-initial-group-size", json.Number("3"), []connection.Version{v3, v4, v43}},
		{"x-max-in-memory-bytes", json.Number("3000"), []connection.Version{v3, v4, v43}},
		{"x-queue-leader-locator", "balanced", []connection.Version{v3, v4, v43}},
		{"x-expires", json.Number("60000"), []connection.Version{v3, v4, v43}},
	} {
		for _, v := range versions {
			specs := []Spec{WorkQueue{Name: "orders", Waits: delay.Schedule{time.Minute}}}
			plan, err := NewPlan(v, specs...)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range plan.Queues() {
				have := shown(plan)
				have.queues[name].Arguments[tt.argument] = tt.value
				drift, err := compare(v, specs, have)
				if want := slices.Contains(tt.compared, v); err != nil || (len(drift.Differences) > 0) != want {
					t.Errorf("%s of %s on %s: %v\n%s\nit is compared: %t", tt.argument, name, v, err, drift, want)
				}
			}
		}
	}
}

// What is no damage: what Declare accepts, and what other processes use.
func TestNoDamage(t *testing.T) {
	v3, v4, v43 := versions[0], versions[1], versions[2]
	plan := func(v connection.Version, have observed, specs ...Spec) Plan { // as Declare would leave it
		t.Helper()
		p, conflicts, err := settled(v, specs, have)
		if err != nil || len(conflicts) > 0 {
			t.Fatal(err, conflicts)
		}
		return p
	}
	first := func(v connection.Version, specs ...Spec) Plan { return plan(v, observed{}, specs...) }
	old := WorkQueue{Name: "orders", Waits: delay.Schedule{time.Minute, time.Hour, 2 * time.Hour}}
	current := WorkQueue{Name: "orders", Waits: delay.Schedule{2 * time.Minute, time.Hour}}
	both := func(v connection.Version) observed {
		p := first(v, old)
		return shown(p, plan(v, shown(p), current))
	}
	apart := Lanes{Name: "sms", Lanes: []Lane{{Name: "vip"}, {Name: "bulk"}}}
	together := apart
	together.OneDeadLetterQueue = true
	shop := Exchange{Name: "shop"}
	headed := WorkQueue{Name: "orders", Bindings: []Binding{{Exchange: "shop", RoutingKey: "a"}, {Exchange: "shop", RoutingKey: "a"}}}
	for _, tt := range []struct {
		rule  string
		v     connection.Version
		have  observed
		specs []Spec
		extra []string // the names of what is extra; nothing else is found
	}{
		{"two schedules by carry, seen from the current one", v3, both(v3), []Spec{current}, []string{"orders.wait.1", "orders.wait.3"}},
		{"two schedules by carry, seen from the former one", v3, both(v3), []Spec{old}, []string{"orders.wait.1.2"}},
		{"two schedules by nack, seen from the current one", v43, both(v43), []Spec{current}, []string{"orders.wait.1", "orders.wait.3"}},
		{"two schedules by nack, seen from the former one", v43, both(v43), []Spec{old}, []string{"orders.wait.1.2m"}},
		{"queues of a 3.x broker after an upgrade", v4, shown(first(v3, WorkQueue{Name: "orders"})), []Spec{WorkQueue{Name: "orders"}}, nil},
		{"the waits of a 3.x broker after an upgrade", v43, shown(first(v3, old)), []Spec{old}, nil},
		{"an earlier binding of the user", v43, shown(first(v43, shop, headed, WorkQueue{Name: "x", Bindings: []Binding{{Exchange: "shop", RoutingKey: "b"}}})), []Spec{shop, headed}, nil},
		{"a binding of an earlier version", v43, shown(first(v43, shop, WorkQueue{Name: "orders", Bindings: []Binding{{Exchange: "shop", RoutingKey: "b"}}}), first(v43, shop, headed)), []Spec{shop, headed}, []string{"shop --b--> orders"}},
		{"exact delays of another call", v43, shown(first(v43, shop, headed, Delays{Max: time.Minute})), []Spec{shop, headed}, nil},
		{"exact delays of another call, to lanes", v43, shown(first(v43, wirings["delays"]...)), wirings["delays"][3:], nil},
		{"dead letters that lanes had in common", v43, shown(first(v43, together), first(v43, apart)), []Spec{apart}, []string{"sms.bulk.rehop.unrouted ----> sms.dlq", "sms.vip.rehop.unrouted ----> sms.dlq"}},
		{"dead letters that lanes had apart", v43, shown(first(v43, apart), first(v43, together)), []Spec{together}, []string{"sms.bulk.dlq", "sms.vip.dlq"}},
		{"a work queue that was a shard", v43, shown(first(v43, Shards{Name: "bills", Count: 1}), first(v43, WorkQueue{Name: "bills.00"})), []Spec{WorkQueue{Name: "bills.00"}}, []string{"bills.00.rehop.unrouted ----> bills.dlq"}},
		{"longer exact delays of another service", v43, shown(first(v43, Delays{Max: time.Hour})), []Spec{Delays{Max: time.Minute}}, nil},
		{"a consumer timeout that nobody plans", v4, shown(first(v4, WorkQueue{Name: "orders", ConsumerTimeout: time.Hour})), []Spec{WorkQueue{Name: "orders"}}, nil},
		{"a consumer timeout on 4.3, where consumers ask for another", v43, shown(first(v4, WorkQueue{Name: "orders", ConsumerTimeout: time.Hour})), []Spec{WorkQueue{Name: "orders", ConsumerTimeout: time.Minute}}, nil},
		{"no consumer timeout where one is planned", v4, shown(first(v4, WorkQueue{Name: "orders"})), []Spec{WorkQueue{Name: "orders", ConsumerTimeout: time.Hour}}, nil},
		{"a longer consumer timeout than is planned", v4, shown(first(v4, WorkQueue{Name: "orders", ConsumerTimeout: 2 * time.Hour})), []Spec{WorkQueue{Name: "orders", ConsumerTimeout: time.Hour}}, nil},
	} {
		tt.have.askedFor(first(tt.v, tt.specs...))
		drift, err := compare(tt.v, tt.specs, tt.have)
		var names []string
		for _, e := range drift.Differences {
			if e.Class == DriftExtra && e.Code != "exchange-extra" {
				names = append(names, e.Name)
			}
		}
		if err != nil || !drift.OK() || !slices.Equal(names, tt.extra) {
			t.Errorf("%s: %v\n%s\nwant %q extra", tt.rule, err, drift, tt.extra)
		}
	}
}

// A queue obeys one policy only, and a policy replaces one of the same name: so Declare and
// Verify advise the same one, which has all that a queue of 3.x lacks on 4.3.
func TestOnePolicyMendsAQueueOfAnOlderBroker(t *testing.T) {
	w := WorkQueue{Name: "orders", Waits: delay.Schedule{time.Minute}, SingleActiveConsumer: true}
	for _, tt := range []struct {
		was  connection.Version
		want string
	}{
		{versions[0], `'^orders(\.wait\.[0-9]+|\.dlq)?$' '{"dead-letter-strategy":"at-least-once","overflow":"reject-publish","delivery-limit":-1,"consumer-disconnected-timeout":5000}'`},
		{versions[1], `'^orders$' '{"consumer-disconnected-timeout":5000}'`},
	} {
		p, err := NewPlan(tt.was, w)
		if err != nil {
			t.Fatal(err)
		}
		have := shown(p)
		after, _, err := settled(versions[2], []Spec{w}, have)
		if err != nil {
			t.Fatal(err)
		}
		drift, err := compare(versions[2], []Spec{w}, have)
		if err != nil || len(drift.Differences) != 1 {
			t.Fatalf("%v\n%s", err, drift)
		}
		told := 0
		for _, advice := range append(after.Notes, drift.Differences[0].Remedy) {
			if _, policy, ok := strings.Cut(advice, `set_policy --apply-to queues 'rehop orders' `); ok {
				told++
				if policy != tt.want {
					t.Errorf("from %s: %s, want %s", tt.was, policy, tt.want)
				}
			}
		}
		if told < 2 {
			t.Errorf("from %s: %d policies are advised, want one by Declare and one by Verify", tt.was, told)
		}
	}
}

// Of argument and policy the lower says how long a queue is kept for a consumer whose node is gone. 60 s
// or more is told, by Verify and, as far as the argument says it, by Declare.
func TestAQueueIsHeldForAsLongAsArgumentAndPolicySay(t *testing.T) {
	const command = "while it lives, set a policy: rabbitmqctl set_policy --apply-to queues 'rehop orders' '^orders$' '{\"consumer-disconnected-timeout\":5000}'"
	const lower = "set consumer-disconnected-timeout to 5000 in this policy"
	for _, tt := range []struct {
		argument, policy string // in ms
		held             string // "" if that is no longer than it has to be
		found, remedy    string
	}{
		{"", "", "1m0s", "none", command},
		{"120000", "", "2m0s", "x-consumer-disconnected-timeout 120000", command},
		{"60000", "", "1m0s", "x-consumer-disconnected-timeout 60000", command},
		{"59999", "", "", "", ""},
		{"5000", "", "", "", ""},
		{"120000", "5000", "", "", ""},
		{"120000", "0", "", "", ""},
		{"5000", "120000", "", "", ""},
		{"", "120000", "2m0s", `policy "late" sets consumer-disconnected-timeout to 120000`, lower},
		{"180000", "120000", "2m0s", `policy "late" sets consumer-disconnected-timeout to 120000`, lower},
		{"", "5000", "", "", ""},
	} {
		specs := []Spec{WorkQueue{Name: "orders", SingleActiveConsumer: true}}
		plan, err := NewPlan(versions[2], specs...)
		if err != nil {
			t.Fatal(err)
		}
		have := shown(plan)
		form := have.queues["orders"]
		delete(form.Arguments, disconnectedTimeoutArgument)
		if tt.argument != "" {
			form.Arguments[disconnectedTimeoutArgument] = json.Number(tt.argument)
		}
		if tt.policy != "" {
			form.Policy, form.Definition = "late", map[string]any{disconnectedTimeoutKey: json.Number(tt.policy)}
		}
		have.queues["orders"] = form
		drift, err := compare(versions[2], specs, have)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case tt.held == "" && len(drift.Differences) == 0:
		case tt.held != "" && len(drift.Differences) == 1:
			if d := drift.Differences[0]; d.Code != "consumer-held" || d.Found != tt.found || !strings.HasSuffix(d.Effect, "delivers nothing for "+tt.held) || d.Remedy != tt.remedy {
				t.Errorf("argument %q, policy %q: %+v", tt.argument, tt.policy, d)
			}
		default:
			t.Errorf("argument %q, policy %q:\n%s", tt.argument, tt.policy, drift)
		}
		after, _, err := settled(versions[2], specs, have)
		if err != nil || strings.Contains(strings.Join(after.Notes, "\n"), "delivers nothing") != (tt.held != "") {
			t.Errorf("argument %q, policy %q: the notes of Declare are %q, %v", tt.argument, tt.policy, after.Notes, err)
		}
	}
}

// A defect of some versions of a series is none of the series.
func TestASeriesHasNoKnownDefect(t *testing.T) {
	specs := []Spec{WorkQueue{Name: "orders", SingleActiveConsumer: true}}
	for version, defects := range map[string]int{"4.3": 0, "4.3.0": 1, "4.3.5": 1, "4.3.6": 0, "4.2.0": 0} {
		v, err := connection.ParseVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := NewPlan(v, specs...)
		if err != nil {
			t.Fatal(err)
		}
		drift, err := compare(v, specs, shown(plan))
		if err != nil || len(drift.Differences) != defects {
			t.Errorf("broker %s: %v\n%s\nwant %d defects", version, err, drift, defects)
		}
	}
}

// What no part of a plan shows by itself.
func TestOtherDamage(t *testing.T) {
	v43 := versions[2]
	delayed := []Spec{Delays{Max: time.Second, Queues: []string{"full"}}}
	for _, tt := range []struct {
		rule   string
		v      connection.Version
		specs  []Spec
		change func(*observed)
		want   string // code, class, name
		ok     bool
	}{
		{"a defect of the broker", connection.Version{Major: 4, Minor: 3, Patch: 5}, []Spec{WorkQueue{Name: "orders", SingleActiveConsumer: true}}, func(*observed) {}, "broker-defect, broken broker, orders", true},
		{"a queue with a single active consumer from before 4.3", v43, []Spec{WorkQueue{Name: "orders", SingleActiveConsumer: true}}, func(o *observed) {
			delete(o.queues["orders"].Arguments, "x-consumer-disconnected-timeout")
		}, "consumer-held, weak, orders", true},
		{"a longer time for consumers whose node is gone", v43, []Spec{WorkQueue{Name: "orders", SingleActiveConsumer: true}}, func(o *observed) {
			o.queues["orders"].Arguments["x-consumer-disconnected-timeout"] = json.Number("120000")
		}, "consumer-held, weak, orders", true},
		{"a binding to all that is delayed", v43, []Spec{WorkQueue{Name: "orders"}}, func(o *observed) {
			o.bind(plannedBinding{Exchange: "rehop.delays.1s.deliver", RoutingKey: "#", Queue: "orders"})
		}, "binding-extra, extra, rehop.delays.1s.deliver --#--> orders", true},
		{"a node that leads more than its share", v43, []Spec{Shards{Name: "a.b", Count: 8}}, func(o *observed) {
			for i := range 8 {
				form := o.queues[fmt.Sprintf("a.b.%02d", i)]
				form.Leader, form.Online = []string{"one", "two", "one", "one", "one", "three", "one", "two"}[i], []string{"one", "two", "three"}
				o.queues[form.Name] = form
			}
		}, "leaders-together, weak, a.b.00", true},
		{"a target that may refuse", v43, delayed, func(o *observed) {
			o.queues["full"] = management.Form{Name: "full", Durable: true, Queue: management.Queue{Type: "classic", Arguments: map[string]any{"x-max-length": json.Number("5"), "x-overflow": "reject-publish"}}}
		}, "target-refuses, differs, full", false},
		{"no room for a missing queue", v43, []Spec{WorkQueue{Name: "orders"}}, func(o *observed) {
			limit := 7
			o.parts[part{"queue", "orders.dlq"}], o.allQueues, o.maxQueues = false, 7, &limit
			delete(o.queues, "orders.dlq")
		}, "queue-limit, overridden, /", false},
		{"a wait of no form", v43, []Spec{WorkQueue{Name: "orders", Waits: delay.Schedule{time.Minute}}}, func(o *observed) {
			plan, _, err := settled(v43, []Spec{WorkQueue{Name: "orders", Waits: delay.Schedule{time.Minute}}}, observed{queues: map[string]management.Form{
				"orders.wait.1": {Name: "orders.wait.1", Durable: true, Queue: management.Queue{Type: "classic"}}}})
			if err != nil {
				t.Fatal(err)
			}
			*o = shown(plan)
			o.queues["orders.wait.1"] = management.Form{Name: "orders.wait.1", Durable: true, Queue: management.Queue{Type: "classic"}}
		}, "queue-arguments, differs, orders.wait.1", false},
		{"a wait of no form, of a shard", v43, []Spec{Shards{Name: "bills", Count: 2, Waits: delay.Schedule{time.Minute}}}, func(o *observed) {
			o.queues["bills.00.wait.1"] = management.Form{Name: "bills.00.wait.1", Durable: true, Queue: management.Queue{Type: "classic"}}
		}, "queue-arguments, differs, bills.00.wait.1", false},
		{"a queue beside that of a wait, which Declare does not look at", v43, []Spec{WorkQueue{Name: "orders", Waits: delay.Schedule{time.Minute}}}, func(o *observed) {
			o.queues["orders.wait.1.9m"] = management.Form{Name: "orders.wait.1.9m", Durable: true, Queue: management.Queue{Type: "classic"}}
		}, "queue-extra, extra, orders.wait.1.9m", true},
		{"a queue with the name of a wait that the plan does not have", v43, []Spec{WorkQueue{Name: "orders", Waits: delay.Schedule{time.Minute}}}, func(o *observed) {
			o.queues["orders.wait.11"] = management.Form{Name: "orders.wait.11", Durable: true, Queue: management.Queue{Type: "quorum", Arguments: map[string]any{"x-queue-type": "quorum"}}}
		}, "queue-extra, extra, orders.wait.11", true},
		{"an exchange with a name like ours", v43, []Spec{WorkQueue{Name: "orders"}}, func(o *observed) {
			o.exchanges["orders.rehop.fremd"] = management.Exchange{Name: "orders.rehop.fremd", Type: "topic", Durable: true}
		}, "exchange-extra, extra, orders.rehop.fremd", true},
		{"a consumer timeout of dead letters, which 4.3 compares", v43, []Spec{WorkQueue{Name: "orders"}}, func(o *observed) {
			o.queues["orders.dlq"].Arguments["x-consumer-timeout"] = json.Number("90000")
		}, "queue-arguments, differs, orders.dlq", false},
		{"other lanes", v43, wirings["lanes"], func(o *observed) {
			p, err := NewPlan(v43, Lanes{Name: "sms", Lanes: []Lane{{Name: "vip"}, {Name: "normal"}, {Name: "bulk"}}})
			if err != nil {
				t.Fatal(err)
			}
			*o = shown(p)
		}, "exchange-arguments, differs, sms.lanes", false},
	} {
		plan, err := NewPlan(tt.v, tt.specs...)
		if err != nil {
			t.Fatal(err)
		}
		have := shown(plan)
		tt.change(&have)
		drift, err := compare(tt.v, tt.specs, have)
		if err != nil || drift.OK() != tt.ok || !slices.ContainsFunc(drift.Differences, func(e Difference) bool {
			return fmt.Sprintf("%s, %s, %s", e.Code, e.Class, e.Name) == tt.want
		}) {
			t.Errorf("%s: %v\n%s\nwant %s, OK %t", tt.rule, err, drift, tt.want, tt.ok)
		}
	}
}

// The advice is that of Declare.
func TestTheRemedyIsThatOfDeclare(t *testing.T) {
	v, w := versions[2], WorkQueue{Name: "orders"}
	classic, err := NewPlan(v, WorkQueue{Name: "orders", Type: Classic})
	if err != nil {
		t.Fatal(err)
	}
	drift, err := compare(v, []Spec{w}, shown(classic))
	if err != nil {
		t.Fatal(err)
	}
	q := w.planned(v)
	want := conflict("", &w, q, classic.queues[0].Args, nil).Advice
	if len(drift.Differences) != 1 || drift.Differences[0].Remedy != want || !strings.HasPrefix(drift.Differences[0].Expected, "x-queue-type quorum, ") {
		t.Errorf("got %v, want one with %s", drift, want)
	}
}

// The broker compares few arguments of a stream, so that one in the place of a wait seems to
// have those of the wait.
func TestAStreamIsNoWait(t *testing.T) {
	for _, v := range versions {
		w := WorkQueue{Name: "orders", Engine: EngineCarry, Waits: delay.Schedule{time.Minute}}
		q := w.carriedWait("orders.wait.1", 1, v)
		seems := maps.Clone(q.Args)
		seems["x-queue-type"] = "stream"
		delete(seems, "x-max-length")
		have := found{}
		if err := have.learn(&w, q, seems, nil); err == nil || len(have.carried) > 0 {
			t.Errorf("on %s a stream is accepted: %v, %v", v, err, have)
		}
	}
}

// What is accepted in any form is not what a conflict is about.
func TestAConflictIsNotAboutWhatIsAccepted(t *testing.T) {
	v, w, have := versions[2], WorkQueue{Name: "orders", SingleActiveConsumer: true}, found{}
	err := have.learn(&w, w.planned(v), WorkQueue{Name: "orders"}.arguments(v), nil)
	var c *ConflictError
	if !errors.As(err, &c) || c.Argument != "x-single-active-consumer" || c.Want != "true" || c.Have != "none" {
		t.Errorf("%v, want a conflict about x-single-active-consumer", err)
	}
}

// Only quorum queues have leaders that a command can move, and only more than a share and one are too many.
func TestLeadersThatAreNotTogether(t *testing.T) {
	for _, tt := range []struct {
		rule  string
		of    QueueType
		nodes []string // of each shard
		found bool
	}{
		{"most on one node", Quorum, []string{"one", "one", "one", "one", "one", "one", "one", "two"}, true},
		{"spread", Quorum, []string{"one", "two", "one", "two", "one", "two", "one", "two"}, false},
		{"one more than the share", Quorum, []string{"one", "two", "one", "one", "one", "two", "one", "two"}, false},
		{"one node", Quorum, []string{"one", "one", "one", "one", "one", "one", "one", "one"}, false},
		{"classic queues", Classic, []string{"one", "one", "one", "one", "one", "one", "one", "two"}, false},
	} {
		specs := []Spec{Shards{Name: "bills", Count: 8, Type: tt.of}}
		plan, err := NewPlan(versions[2], specs...)
		if err != nil {
			t.Fatal(err)
		}
		have := shown(plan)
		for i, node := range tt.nodes {
			form := have.queues[fmt.Sprintf("bills.%02d", i)]
			form.Leader, form.Online = node, tt.nodes
			have.queues[form.Name] = form
		}
		drift, err := compare(versions[2], specs, have)
		found := slices.ContainsFunc(drift.Differences, func(d Difference) bool { return d.Code == "leaders-together" })
		if err != nil || found != tt.found {
			t.Errorf("%s: %v\n%s", tt.rule, err, drift)
		}
	}
}

// What an entry says of a part is true of that part.
func TestDifferencesSayWhatIsKnown(t *testing.T) {
	v43, orders := versions[2], []Spec{WorkQueue{Name: "orders", Waits: delay.Schedule{5 * time.Second}}}
	rule := func(o *observed, lists string) { // as a file of definitions has it
		t.Helper()
		definitions, err := management.ParseDefinitions([]byte(`{"queues":[],"exchanges":[],"bindings":[],`+lists+`}`), "/")
		if err != nil {
			t.Fatal(err)
		}
		rules, err := definitions.Rules(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		o.rules = &rules
		for name, form := range o.queues {
			u, op, _ := rules.Of(form)
			form.Policy, form.OperatorPolicy, form.Definition = u.Name, op.Name, management.Together(u, op)
			o.queues[name] = form
		}
	}
	policies := func(o *observed, queue string, user, operator map[string]any) {
		t.Helper()
		lists, err := json.Marshal(map[string]any{
			"policies":   []any{map[string]any{"name": "p", "pattern": "^" + queue + "$", "apply-to": "queues", "definition": user}},
			"parameters": []any{map[string]any{"component": "operator_policy", "name": "op", "value": map[string]any{"pattern": "^" + queue + "$", "apply-to": "queues", "definition": operator}}}})
		if err != nil {
			t.Fatal(err)
		}
		rule(o, strings.TrimSuffix(strings.TrimPrefix(string(lists), "{"), "}"))
	}
	for _, tt := range []struct {
		rule   string
		specs  []Spec
		change func(o *observed, p Plan)
		want   []string // texts of one entry
		not    string
	}{
		{"the operator's entry", orders, func(o *observed, _ Plan) {
			policies(o, "orders", map[string]any{"dead-letter-routing-key": "x"}, map[string]any{"max-length": 5})
		}, []string{"(operator-policy)", `operator policy "op" sets max-length to 5`}, `policy "p" with`},
		{"the user's entry", orders, func(o *observed, _ Plan) {
			policies(o, "orders", map[string]any{"max-length": 5}, map[string]any{"max-length-bytes": 1 << 40})
		}, []string{"(policy)", `found:    policy "p" sets max-length to 5`}, `sets max-length to 5 with`},
		{"the lower one is the user's", orders, func(o *observed, _ Plan) {
			policies(o, "orders", map[string]any{"max-length": 5}, map[string]any{"max-length": 7})
		}, []string{"(policy)", `found:    policy "p" sets max-length to 5`}, "operator"},
		{"the lower one is the operator's", orders, func(o *observed, _ Plan) {
			policies(o, "orders", map[string]any{"max-length": 7}, map[string]any{"max-length": 5})
		}, []string{"(operator-policy)", `found:    operator policy "op" sets max-length to 5`}, "(policy)"},
		{"one policy of many queues is one entry, with a command that leaves all others to it", []Spec{WorkQueue{Name: "orders", Waits: delay.Schedule{5 * time.Second, time.Minute}}}, func(o *observed, _ Plan) {
			rule(o, `"policies":[{"vhost":"/","name":"cap","pattern":"^orders|shop","apply-to":"all","priority":3,"definition":{"max-length":5}}]`)
		}, []string{"! queues orders, orders.wait.1, orders.wait.2, orders.dlq (policy)\n    expected: max-length none\n    found:    policy \"cap\" sets max-length to 5\n    effect:   orders: when it is full, the queue refuses ",
			"\n              orders.wait.1, orders.wait.2: when it is full, the queue refuses failed messages, which halts the retries\n",
			`: rabbitmqctl set_policy --apply-to all --priority 3 cap '^(?!(?:orders|orders\.wait\.1|orders\.wait\.2|orders\.dlq)$)(?s:.*)(?:^orders|shop)' '{"max-length":5}'`,
			"\n1 overridden\n"}, "of a higher priority"},
		{"a policy that sets other entries too", orders, func(o *observed, _ Plan) {
			rule(o, `"policies":[{"vhost":"/","name":"cap","pattern":"s$","apply-to":"queues","priority":3,"definition":{"expires":60000,"max-length":5,"overflow":"reject-publish"}}]`)
		}, []string{"! queue orders (policy)\n    expected: expires none\n              max-length none\n", `: rabbitmqctl set_policy --apply-to queues --priority 4 'cap for orders without expires, max-length' '^orders$' '{"overflow":"reject-publish"}'`,
			"the management API shows the change up to 10 s late"}, ""},
		{"a name of a policy that is taken", orders, func(o *observed, _ Plan) {
			rule(o, `"policies":[{"vhost":"/","name":"cap","pattern":"s$","apply-to":"queues","priority":3,"definition":{"max-length":5,"overflow":"reject-publish"}},
				{"vhost":"/","name":"cap for orders without max-length","pattern":"^x$","apply-to":"queues","priority":3,"definition":{"max-length":5}}]`)
		}, []string{`--priority 4 'cap for orders without max-length 2' '^orders$' '{"overflow":"reject-publish"}'`}, ""},
		{"an operator policy in another virtual host", orders, func(o *observed, _ Plan) {
			rule(o, `"parameters":[{"vhost":"/","component":"operator_policy","name":"op","value":{"pattern":"","apply-to":"queues","priority":0,"definition":{"max-length":5}}}]`)
			o.vhost = "west"
		}, []string{"(operator-policy)", `: rabbitmqctl set_operator_policy --apply-to queues --priority 0 -p west op '^(?!(?:orders|`}, "(policy)"},
		{"a policy whose pattern the user may not see", orders, func(o *observed, _ Plan) {
			rule(o, `"policies":[{"vhost":"/","name":"cap","pattern":"^orders$","apply-to":"queues","priority":3,"definition":{"max-length":5}}]`)
			o.rules = nil
		}, []string{`remedy:   give policy "cap" a pattern that leaves out "orders", or take the entry away, which takes it from all queues of the policy`}, "rabbitmqctl"},
		{"a wait of another schedule, where this one has its own", orders, func(o *observed, _ Plan) {
			o.queues["orders.wait.1"].Arguments["x-message-ttl"] = json.Number("60000")
		}, []string{"effect:   messages in it come back when they have waited 1m0s, the wait of the schedule that sent them there; wait 1 of this plan is 5s, in queue \"orders.wait.1.5s\" beside it\n"}, "as usual"},
		{"a wait of another schedule, where this one has none", orders, func(o *observed, _ Plan) {
			form := o.queues["orders.wait.1"]
			form.Name, form.Arguments = "orders.wait.2", maps.Clone(form.Arguments)
			form.Arguments["x-message-ttl"], form.Arguments["x-dead-letter-routing-key"] = json.Number("60000"), "orders@2"
			o.queues["orders.wait.2"] = form
		}, []string{"effect:   messages in it come back when they have waited 1m0s, the wait of the schedule that sent them there; this plan has no wait 2, so it sends none there\n"}, "as usual"},
		{"a policy of a missing queue", orders, func(o *observed, p Plan) {
			o.remove(p, part{"queue", "orders.dlq"})
			policies(o, "orders.dlq", map[string]any{"expires": 10000}, map[string]any{})
		}, []string{"+ queue orders.dlq (queue-missing)", "! queue orders.dlq (policy)", `policy "p" sets expires to 10s`}, ""},
		{"a missing queue of others, whose form nobody knows", []Spec{WorkQueue{Name: "theirs", Existing: true}}, func(o *observed, p Plan) {
			o.remove(p, part{"queue", "theirs"})
			policies(o, "(?!x)theirs", map[string]any{"expires": 10000}, map[string]any{})
		}, []string{"+ queue theirs (queue-missing)"}, "its pattern has"},
		{"no policy of a missing queue", orders, func(o *observed, p Plan) {
			o.remove(p, part{"queue", "orders.dlq"})
			policies(o, "elsewhere", map[string]any{"expires": 10000}, map[string]any{})
		}, []string{"+ queue orders.dlq (queue-missing)"}, "expires"},
		{"both times of a wait", orders, func(o *observed, _ Plan) {
			policies(o, "orders.wait.1", map[string]any{"message-ttl": 2000}, map[string]any{})
		}, []string{"expected: no message-ttl below 5s", "messages leave the wait after 2s, and not after 5s"}, ""},
		{"a consumer timeout", orders, func(o *observed, _ Plan) {
			policies(o, "orders", map[string]any{"consumer-timeout": 10000}, map[string]any{})
		}, []string{"expected: no consumer-timeout below 30m0s, unless the broker's configuration has less", `policy "p" sets consumer-timeout to 10s`}, ""},
		{"a consumer timeout beside an argument that Declare refuses", orders, func(o *observed, _ Plan) {
			o.queues["orders"].Arguments["x-max-length"], o.queues["orders"].Arguments[consumerTimeoutArgument] = json.Number("5"), json.Number("2000")
		}, []string{"found:    x-max-length 5\n", "found:    x-consumer-timeout 2s\n"}, "x-consumer-timeout 2000"},
		{"the same where consumers ask for another one", []Spec{WorkQueue{Name: "orders", ConsumerTimeout: time.Hour}}, func(o *observed, _ Plan) {
			o.queues["orders"].Arguments["x-max-length"], o.queues["orders"].Arguments[consumerTimeoutArgument] = json.Number("5"), json.Number("2000")
		}, []string{"found:    x-max-length 5\n"}, "x-consumer-timeout"},
		{"a consumer timeout of a queue of others", orders, func(o *observed, _ Plan) {
			o.queues["orders"].Arguments[consumerTimeoutArgument] = json.Number("2000")
			delete(o.queues["orders"].Arguments, "x-dead-letter-exchange")
		}, []string{"found:    x-dead-letter-exchange none\n", "set WorkQueue.Existing"}, "x-consumer-timeout 2000"},
		{"a timeout for consumers whose node is gone, of a dead-letter queue", orders, func(o *observed, _ Plan) {
			o.queues["orders.dlq"].Arguments[disconnectedTimeoutArgument] = json.Number("2000")
		}, []string{"found:    x-consumer-disconnected-timeout 2000\n"}, ""},
		{"another key of an exchange that reads none", orders, func(o *observed, _ Plan) {
			o.bind(plannedBinding{Exchange: "orders.rehop.unrouted", RoutingKey: "x", Queue: "orders.dlq"})
		}, []string{"- binding", "effect:   none: it leads the same messages to the same place as a binding of the plan"}, "in two"},
		{"the same in the place of that of the plan", orders, func(o *observed, _ Plan) {
			o.unbind(plannedBinding{Exchange: "orders.rehop.unrouted", Queue: "orders.dlq"})
			o.bind(plannedBinding{Exchange: "orders.rehop.unrouted", RoutingKey: "x", Queue: "orders.dlq"})
		}, []string{"+ binding", "- binding", "effect:   messages take a way that is not in the plan"}, "effect:   none: it leads"},
		{"another key of an exchange that reads none, where the broker has one that reads it", orders, func(o *observed, _ Plan) {
			x := o.exchanges["orders.rehop.unrouted"]
			x.Type = "topic"
			o.exchanges[x.Name] = x
			o.bind(plannedBinding{Exchange: x.Name, RoutingKey: "x", Queue: "orders.dlq"})
		}, []string{"(exchange-kind)", "- binding", "effect:   messages take a way that is not in the plan"}, "effect:   none: it leads"},
		{"other arguments of a binding, where the broker has an exchange that reads only the key", orders, func(o *observed, _ Plan) {
			x := o.exchanges["orders.rehop.unrouted"]
			x.Type = "topic"
			o.exchanges[x.Name] = x
			o.bind(plannedBinding{Exchange: x.Name, Queue: "orders.dlq", Args: amqp.Table{"a": "b"}})
		}, []string{"(exchange-kind)", "- binding", "effect:   none: it leads the same messages to the same place as a binding of the plan"}, "effect:   messages take a way"},
		{"an exchange that nobody knows", orders, func(o *observed, _ Plan) {
			o.exchanges["orders.rehop.fremd"] = management.Exchange{Name: "orders.rehop.fremd", Type: "topic", Durable: true}
		}, []string{"effect:   not known", "topology.Delete leaves it"}, "topology.Delete deletes it"},
		{"the entrance of lanes", wirings["lanes"], func(o *observed, p Plan) { o.remove(p, part{"exchange", "sms.lanes"}) }, []string{"+ exchange sms.lanes", "NO_ROUTE"}, "between work queue"},
		{"a binding of the entrance", wirings["lanes"], func(o *observed, p Plan) {
			o.unbind(p.bindings[slices.IndexFunc(p.bindings, func(b plannedBinding) bool { return b.Exchange == "sms.lanes" && b.Queue == "sms.vip" })])
		}, []string{"go to the normal lane, and not to queue \"sms.vip\""}, "between work queue"},
		{"a binding of ours to a queue of others", orders, func(o *observed, _ Plan) {
			o.bind(plannedBinding{Exchange: "orders.rehop.return", RoutingKey: "a b~#", Queue: "other"})
		}, []string{"~ binding", "each is in two places", "curl -u USER -X DELETE http://HOST:15672/api/bindings/%2F/e/orders.rehop.return/q/other/a+b%257E%2523"}, ""},
		{"a binding of ours with arguments to a queue of others", orders, func(o *observed, _ Plan) {
			o.bind(plannedBinding{Exchange: "orders.rehop.return", Queue: "other", Args: amqp.Table{"a": "b"}})
		}, []string{"no version of rehop binds it, so unbind it: curl", "shows its properties_key", "/PROPERTIES_KEY deletes it (with each % of that key as %25)"}, ""},
		{"a queue with the name of a wait, in a form of none", orders, func(o *observed, _ Plan) {
			o.queues["orders.wait.11"] = management.Form{Name: "orders.wait.11", Durable: true, Queue: management.Queue{Type: "quorum"}}
		}, []string{"messages in it may not come back by themselves"}, ""},
		{"the limit", orders, func(o *observed, p Plan) {
			o.remove(p, part{"queue", "orders.dlq"})
			limit := 7
			o.allQueues, o.maxQueues = 7, &limit
		}, []string{`-X PUT -H 'content-type: application/json' -d '{"value":8}' http://HOST:15672/api/vhost-limits/%2F/max-queues`}, ""},
	} {
		plan, err := NewPlan(v43, tt.specs...)
		if err != nil {
			t.Fatal(err)
		}
		have := shown(plan)
		tt.change(&have, plan)
		drift, err := compare(v43, tt.specs, have)
		text := drift.String()
		for _, want := range tt.want {
			if err != nil || !strings.Contains(text, want) || tt.not != "" && strings.Contains(text, tt.not) {
				t.Errorf("%s: %v\n%s\nwant %q and not %q", tt.rule, err, text, want, tt.not)
			}
		}
	}
}

// The commands that empty a queue are for its virtual host, and take all of its letters.
func TestTheCommandsThatEmptyAQueueAreForItsVirtualHost(t *testing.T) {
	for _, tt := range []struct {
		q    plannedQueue
		want []string
	}{
		{plannedQueue{Name: "orders", Owner: "orders", role: workRole}, []string{`(rabbitmqctl list_queues -p west name messages: 0 for "orders" and each "orders.wait.*", twice, 10 s apart)`}},
		{plannedQueue{Name: "orders.dlq", Owner: "orders", role: letterRole}, []string{"(rehop dlq send --all --vhost=west orders.dlq)", "(rehop dlq drop --all --copy letters.jsonl --vhost=west orders.dlq)",
			"rehop dlq import --vhost=west orders.dlq letters.jsonl brings them back", `(rabbitmqctl list_queues -p west name messages: 0 for "orders.dlq", twice, 10 s apart)`}},
		{plannedQueue{Name: "rehop.delays.1s.00", role: levelRole}, []string{"(rabbitmqctl list_queues -p west name messages: 0 for each queue of the delays, twice, 10 s apart)"}},
	} {
		rest := tt.q.emptied("west")
		for _, want := range tt.want {
			_, after, found := strings.Cut(rest, want)
			if !found {
				t.Errorf("%s: %s\nwant %s", tt.q.Name, tt.q.emptied("west"), want)
				break
			}
			rest = after
		}
	}
}

// Queues and exchanges of others whose names are like those of our parts are not taken for ours.
func TestNamesLikeOurs(t *testing.T) {
	v, minute := versions[2], delay.Schedule{time.Minute}
	lanes := func(name string) Lanes { return Lanes{Name: name, Lanes: []Lane{{Name: "vip"}, {Name: "bulk"}}} }
	binding := func(b plannedBinding) func(observed) { return func(o observed) { o.bind(b) } }
	letters := plannedBinding{Exchange: "a.b.rehop.unrouted", Queue: "a.dlq"}
	for _, tt := range []struct {
		rule   string
		ours   []Spec
		theirs []Spec
		change func(observed)
		want   string // code, class and name of what is found, and the beginning of the remedy
		more   int    // differences beside it, which follow from it
	}{
		{"dead letters of a work queue that may have been a lane", []Spec{WorkQueue{Name: "a.b"}}, nil, binding(letters),
			"binding-extra, extra, " + letters.describe() + ": unless another program or an earlier version of this one", 0},
		{"dead letters of a work queue that lead to those of another one", []Spec{WorkQueue{Name: "ab"}}, nil, binding(plannedBinding{Exchange: "ab.rehop.unrouted", Queue: "a.dlq"}),
			"binding-extra, differs, ab.rehop.unrouted ----> a.dlq: no version of rehop binds it", 0},
		{"the same, where the other one is planned too", []Spec{WorkQueue{Name: "ab"}, WorkQueue{Name: "a"}}, nil, binding(plannedBinding{Exchange: "ab.rehop.unrouted", Queue: "a.dlq"}),
			"binding-extra, differs, ab.rehop.unrouted ----> a.dlq: no version of rehop binds it", 0},
		{"dead letters of a work queue that no lane of theirs has the name of", []Spec{WorkQueue{Name: "a.b.c"}}, nil, binding(plannedBinding{Exchange: "a.b.c.rehop.unrouted", Queue: "a.dlq"}),
			`binding-extra, differs, a.b.c.rehop.unrouted ----> a.dlq: rehop binds it only for lane "b.c" of Lanes "a", so unless work queue "a.b.c" was that lane once, unbind it: curl`, 0},
		{"dead letters of a lane with a dot in its name", []Spec{Lanes{Name: "a", Lanes: []Lane{{Name: "b.c"}, {Name: "bulk"}}}}, nil, binding(plannedBinding{Exchange: "a.b.c.rehop.unrouted", Queue: "a.dlq"}),
			"binding-extra, extra, a.b.c.rehop.unrouted ----> a.dlq: unless another program or an earlier version of this one", 0},
		{"dead letters of a lane with a dot in its name that lead to those of another one", []Spec{Lanes{Name: "a.b", Lanes: []Lane{{Name: "c"}, {Name: "bulk"}}}}, nil, binding(plannedBinding{Exchange: "a.b.c.rehop.unrouted", Queue: "a.dlq"}),
			`binding-extra, differs, a.b.c.rehop.unrouted ----> a.dlq: rehop binds it only for lane "b.c" of Lanes "a", so unless`, 0},
		{"a work queue named as a wait", []Spec{WorkQueue{Name: "a"}}, []Spec{WorkQueue{Name: "a.wait.1", Waits: minute}}, nil, "queue-extra, extra, a.wait.1: leave it", 0},
		{"a work queue named as a wait of the plan", []Spec{WorkQueue{Name: "a", Waits: minute}}, []Spec{WorkQueue{Name: "a.wait.1", Waits: minute}}, nil, "queue-extra, extra, a.wait.1: leave it", 0},
		{"a work queue named as a wait with its time", []Spec{WorkQueue{Name: "a", Waits: minute}}, []Spec{WorkQueue{Name: "a.wait.1.5m", Waits: minute}}, nil, "queue-extra, extra, a.wait.1.5m: leave it", 0},
		{"a work queue named almost as a wait", []Spec{WorkQueue{Name: "a", Waits: minute}}, []Spec{WorkQueue{Name: "a.wait.1.x", Waits: minute}}, nil, "", 0},
		{"a work queue named as a wait of too high a number", []Spec{WorkQueue{Name: "a", Waits: minute}}, []Spec{WorkQueue{Name: "a.wait.99", Waits: minute}}, nil, "", 0},
		{"a work queue named as dead letters", []Spec{WorkQueue{Name: "a"}}, []Spec{WorkQueue{Name: "a.dlq"}}, nil, "queue-arguments, differs, a.dlq: it is a work queue of its own", 2},
		{"a work queue named as a shard, beside a work queue", []Spec{WorkQueue{Name: "a"}}, []Spec{WorkQueue{Name: "a.00", Waits: minute}}, nil, "", 0},
		{"a work queue named as a lane, beside a work queue", []Spec{WorkQueue{Name: "a"}}, []Spec{WorkQueue{Name: "a.vip", Waits: minute}}, nil, "", 0},
		{"a work queue named as another lane", []Spec{lanes("a")}, []Spec{WorkQueue{Name: "a.fast", Waits: minute}}, nil, "", 0},
		{"a work queue named as a shard of a larger Count", []Spec{Shards{Name: "a", Count: 4}}, []Spec{WorkQueue{Name: "a.05", Waits: minute}}, nil, "queue-extra, extra, a.05: find out who declared it", 0},
		{"a queue of others named as a shard of a larger Count", []Spec{Shards{Name: "a", Count: 4}}, nil, func(o observed) {
			o.queues["a.05"] = management.Form{Name: "a.05", Durable: true, Queue: management.Queue{Type: "classic"}}
		}, "queue-extra, extra, a.05: find out who declared it", 0},
		{"a work queue named as a wait of a shard", []Spec{Shards{Name: "a", Count: 4}}, []Spec{WorkQueue{Name: "a.00.wait.1", Waits: minute}}, nil, "queue-extra, extra, a.00.wait.1: leave it", 0},
		{"a work queue named as a wait of a shard, and of the plan", []Spec{Shards{Name: "a", Count: 4, Waits: minute}}, []Spec{WorkQueue{Name: "a.00.wait.1", Waits: minute}}, nil, "queue-extra, extra, a.00.wait.1: leave it", 0},
		{"a work queue named as a wait of a shard of a larger Count", []Spec{Shards{Name: "a", Count: 4}}, []Spec{WorkQueue{Name: "a.05.wait.1", Waits: minute}}, nil, "queue-extra, extra, a.05.wait.1: leave it", 0},
		{"a work queue named as two letters behind shards", []Spec{Shards{Name: "a", Count: 4}}, []Spec{WorkQueue{Name: "a.eu", Waits: minute}}, nil, "", 0},
		{"a work queue named as an exchange", []Spec{WorkQueue{Name: "a"}}, []Spec{WorkQueue{Name: "a.rehop.x", Waits: minute}}, nil, "", 0},
		{"a work queue named as an exchange of lanes", []Spec{lanes("a")}, []Spec{WorkQueue{Name: "a.lanes.x", Waits: minute}}, nil, "", 0},
		{"lanes named as the exchange of lanes", []Spec{lanes("a")}, []Spec{lanes("a.lanes")}, nil, "", 0},
		{"an exchange of the user named as that of lanes", []Spec{Exchange{Name: "a.lanes"}}, nil, func(o observed) {
			o.exchanges["a.lanes"] = management.Exchange{Name: "a.lanes", Type: "topic", Durable: true, Arguments: map[string]any{"alternate-exchange": "x"}}
		}, "exchange-arguments, differs, a.lanes: stop what publishes to it", 0},
		{"a binding from an exchange named as one of delays to lanes", []Spec{WorkQueue{Name: "a"}}, nil, binding(plannedBinding{Exchange: "x.lanes.due.y", Queue: "a"}),
			"binding-extra, extra, x.lanes.due.y ----> a: unless another program", 0},
	} {
		var plans []Plan
		if tt.theirs != nil {
			theirs, err := NewPlan(v, tt.theirs...)
			if err != nil {
				t.Fatal(err)
			}
			plans = append(plans, theirs)
		}
		ours, _, err := settled(v, tt.ours, shown(plans...))
		if err != nil {
			t.Fatal(err)
		}
		have := shown(append([]Plan{ours}, plans...)...) // theirs were there first
		if tt.change != nil {
			tt.change(have)
		}
		have.askedFor(ours)
		drift, err := compare(v, tt.ours, have)
		var found []string
		for _, e := range drift.Differences {
			found = append(found, fmt.Sprintf("%s, %s, %s: %s", e.Code, e.Class, e.Name, e.Remedy))
		}
		switch {
		case err != nil,
			tt.want == "" && len(found) > 0,
			tt.want != "" && (len(found) != 1+tt.more || !strings.HasPrefix(found[0], tt.want)):
			t.Errorf("%s: %v\n%s\nwant %q", tt.rule, err, drift, tt.want)
		}
	}
}

// What nothing of a plan uses is emptied, with the words of a conflict, before it is deleted; so is what a wiring exchange leads.
func TestWhatIsDeletedIsEmptiedFirst(t *testing.T) {
	minute := delay.Schedule{time.Minute}
	extra := func(name string, args map[string]any) func(observed) {
		return func(o observed) {
			o.queues[name] = management.Form{Name: name, Durable: true, Queue: management.Queue{Type: "quorum", Arguments: args}}
		}
	}
	const waits = `stop what publishes to "orders" and to the exchanges that it is bound to, let its consumers empty it and its waits, because what still waits becomes a dead letter ` +
		`(rabbitmqctl list_queues name messages: 0 for "orders" and each "orders.wait.*", twice, 10 s apart), and stop them`
	w := WorkQueue{Name: "orders", Waits: minute}
	of := func(former Spec, names ...string) func(observed) {
		plan, err := NewPlan(versions[2], former)
		if err != nil {
			t.Fatal(err)
		}
		return func(o observed) {
			for _, name := range names {
				o.queues[name] = shown(plan).queues[name]
			}
		}
	}
	const empty = `nothing has to stop: when every consumer has been started since this schedule was declared, nothing new comes to it; ` +
		`wait until it is empty (rabbitmqctl list_queues name messages: 0 for "%s", twice, 10 s apart); then `
	carried := func(waits ...time.Duration) WorkQueue {
		return WorkQueue{Name: "orders", Engine: EngineCarry, Waits: waits}
	}
	moved := func(name, to string) string {
		return fmt.Sprintf(`bring its messages back (rehop dlq move --all --to %s %s), which are attempted at once; if the command refuses, it says what to do instead; `+
			`wait until it is empty (rabbitmqctl list_queues name messages: 0 for "%s", twice, 10 s apart); then `, to, name, name)
	}
	second := func(o observed) { // by carry, of another time than the first
		q := carried(time.Hour).carriedWait("orders.wait.1.2", 1, versions[2])
		o.queues[q.Name] = management.Form{Name: q.Name, Durable: true, Queue: management.Queue{Type: "quorum", Arguments: asAnswer(q.Args)}}
	}
	for _, tt := range []struct {
		rule   string
		spec   Spec
		change func(observed)
		at     part
		remedy string
	}{
		{"a dead-letter queue in another form, whose bindings go with it", w, func(o observed) {
			o.queues["orders.dlq"].Arguments["x-max-length"] = json.Number("5")
		}, part{"queue", "orders.dlq"}, "; then delete it (rabbitmqctl delete_queue orders.dlq) and declare again, which makes the bindings of the specifications, then bind it again where others had bound it"},
		{"a shard of a larger Count", Shards{Name: "bills", Count: 2}, of(Shards{Name: "bills", Count: 3}, "bills.02"), part{"queue", "bills.02"},
			`consume the larger Count until the shards from number 2 on and their waits are empty: stop what publishes to "bills.02" and to the exchanges that it is bound to, let its consumers empty it and its waits, because what still waits becomes a dead letter ` +
				`(rabbitmqctl list_queues name messages: 0 for "bills.02" and each "bills.02.wait.*", twice, 10 s apart), and stop them, when no message is delayed to it by its name any more; then rabbitmqctl delete_queue bills.02`},
		{"a wait of a shard of a larger Count", Shards{Name: "bills", Count: 2}, of(Shards{Name: "bills", Count: 3, Waits: minute}, "bills.02", "bills.02.wait.1"), part{"queue", "bills.02.wait.1"},
			`(rabbitmqctl list_queues name messages: 0 for "bills.02" and each "bills.02.wait.*", twice, 10 s apart), and stop them, when no message is delayed to it by its name any more; then rabbitmqctl delete_queue bills.02.wait.1`},
		{"a wait of no form, of a shard of a larger Count", Shards{Name: "bills", Count: 2, Waits: minute}, func(o observed) {
			of(Shards{Name: "bills", Count: 3}, "bills.02")(o)
			extra("bills.02.wait.1", nil)(o)
		}, part{"queue", "bills.02.wait.1"},
			"find out who declared it; if nobody else uses it, " + moved("bills.02.wait.1", "bills.02.rehop.return/bills.02@1") + "rabbitmqctl delete_queue bills.02.wait.1"},
		{"a wait of no form, of a shard", Shards{Name: "bills", Count: 2, Waits: minute}, extra("bills.00.wait.1", nil), part{"queue", "bills.00.wait.1"},
			"find out who declared it; declare, and start the consumers again, which then use that other queue; " + moved("bills.00.wait.1", "bills.00.rehop.return/bills.00@1") + "rabbitmqctl delete_queue bills.00.wait.1 and declare again"},
		{"a wait of an earlier schedule, of a shard", Shards{Name: "bills", Count: 2, Waits: minute}, of(Shards{Name: "bills", Count: 2, Waits: delay.Schedule{time.Minute, time.Hour}}, "bills.00.wait.2"), part{"queue", "bills.00.wait.2"},
			fmt.Sprintf(empty, "bills.00.wait.2") + "rabbitmqctl delete_queue bills.00.wait.2; or let topology.DeleteWaits do it"},
		{"a wait of an earlier schedule", w, of(WorkQueue{Name: "orders", Waits: delay.Schedule{time.Minute, time.Hour}}, "orders.wait.2"), part{"queue", "orders.wait.2"},
			fmt.Sprintf(empty, "orders.wait.2") + "rabbitmqctl delete_queue orders.wait.2; or let topology.DeleteWaits do it"},
		{"a wait of an earlier schedule in the place of one of the plan", w, of(WorkQueue{Name: "orders", Waits: delay.Schedule{time.Hour}}, "orders.wait.1"), part{"queue", "orders.wait.1"},
			fmt.Sprintf(empty, "orders.wait.1") + "rabbitmqctl delete_queue orders.wait.1 and declare again, which uses its name again; or let topology.DeleteWaits do it"},
		{"a carried wait, by which consumers find another one", carried(time.Minute), of(carried(time.Minute, time.Hour, time.Hour), "orders.wait.2", "orders.wait.3"), part{"queue", "orders.wait.2"},
			fmt.Sprintf(empty, "orders.wait.2") + `delete "orders.wait.3" first, which consumers find only while this one is there; then rabbitmqctl delete_queue orders.wait.2, and start the consumers again, whose Health misses it; or let topology.DeleteWaits do it`},
		{"the last carried wait", carried(time.Minute), of(carried(time.Minute, time.Hour, time.Hour), "orders.wait.2", "orders.wait.3"), part{"queue", "orders.wait.3"},
			fmt.Sprintf(empty, "orders.wait.3") + "rabbitmqctl delete_queue orders.wait.3, and start the consumers again, whose Health misses it; or let topology.DeleteWaits do it"},
		{"a carried wait of another time", carried(time.Minute), second, part{"queue", "orders.wait.1.2"},
			fmt.Sprintf(empty, "orders.wait.1.2") + "rabbitmqctl delete_queue orders.wait.1.2, and start the consumers again, whose Health misses it; or let topology.DeleteWaits do it"},
		{"a carried wait, by which consumers find the one of the plan", carried(time.Hour), func(o observed) {
			of(carried(time.Minute), "orders.wait.1")(o)
			second(o)
		}, part{"queue", "orders.wait.1"},
			`leave it: consumers find "orders.wait.1.2", which is used in its place, only while it is there; to have one queue again, ` + waits +
				"; then rabbitmqctl delete_queue orders.wait.1.2 and rabbitmqctl delete_queue orders.wait.1 and declare again"},
		{"a carried wait that no consumer carries", w, of(carried(time.Minute, time.Hour), "orders.wait.2"), part{"queue", "orders.wait.2"},
			"if none does, " + moved("orders.wait.2", "orders.rehop.return/orders@2") + "rabbitmqctl delete_queue orders.wait.2"},
		{"a carried wait that no consumer carries, in the place of one of the plan", WorkQueue{Name: "orders", Waits: delay.Schedule{time.Minute, time.Hour}}, of(carried(time.Minute, time.Hour), "orders.wait.2"), part{"queue", "orders.wait.2"},
			`stop the consumers of "orders"; ` + moved("orders.wait.2", "orders.rehop.return/orders@2") + "rabbitmqctl delete_queue orders.wait.2 and declare again"},
		{"a carried wait of a schedule that has none now", WorkQueue{Name: "orders"}, of(carried(time.Minute, time.Hour), "orders.wait.1", "orders.wait.2"), part{"queue", "orders.wait.2"},
			fmt.Sprintf(empty, "orders.wait.2") + "rabbitmqctl delete_queue orders.wait.2, and start the consumers again, whose Health misses it; or let topology.DeleteWaits do it"},
		{"the same without the first, by which consumers find it", WorkQueue{Name: "orders"}, of(carried(time.Minute, time.Hour), "orders.wait.2"), part{"queue", "orders.wait.2"},
			"if none does, " + moved("orders.wait.2", "orders.rehop.return/orders@2") + "rabbitmqctl delete_queue orders.wait.2"},
		{"a wait of no form", w, extra("orders.wait.1", map[string]any{"x-max-length": json.Number("5")}), part{"queue", "orders.wait.1"},
			"find out who declared it; declare, and start the consumers again, which then use that other queue; " + moved("orders.wait.1", "orders.rehop.return/orders@1") + "rabbitmqctl delete_queue orders.wait.1 and declare again"},
		{"a queue beside a wait, of no form", w, extra("orders.wait.1.2m", map[string]any{"x-max-length": json.Number("5")}), part{"queue", "orders.wait.1.2m"},
			"find out who declared it; if nobody else uses it, " + moved("orders.wait.1.2m", "orders.rehop.return/orders@1") + "rabbitmqctl delete_queue orders.wait.1.2m"},
		{"one of a name with a slash", WorkQueue{Name: "a/b"}, extra("a/b.wait.2", nil), part{"queue", "a/b.wait.2"},
			"find out who declared it; if nobody else uses it, " + moved("a/b.wait.2", "/a/b") + "rabbitmqctl delete_queue a/b.wait.2"},
		{"a wait of no form by carry", carried(time.Minute), extra("orders.wait.1", nil), part{"queue", "orders.wait.1"},
			`it does not fit the other waits of work queue "orders": stop the consumers of "orders"; ` + moved("orders.wait.1", "orders.rehop.return/orders@1") + "rabbitmqctl delete_queue orders.wait.1 and declare again"},
		{"a stream with the name of a wait", w, func(o observed) {
			o.queues["orders.wait.2"] = management.Form{Name: "orders.wait.2", Durable: true, Queue: management.Queue{Type: "stream"}}
		}, part{"queue", "orders.wait.2"}, "if nobody else uses it, wait until nobody needs its messages any more, because no reader takes one out; then rabbitmqctl delete_queue orders.wait.2"},
		{"dead letters of an earlier form", Shards{Name: "bills", Count: 2}, extra("bills.00.dlq", nil), part{"queue", "bills.00.dlq"},
			"(rehop dlq send --all bills.00.dlq), or take them out (rehop dlq drop --all --copy letters.jsonl bills.00.dlq) until rehop dlq import bills.00.dlq letters.jsonl brings them back; " +
				`wait until it is empty (rabbitmqctl list_queues name messages: 0 for "bills.00.dlq", twice, 10 s apart); then rabbitmqctl delete_queue bills.00.dlq`},
		{"a work queue in the place of dead letters", w, of(WorkQueue{Name: "orders.dlq"}, "orders.dlq"), part{"queue", "orders.dlq"},
			"give one of the two work queues another name; or, if nothing uses it any more, stop the consumers whose dead letters come here, and those of this queue; send its letters back (rehop dlq send --all orders.dlq), " +
				"or take them out (rehop dlq drop --all --copy letters.jsonl orders.dlq) until rehop dlq import orders.dlq letters.jsonl brings them back; " +
				`wait until it is empty (rabbitmqctl list_queues name messages: 0 for "orders.dlq", twice, 10 s apart); then delete it (rabbitmqctl delete_queue orders.dlq) and declare again`},
		{"a work queue in the place of a wait by carry", carried(time.Minute), of(WorkQueue{Name: "orders.wait.1"}, "orders.wait.1"), part{"queue", "orders.wait.1"},
			`give one of the two work queues another name; or, if nothing uses it any more, stop what publishes to "orders.wait.1" and to the exchanges that it is bound to, let its consumers empty it and its waits, because what still waits becomes a dead letter ` +
				`(rabbitmqctl list_queues name messages: 0 for "orders.wait.1" and each "orders.wait.1.wait.*", twice, 10 s apart), and stop them, when no message is delayed to it by its name any more; ` +
				"then delete it (rabbitmqctl delete_queue orders.wait.1) and declare again"},
		{"an exchange between a work queue and its waits", w, func(o observed) {
			o.exchanges["orders.rehop.return"] = management.Exchange{Name: "orders.rehop.return", Type: "fanout", Durable: true, Arguments: o.exchanges["orders.rehop.return"].Arguments}
		}, part{"exchange", "orders.rehop.return"}, waits + ", when no message is delayed to it by its name any more; then delete it (curl -u USER -X DELETE http://HOST:15672/api/exchanges/%2F/orders.rehop.return) and declare again"},
	} {
		plan, err := NewPlan(versions[2], tt.spec)
		if err != nil {
			t.Fatal(err)
		}
		have := shown(plan)
		tt.change(have)
		drift, err := compare(versions[2], []Spec{tt.spec}, have)
		if err != nil || !slices.ContainsFunc(drift.Differences, func(d Difference) bool {
			return (part{d.Kind, d.Name}) == tt.at && strings.HasSuffix(d.Remedy, tt.remedy)
		}) {
			t.Errorf("%s: %v\n%s\nwant %s", tt.rule, err, drift, tt.remedy)
		}
	}
}
