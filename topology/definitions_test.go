package topology

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
)

func TestVerifyDefinitionsRefuses(t *testing.T) {
	file := func(version string) string {
		return `{"rabbitmq_version":"` + version + `","vhosts":[{"name":"/"}],"queues":[],"exchanges":[],"bindings":[]}`
	}
	good := WorkQueue{Name: "orders"}
	for _, tt := range []struct {
		rule, file, vhost string
		spec              Spec
		want              string
	}{
		{"a file that is none", "<html>", "/", good, "topology: definitions: it is no file of definitions: invalid character '<'"},
		{"a virtual host that it does not have", file("4.3.6"), "shop", good, `topology: definitions: it has no virtual host "shop"`},
		{"a version that is none", file("new"), "/", good, `topology: definitions: rabbitmq_version is "new", want one such as 4.3.6`},
		{"no version", strings.Replace(file("x"), "rabbitmq_version", "version", 1), "/", good, `rabbitmq_version is ""`},
		{"faults of the specifications", file("4.3.6"), "/", WorkQueue{}, "Name is empty"},
	} {
		_, err := VerifyDefinitions([]byte(tt.file), tt.vhost, tt.spec)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.rule, err, tt.want)
		}
		if c := rehop.ClassOf(err); c == rehop.ClassTransient {
			t.Errorf("%s: class %s", tt.rule, c)
		}
	}
}

