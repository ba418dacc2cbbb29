package topology_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
)

// The tables of docs/permissions.md and the conformance tests have the roles. These are the expressions.
func TestPermissions(t *testing.T) {
	const declare, consume, publish = topology.RoleDeclare, topology.RoleConsume, topology.RolePublish
	work := func(name string) topology.WorkQueue {
		return topology.WorkQueue{Name: name, Waits: delay.Schedule{time.Minute}}
	}
	carried := work("orders")
	carried.Engine = topology.EngineCarry
	bound := topology.WorkQueue{Name: "orders", Bindings: []topology.Binding{{Exchange: "shop"}}}
	shards := topology.Shards{Name: "bills", Count: 2, Waits: delay.Schedule{time.Minute}, SingleActiveConsumer: true}
	lanes := topology.Lanes{Name: "sms", Lanes: []topology.Lane{{Name: "vip"}, {Name: "bulk"}}}
	all := []topology.Role{declare, consume, publish}
	for _, tt := range []struct {
		rule  string
		specs []topology.Spec
		roles []topology.Role
		want  topology.Permissions
	}{
		{"no role: nothing", []topology.Spec{work("orders")}, nil, topology.Permissions{"^$", "^$", "^$"}},
		{"an unknown role: nothing", []topology.Spec{work("orders")}, []topology.Role{"admin"}, topology.Permissions{"^$", "^$", "^$"}},
		{"names are quoted", []topology.Spec{topology.Exchange{Name: `a.b/c d.*|é客(x)$'"\`}}, []topology.Role{declare, publish},
			topology.Permissions{`^a\.b/c d\.\*\|é客\(x\)\$'"\\$`, `^a\.b/c d\.\*\|é客\(x\)\$'"\\$`, "^$"}},
		{"names are sorted, each once", []topology.Spec{topology.Exchange{Name: "z"}, topology.Exchange{Name: "a"}}, []topology.Role{publish, publish},
			topology.Permissions{"^$", "^(a|z)$", "^$"}},
		{"a carrier may read the waits, and write to the exchange behind them", []topology.Spec{carried}, []topology.Role{consume},
			topology.Permissions{"^$", `^(amq\.default|orders\.rehop\.return)$`, `^(orders|orders\.wait\..*)$`}},
		{"a carrier without waits may read those of an earlier schedule", []topology.Spec{topology.WorkQueue{Name: "orders", Engine: topology.EngineCarry}}, []topology.Role{consume},
			topology.Permissions{"^$", `^(amq\.default|orders\.rehop\.return)$`, `^(orders|orders\.wait\..*)$`}},
		{"an exchange of the user that is named like a part is in no family", []topology.Spec{carried, topology.Exchange{Name: "orders.wait.x"}, topology.Exchange{Name: "orders.rehop.x"}}, []topology.Role{publish},
			topology.Permissions{"^$", `^(amq\.default|orders\.rehop\.x|orders\.wait\.x)$`, "^$"}},
		{"a family takes in its names", []topology.Spec{carried}, all,
			topology.Permissions{`^(orders|orders\.dlq|orders\.rehop\..*|orders\.wait\..*)$`, `^(amq\.default|orders|orders\.dlq|orders\.rehop\..*)$`, `^(orders|orders\.rehop\..*|orders\.wait\..*)$`}},
		{"shards: of any number", []topology.Spec{shards}, []topology.Role{consume}, topology.Permissions{
			`^(bills\.[0-9][0-9]|bills\.[0-9][0-9]\.rehop\..*|bills\.[0-9][0-9]\.wait\..*|bills\.dlq|bills\.members\..*|bills\.seat\..*)$`,
			`^(amq\.default|bills\.[0-9][0-9]|bills\.[0-9][0-9]\.rehop\..*|bills\.[0-9][0-9]\.wait\..*|bills\.dlq)$`,
			`^(bills\.[0-9][0-9]|bills\.[0-9][0-9]\.rehop\..*|bills\.[0-9][0-9]\.wait\..*|bills\.members\..*|bills\.seat\..*)$`}},
		{"publishing to shards: the broker asks for the default exchange, and for no queue", []topology.Spec{shards}, []topology.Role{publish},
			topology.Permissions{"^$", `^amq\.default$`, "^$"}},
		{"publishing to shards that are delayed to: the levels, and the shards that they lead to", []topology.Spec{shards, topology.Delays{}}, []topology.Role{publish}, topology.Permissions{
			`^rehop\.delays\.1s\..*$`, `^(amq\.default|bills\.[0-9][0-9]|rehop\.delays\.1s\..*)$`, `^rehop\.delays\.1s\..*$`}},
		{"one shard alone", []topology.Spec{shards.WorkQueues()[1]}, []topology.Role{consume}, topology.Permissions{
			`^(bills\.01|bills\.01\.rehop\..*|bills\.01\.wait\..*|bills\.dlq)$`,
			`^(amq\.default|bills\.01|bills\.01\.rehop\..*|bills\.01\.wait\..*|bills\.dlq)$`,
			`^(bills\.01|bills\.01\.rehop\..*|bills\.01\.wait\..*)$`}},
		{"lanes without waits: nothing to look at", []topology.Spec{lanes}, []topology.Role{consume},
			topology.Permissions{"^$", `^(amq\.default|sms\.bulk\.rehop\.return|sms\.vip\.rehop\.return)$`, `^(sms\.bulk|sms\.vip)$`}},
		{"the dead-letter queue of a work queue is not consumed", []topology.Spec{carried, topology.DeadLetterQueue{Name: "orders.dlq", MaxAge: time.Hour}}, []topology.Role{consume},
			topology.Permissions{"^$", `^(amq\.default|orders\.rehop\.return)$`, `^(orders|orders\.wait\..*)$`}},
		{"the stranded queue is not consumed beside its delays", []topology.Spec{carried, topology.Delays{}}, []topology.Role{publish}, topology.Permissions{
			`^rehop\.delays\.1s\..*$`, `^(amq\.default|orders|rehop\.delays\.1s\..*)$`, `^rehop\.delays\.1s\..*$`}},
		{"delays to queues that are named in them", []topology.Spec{topology.Exchange{Name: "shop"}, bound, topology.DeadLetterQueue{Name: "kept"}, topology.Delays{Queues: []string{"orders", "kept", "theirs"}}}, []topology.Role{publish}, topology.Permissions{
			`^(rehop\.delays\.1s\..*|shop)$`, `^(kept|orders|rehop\.delays\.1s\..*|shop|theirs)$`, `^rehop\.delays\.1s\..*$`}},
		{"the stranded queue alone is", []topology.Spec{topology.Delays{}.Stranded()}, []topology.Role{consume},
			topology.Permissions{"^$", `^amq\.default$`, `^rehop\.delays\.1s\.stranded$`}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			plan, err := topology.NewPlan(connection.Version{Major: 4, Minor: 3}, tt.specs...)
			if err != nil {
				t.Fatal(err)
			}
			if got := plan.Permissions(tt.roles...); got != tt.want {
				t.Errorf("%+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestPermissionsOfARollOut(t *testing.T) {
	permissions := func(w topology.WorkQueue) topology.Permissions {
		plan, err := topology.NewPlan(connection.Version{Major: 4, Minor: 3}, w)
		if err != nil {
			t.Fatal(err)
		}
		return plan.Permissions(topology.RoleDeclare, topology.RoleConsume)
	}
	before := permissions(topology.WorkQueue{Name: "orders", Waits: delay.Schedule{time.Minute}})
	after := permissions(topology.WorkQueue{Name: "orders", Waits: delay.Schedule{time.Hour, 2 * time.Hour}})
	if before != after {
		t.Errorf("%+v, and with other waits %+v", before, after)
	}
	configure := regexp.MustCompile(before.Configure)
	for name, want := range map[string]bool{
		"orders": true, "orders.dlq": true, "orders.wait.2": true, "orders.wait.1.2m": true, "orders.rehop.dlx": true,
		"orders.eu": false, "orders2": false, "my.orders": false, "ordersXwait.1": false, "orders.dlq.wait.1": false,
	} {
		if got := configure.MatchString(name); got != want {
			t.Errorf("%s matches %s: %v, want %v", before.Configure, name, got, want)
		}
	}
}

func TestPermissionsOfSeveralPlans(t *testing.T) {
	permissions := func(name string) topology.Permissions {
		plan, err := topology.NewPlan(connection.Version{Major: 4, Minor: 3}, topology.Exchange{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		return plan.Permissions(topology.RolePublish)
	}
	names := []string{"shop", `a|b`, `(c|d)`, `e\`, "|", ")", "("}
	both := topology.Permissions{"^$", "^$", "^$"}
	for _, name := range names {
		both = both.And(permissions(name)).And(both)
	}
	if want := (topology.Permissions{"^$", `^(\(|\(c\|d\)|\)|\||a\|b|e\\|shop)$`, "^$"}); both != want {
		t.Errorf("%+v, want %+v", both, want)
	}
	for _, name := range names {
		if !regexp.MustCompile(both.Write).MatchString(name) {
			t.Errorf("%s does not match %q", both.Write, name)
		}
	}
	if got := both.And(topology.Permissions{}); got != both {
		t.Errorf("and the zero value is %+v", got)
	}
}
