package topology

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/management"
)

// asAnswered returns what the management API says of a planned queue.
func asAnswered(t *testing.T, args amqp.Table, definition string) management.Queue {
	t.Helper()
	text, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	decode := func(text string) (m map[string]any) {
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	queueType, _ := args["x-queue-type"].(string)
	return management.Queue{Type: queueType, Arguments: decode(string(text)), Policy: "p", Definition: decode(definition)}
}

func TestWhatPoliciesBreak(t *testing.T) {
	v3, v4 := connection.Version{Major: 3, Minor: 10}, connection.Version{Major: 4, Minor: 3}
	orders := func(t QueueType) WorkQueue {
		return WorkQueue{Name: "orders", Type: t, Waits: delay.Schedule{time.Minute, time.Hour}}
	}
	const work, wait, letters, level, stranded = "orders", "orders.wait.1", "orders.dlq", "rehop.delays.1s.03", "rehop.delays.1s.stranded"
	for _, test := range []struct {
		rule       string
		version    connection.Version
		queueType  QueueType
		queue      string
		definition string
		want       string // in the only fault; "" for none
	}{
		{"a shorter TTL cuts a wait short", v4, Quorum, wait, `{"message-ttl":700}`, "message-ttl to 700ms: messages leave the wait"},
		{"a longer TTL does nothing to a wait", v4, Quorum, wait, `{"message-ttl":60000}`, ""},
		{"a shorter TTL sends round what is carried", v3, Quorum, wait, `{"message-ttl":59999}`, "sent there again"},
		{"a TTL as long as the wait does nothing to what is carried", v3, Quorum, wait, `{"message-ttl":60000}`, ""},
		{"a TTL on classic carried waits", v3, Classic, wait, `{"message-ttl":1}`, "sent there again"},
		{"a TTL on a work queue", v4, Classic, work, `{"message-ttl":1000}`, "go to the dead-letter queue unhandled"},
		{"a TTL on dead letters", v4, Quorum, letters, `{"message-ttl":1000}`, "deletes dead letters"},

		{"a shorter TTL cuts a level short", v4, Quorum, level, `{"message-ttl":7999}`, "message-ttl to 7.999s: delayed messages leave the queue after 7.999s, and not after 8s, and come early"},
		{"a TTL as long as the level does nothing to it", v4, Quorum, level, `{"message-ttl":8000}`, ""},
		{"a TTL on a level of 3.x", v3, Quorum, level, `{"message-ttl":1}`, "come early"},
		{"a TTL on stranded messages", v4, Quorum, stranded, `{"message-ttl":1000}`, "deletes dead letters"},

		{"expires on a level", v4, Quorum, level, `{"expires":60000}`, "deletes the queue"},
		{"expires on a wait", v4, Quorum, wait, `{"expires":60000}`, "expires to 1m0s: the broker deletes the queue"},
		{"expires on a carried wait", v3, Classic, wait, `{"expires":60000}`, "deletes the queue"},
		{"expires on a work queue", v4, Quorum, work, `{"expires":60000}`, "deletes the queue"},
		{"expires on dead letters", v4, Quorum, letters, `{"expires":60000}`, "deletes the queue"},

		{"max-length on a wait of 4.x, which refuses", v4, Quorum, wait, `{"max-length":10}`, "halts the retries"},
		{"max-length with drop-head on a carried wait", v3, Quorum, wait, `{"max-length":10}`, "leave the wait, and are sent there again"},
		{"a max-length beyond that of a carried wait", v3, Quorum, wait, `{"max-length":1000000060000}`, ""},
		{"max-length-bytes on a carried wait", v3, Classic, wait, `{"max-length-bytes":10}`, "leave the wait, and are sent there again"},
		{"max-length with reject-publish on a classic carried wait", v3, Classic, wait, `{"max-length":10,"overflow":"reject-publish"}`, "halts the retries"},
		{"max-length on dead letters", v4, Quorum, letters, `{"max-length":50}`, "deletes the oldest dead letters"},
		{"max-length with reject-publish on dead letters", v4, Quorum, letters, `{"max-length":50,"overflow":"reject-publish"}`, "halts the retries"},
		{"max-length on a work queue with drop-head", v4, Classic, work, `{"max-length-bytes":50}`, "go to the dead-letter queue unhandled"},
		{"max-length on a work queue that refuses", v4, Quorum, work, `{"max-length":50}`, "refuses what is published"},

		{"max-length on a level of 4.x, which refuses", v4, Quorum, level, `{"max-length":10}`, "refuses delayed messages, and holds up"},
		{"max-length with drop-head on a level of 3.x", v3, Quorum, level, `{"max-length":10}`, "leave the queue, and come early"},
		{"max-length with reject-publish on a level of 3.x", v3, Quorum, level, `{"max-length-bytes":10,"overflow":"reject-publish"}`, "from queues with a longer TTL are lost"},

		{"overflow ends at-least-once", v4, Quorum, work, `{"overflow":"drop-head"}`, "ends at-least-once"},
		{"overflow ends at-least-once of a wait", v4, Classic, wait, `{"overflow":"drop-head"}`, "ends at-least-once"},
		{"overflow ends at-least-once of a level", v4, Quorum, level, `{"overflow":"drop-head"}`, "ends at-least-once"},
		{"overflow as declared", v4, Quorum, work, `{"overflow":"reject-publish"}`, ""},
		{"overflow without a limit on 3.x", v3, Quorum, work, `{"overflow":"drop-head"}`, ""},

		{"a lower delivery-limit on a work queue", v4, Quorum, work, `{"delivery-limit":5}`, "whose consumer died that many times"},
		{"a higher delivery-limit on a work queue", v4, Quorum, work, `{"delivery-limit":50}`, ""},
		{"no delivery-limit on a work queue that has one", v4, Quorum, work, `{"delivery-limit":-1}`, ""},
		{"a delivery-limit on dead letters", v4, Quorum, letters, `{"delivery-limit":20}`, "deletes a dead letter"},
		{"no delivery-limit on dead letters", v4, Quorum, letters, `{"delivery-limit":-1}`, ""},
		{"a delivery-limit on a carried wait", v3, Quorum, wait, `{"delivery-limit":20}`, "gave back that many times"},
		{"a delivery-limit on a wait that nobody consumes", v4, Quorum, wait, `{"delivery-limit":20}`, ""},

		{"a dead-letter-exchange loses to the argument", v4, Quorum, work, `{"dead-letter-exchange":"other"}`, ""},
		{"a dead-letter-routing-key ends the waits", v4, Quorum, work, `{"dead-letter-routing-key":"other"}`, "in the first wait"},
		{"a dead-letter-routing-key where the broker moves nothing", v4, Classic, work, `{"dead-letter-routing-key":"other"}`, ""},
		{"a dead-letter-routing-key loses to the argument of a wait", v4, Quorum, wait, `{"dead-letter-routing-key":"other"}`, ""},
		{"a dead-letter-routing-key ends the way through the levels", v4, Quorum, level, `{"dead-letter-routing-key":"other"}`, "are stranded"},
		{"a dead-letter-routing-key on a level of 3.x", v3, Quorum, level, `{"dead-letter-routing-key":"other"}`, "are stranded"},
		{"a dead-letter-exchange loses to the argument of a level", v4, Quorum, level, `{"dead-letter-exchange":"other"}`, ""},
		{"a delivery-limit on a level, which nobody consumes", v4, Quorum, level, `{"delivery-limit":20}`, ""},
		{"at-most-once loses to the argument", v4, Quorum, work, `{"dead-letter-strategy":"at-most-once"}`, ""},
		{"at-least-once on 3.x", v3, Quorum, work, `{"dead-letter-strategy":"at-least-once","overflow":"reject-publish"}`, "comes to a halt"},
		{"at-least-once on 3.x without what it needs", v3, Quorum, work, `{"dead-letter-strategy":"at-least-once"}`, ""},

		{"delayed retries of a carried wait", v4, "carried", wait, `{"delayed-retry-type":"all","delayed-retry-min":1000}`, "does not return to the head"},
		{"delayed retries of a work queue", v4, Quorum, work, `{"delayed-retry-type":"all","delayed-retry-min":1000}`, ""},
		{"delayed retries of a single active consumer", v4, "single", work, `{"delayed-retry-type":"all","delayed-retry-min":1000}`, "later messages of its key overtake it"},
		{"delayed retries of a single active consumer without a time", v4, "single", work, `{"delayed-retry-type":"all"}`, ""},
		{"what has no effect on messages", v4, Quorum, work, `{"queue-leader-locator":"balanced"}`, ""},
		{"a shorter consumer timeout", v4, Quorum, work, `{"consumer-timeout":10000}`, "away from a handler that has it for 10s, and not for 30m0s"},
		{"a shorter consumer timeout of a classic queue before 4.3", connection.Version{Major: 4}, Classic, work, `{"consumer-timeout":10000}`, "away from a handler"},
		{"a classic queue of 4.3 has no consumer timeout", v4, Classic, work, `{"consumer-timeout":10000}`, ""},
		{"a longer consumer timeout", v4, Quorum, work, `{"consumer-timeout":3600000}`, ""},
		{"a shorter consumer timeout of a carried wait", v4, "carried", wait, `{"consumer-timeout":10000}`, "takes messages that wait away"},
		{"a wait with a TTL has no consumers", v4, Quorum, wait, `{"consumer-timeout":10000}`, ""},
		{"consumers that ask for another timeout", v4, "asking", work, `{"consumer-timeout":10000}`, ""},
		{"a queue of 4.0 with an argument, that consumers ask in vain", connection.Version{Major: 4}, "asking", work, `{"consumer-timeout":10000}`, "for 10s, and not for 1h0m0s"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			w := orders(test.queueType)
			if test.queueType == "carried" {
				w.Type, w.Engine = Quorum, EngineCarry
			}
			if test.queueType == "asking" {
				w.Type, w.ConsumerTimeout = Quorum, time.Hour
			}
			if test.queueType == "single" {
				w.Type, w.SingleActiveConsumer = Quorum, true
			}
			plan, err := NewPlan(test.version, w, Delays{Max: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range plan.policed() {
				if q.name != test.queue {
					continue
				}
				i := 0
				for plan.queues[i].Name != q.name {
					i++
				}
				q.broker = asAnswered(t, plan.queues[i].Args, test.definition)
				got := fmt.Sprint(q.faults(test.version))
				if test.want == "" && got != "[]" || !strings.Contains(got, test.want) {
					t.Errorf("%s, want %q", got, test.want)
				}
				return
			}
			t.Fatalf("the plan has no queue %q", test.queue)
		})
	}
}

// What the notes of a plan advise breaks nothing.
func TestTheAdvisedPolicyBreaksNothing(t *testing.T) {
	w := WorkQueue{Name: "orders", Waits: delay.Default(), Engine: EngineRepublish}
	old, err := NewPlan(version3, w)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range old.queues {
		r := ruled{name: q.Name, role: q.role, broker: asAnswered(t, q.Args, `{"dead-letter-strategy":"at-least-once","overflow":"reject-publish","delivery-limit":-1}`)}
		if faults := r.faults(version4); len(faults) > 0 {
			t.Error(faults)
		}
	}
}

func TestAFaultNamesTheOperatorsPolicy(t *testing.T) {
	q := ruled{name: "orders.dlq", role: letterRole, broker: management.Queue{Type: "quorum", Definition: map[string]any{"max-length": json.Number("5")}}}
	for want, policies := range map[string][2]string{
		`policy "mine" sets`:                               {"mine", ""},
		`"orders.dlq": operator policy "theirs" sets`:      {"", "theirs"},
		`policy "mine" with operator policy "theirs" sets`: {"mine", "theirs"},
	} {
		q.broker.Policy, q.broker.OperatorPolicy = policies[0], policies[1]
		if got := fmt.Sprint(q.faults(version4)); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestPoliciesOfExactDelaysAreThoseOfTheirLevels(t *testing.T) {
	for _, version := range []connection.Version{version4, {Major: 4, Minor: 3}} {
		plan, err := NewPlan(version, WorkQueue{Name: "orders"}, Delays{Max: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		r := WorkQueue{Name: "orders"}.route()
		r.Delays = plan.seenDelays()
		var names, want []string
		for _, q := range policed(r) {
			if q.role == levelRole {
				names = append(names, q.name)
			}
		}
		for _, q := range plan.policed() {
			if q.role == levelRole {
				want = append(want, q.name)
			}
		}
		if !slices.Equal(names, want) || len(want) < 2 {
			t.Errorf("%s: policies are asked for of the levels %q, want %q", version, names, want)
		}
	}
}

func TestPoliciesOfLanesAreThoseOfTheirQueues(t *testing.T) {
	l := Lanes{Name: "sms", OneDeadLetterQueue: true, Lanes: []Lane{{Name: "vip"}, {Name: "bulk"}}, Waits: delay.Schedule{time.Minute}}
	var names []string
	for _, r := range l.source().Routes {
		for _, q := range policed(r) {
			names = append(names, q.name)
		}
	}
	if got, want := strings.Join(names, " "), "sms.vip sms.vip.wait.1 sms.dlq sms.bulk sms.bulk.wait.1 sms.dlq"; got != want {
		t.Errorf("policies are asked for of %s, want %s", got, want)
	}
}

// A queue of others loses messages only where its broker has a limit and no exchange for them.
func TestWhatAQueueOfOthersLoses(t *testing.T) {
	v3, v4 := connection.Version{Major: 3, Minor: 10}, connection.Version{Major: 4, Minor: 0}
	for _, tt := range []struct {
		rule                  string
		version               connection.Version
		queueType             QueueType
		arguments, definition string
		want                  string // in the fault; "" for none
	}{
		{"the broker's own limit", v4, Quorum, `{}`, `{}`, "more than 20 times"},
		{"3.x has no limit of its own", v3, Quorum, `{}`, `{}`, ""},
		{"a limit by an argument", v3, Quorum, `{"x-delivery-limit":5}`, `{}`, "more than 5 times"},
		{"a limit by a policy", v3, Quorum, `{}`, `{"delivery-limit":7}`, "more than 7 times"},
		{"the lower limit is the argument's", v4, Quorum, `{"x-delivery-limit":5}`, `{"delivery-limit":7}`, "more than 5 times"},
		{"the lower limit is the policy's", v4, Quorum, `{"x-delivery-limit":9}`, `{"delivery-limit":7}`, "more than 7 times"},
		{"a limit rather than none", v4, Quorum, `{"x-delivery-limit":-1}`, `{"delivery-limit":7}`, "more than 7 times"},
		{"no limit by a policy loses to one", v4, Quorum, `{"x-delivery-limit":9}`, `{"delivery-limit":-1}`, "more than 9 times"},
		{"no limit by an argument", v4, Quorum, `{"x-delivery-limit":-1}`, `{}`, ""},
		{"no limit by a policy", v4, Quorum, `{}`, `{"delivery-limit":-1}`, ""},
		{"an exchange by an argument", v4, Quorum, `{"x-dead-letter-exchange":""}`, `{}`, ""},
		{"an exchange by a policy", v4, Quorum, `{}`, `{"dead-letter-exchange":""}`, ""},
		{"a classic queue has no limit", v4, Classic, `{}`, `{}`, ""},
		{"what else its owner sets is meant", v4, Classic, `{"x-max-length":5}`, `{"message-ttl":1}`, ""},
	} {
		var arguments amqp.Table = asAnswered(t, nil, tt.arguments).Definition
		shown := asAnswered(t, arguments, tt.definition)
		shown.Type = string(tt.queueType)
		faults := ruled{name: "legacy", role: foreignRole, broker: shown}.faults(tt.version)
		switch text := fmt.Sprint(faults); {
		case (tt.want != "") != (len(faults) == 1) || !strings.Contains(text, tt.want):
			t.Errorf("%s: %s, want %q", tt.rule, text, tt.want)
		case tt.want != "" && !strings.Contains(text, "neither its arguments nor a policy set dead-letter-exchange"):
			t.Errorf("%s: %s", tt.rule, text)
		}
	}
}

// Where it is not known which policies apply, nothing is said of what a queue loses.
func TestAQueueOfOthersWhosePoliciesAreNotKnown(t *testing.T) {
	v4 := connection.Version{Major: 4}
	w := WorkQueue{Name: "legacy", Existing: true}
	plan, err := NewPlan(v4, w)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		rule      string
		arguments string
		unsure    string
		codes     string
		unseen    string // in Drift.Unseen; "": it is empty
	}{
		{"they are known", `{}`, "", "policy-missing", ""},
		{"they are not known", `{}`, "no statistics", "", `policies of queue "legacy": no statistics`},
		{"an argument leads to dead letters", `{"x-dead-letter-exchange":""}`, "no statistics", "", ""},
	} {
		have := shown(plan)
		queue := asAnswered(t, asAnswered(t, nil, tt.arguments).Definition, `{}`)
		queue.Type, queue.Unsure = string(Quorum), tt.unsure
		have.parts[part{"queue", w.Name}] = true
		have.queues[w.Name] = management.Form{Name: w.Name, Durable: true, Queue: queue}
		drift, err := compare(v4, []Spec{w}, have)
		if err != nil {
			t.Fatal(err)
		}
		codes := ""
		for _, d := range drift.Differences {
			codes += string(d.Code)
		}
		if unseen := strings.Join(drift.Unseen, "\n"); codes != tt.codes || !strings.Contains(unseen, tt.unseen) || tt.unseen == "" && unseen != "" {
			t.Errorf("%s: want %q and unseen %q, found\n%s", tt.rule, tt.codes, tt.unseen, drift)
		}
		if noted := strings.Contains(fmt.Sprint(drift.Plan.Notes), "set_policy"); noted != (tt.codes != "") || !drift.OK() {
			t.Errorf("%s: noted %t, OK %t; a program starts", tt.rule, noted, drift.OK())
		}
	}
}

// The owner of a queue gets a policy that changes no other queue, and takes nothing away from this one.
func TestThePolicyForAQueueOfOthers(t *testing.T) {
	v3, v4 := connection.Version{Major: 3, Minor: 10}, connection.Version{Major: 4}
	none, limited := management.Queue{Type: "quorum"}, management.Queue{Type: "quorum", Arguments: map[string]any{"x-delivery-limit": json.Number("5")}}
	ruled := management.Queue{Type: "quorum", Policy: "all", Definition: map[string]any{"max-length": json.Number("7"), "delivery-limit": json.Number("3")}}
	operated := management.Queue{Type: "quorum", OperatorPolicy: "op", Definition: map[string]any{"max-length": json.Number("7")}}
	const set, exchange = "rabbitmqctl set_policy --apply-to queues", `"dead-letter-exchange":"legacy.rehop.unrouted"`
	const own, strict = `'rehop legacy' '^legacy$' '{` + exchange, `,"dead-letter-strategy":"at-least-once"`
	for _, tt := range []struct {
		rule    string
		shown   management.Queue
		known   bool
		version connection.Version
		want    string
	}{
		{"it has none on 4.x, which has a limit", none, true, v4, "set a policy: " + set + " " + own + strict + `,"overflow":"reject-publish"}'`},
		{"it has a limit on 3.x", limited, true, v3, "set a policy: " + set + " " + own + "}'"},
		{"nothing is known of it on 3.x", management.Queue{}, false, v3, "take its entries too, and set a higher --priority: " + set + " " + own + `,"delivery-limit":20}'`},
		{"nothing is known of it on 4.x", management.Queue{}, false, v4, "take its entries too, and set a higher --priority: " + set + " " + own + strict + `,"overflow":"reject-publish"}'`},
		{"it has one of other queues too", ruled, true, v4, `the entries of policy "all" and these, and a higher --priority (1 if that policy has 0): ` + set + " --priority 1 " + own + strict +
			`,"delivery-limit":3,"max-length":7,"overflow":"reject-publish"}'`},
		{"it has an operator's alone", operated, true, v4, "set a policy: " + set + " " + own + strict + `,"overflow":"reject-publish"}'`},
	} {
		if got := (WorkQueue{Name: "legacy"}).letterAdvice("/", tt.shown, tt.known, tt.version); !strings.HasSuffix(got, tt.want) {
			t.Errorf("%s: %s\nwant %s", tt.rule, got, tt.want)
		}
	}
}