// The file says which broker wrote it, and the plan is that of this version.
func TestVerifyDefinitionsPlansForTheVersionOfTheFile(t *testing.T) {
	for version, form := range map[string]string{"3.10.25": "x-single-active-consumer=true", "4.3.6": "x-message-ttl=60000"} {
		d, err := VerifyDefinitions([]byte(`{"rabbit_version":"`+version+`","queues":[],"exchanges":[],"bindings":[]}`), "/", WorkQueue{Name: "orders", Waits: delay.Schedule{time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		if s := d.String(); !strings.Contains(s, "+ queue orders.wait.1 (queue-missing)") || !strings.Contains(s, form) || !strings.Contains(s, "? queues and exchanges that are not durable") {
			t.Errorf("on %s:\n%s\nwant %s", version, s, form)
		}
	}
}

// A shard beyond Count may have messages, which no file tells.
func TestVerifyDefinitionsSaysWhatAFileDoesNotTell(t *testing.T) {
	d, err := VerifyDefinitions([]byte(`{"rabbit_version":"4.3.6","queues":[],"exchanges":[],"bindings":[],"policies":[]}`), "/", Shards{Name: "orders", Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(d.String(), `? messages and consumers of shards of "orders" beyond Count`) || d.OK() {
		t.Error(d)
	}
}

// kindsOfPlans are specifications of every kind, by what is particular to them.
func kindsOfPlans() map[string][]Spec {
	shop, bound, waits := Exchange{Name: "shop"}, []Binding{{Exchange: "shop", RoutingKey: "order.#"}}, delay.Schedule{time.Minute, time.Hour}
	return map[string][]Spec{
		"a work queue":         {shop, WorkQueue{Name: "orders", Bindings: bound, Waits: waits}},
		"a classic one":        {shop, WorkQueue{Name: "orders", Type: Classic, Bindings: bound, Waits: waits, NativePriority: true}},
		"republish":            {WorkQueue{Name: "orders ü/#", Engine: EngineRepublish, Waits: waits}},
		"carry":                {WorkQueue{Name: "orders", Engine: EngineCarry, Waits: waits}},
		"one active consumer":  {WorkQueue{Name: "orders", SingleActiveConsumer: true, Waits: waits}},
		"dead letters":         {WorkQueue{Name: "orders"}, DeadLetterQueue{Name: "orders.dlq", Exchange: "letters", MaxAge: time.Hour}},
		"lanes":                {shop, Lanes{Name: "sms", Lanes: []Lane{{Name: "vip"}, {Name: "bulk"}}, Waits: waits, Bindings: bound, OneDeadLetterQueue: true}},
		"shards":               {Shards{Name: "orders", Count: 3, Waits: waits}},
		"delays":               {WorkQueue{Name: "orders"}, Delays{Max: 7 * time.Second, Queues: []string{"orders"}}},
		"a binding by headers": {shop, WorkQueue{Name: "orders", Bindings: []Binding{{Exchange: "shop", Headers: amqp.Table{"x-match": "any", "n": int64(7)}}}}},
	}
}

var oneOfEachForm = []connection.Version{{Major: 3, Minor: 10}, {Major: 4}, {Major: 4, Minor: 3, Patch: 6}}

// What a plan exports is what it wants, on each version: as the file says it itself.
func TestDefinitionsOfAPlanAreAsPlanned(t *testing.T) {
	for rule, specs := range kindsOfPlans() {
		for _, v := range oneOfEachForm {
			plan, err := NewPlan(v, specs...)
			if err != nil {
				t.Fatal(err)
			}
			for _, vhost := range []string{"/", "a \"b\""} {
				file, err := plan.Definitions(vhost)
				if err != nil {
					t.Fatal(err)
				}
				if drift, err := VerifyDefinitions(file, vhost, specs...); err != nil || len(drift.Differences) > 0 {
					t.Errorf("%s on %s: %v\n%s", rule, v, err, drift)
				}
			}
		}
	}
}

// A file whose policies cannot be read tells nothing of the dead letters of a queue of others.
func TestVerifyDefinitionsOfAQueueOfOthers(t *testing.T) {
	policy := func(name, pattern string) string {
		return `{"vhost":"/","name":"` + name + `","pattern":"` + pattern + `","apply-to":"queues","priority":0,"definition":{"dead-letter-exchange":"x"}}`
	}
	higher := strings.NewReplacer("dead-letter-exchange", "queue-leader-locator", `"priority":0`, `"priority":1`).Replace(policy("q", "legacy"))
	for _, tt := range []struct {
		rule, policies string
		missing        bool
		unseen         string
	}{
		{"no policy", "", true, "? queues and exchanges that are not durable"},
		{"a policy", policy("p", "^legacy$"), false, "? queues and exchanges that are not durable"},
		{"a pattern that Go does not have", policy("p", `^(?!amq\\.).*`), false, `? policy "p": its pattern has what`},
		{"such a pattern of a lower priority", policy("p", `^(?!amq\\.).*`) + "," + higher, true, "? queues and exchanges that are not durable"},
		{"two of one priority", strings.Replace(policy("p", "legacy"), "dead-letter-exchange", "alternate-exchange", 1) + "," + policy("q", "legacy"), false, `? policies "p" and "q"`},
	} {
		file := `{"rabbitmq_version":"4.3.6","vhosts":[{"name":"/"}],"exchanges":[],"bindings":[],"policies":[` + tt.policies + `],
			"queues":[{"vhost":"/","name":"legacy","durable":true,"arguments":{"x-queue-type":"quorum"}}]}`
		drift, err := VerifyDefinitions([]byte(file), "/", WorkQueue{Name: "legacy", Existing: true})
		if text := drift.String(); err != nil || strings.Contains(text, "! queue legacy (policy-missing)") != tt.missing || !strings.Contains(text, tt.unseen) {
			t.Errorf("%s: %v\n%s\nwant policy-missing %t, and %s", tt.rule, err, text, tt.missing, tt.unseen)
		}
		if noted := strings.Contains(strings.Join(drift.Plan.Notes, "\n"), "set_policy"); noted != tt.missing {
			t.Errorf("%s: the plan has the policy: %t", tt.rule, noted)
		}
	}
}

func TestVerifyDefinitionsAsNobody(t *testing.T) {
	_, err := VerifyDefinitionsAs([]byte(`{"rabbit_version":"4.3.6","queues":[],"exchanges":[],"bindings":[]}`), "/", "", []Role{RoleConsume}, WorkQueue{Name: "orders"})
	if err == nil || !strings.Contains(err.Error(), "user is empty") || rehop.ClassOf(err) != rehop.ClassBug {
		t.Errorf("%v, want that no user is named", err)
	}
}
