package topology_test

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/topology"
)

var (
	v310 = connection.Version{Major: 3, Minor: 10, Patch: 8}
	v40  = connection.Version{Major: 4, Patch: 5}
	v43  = connection.Version{Major: 4, Minor: 3, Patch: 6}
)

func waits() delay.Schedule { return delay.Fixed(time.Second, 2) }

func TestEngineIsChosenFromQueueTypeAndVersion(t *testing.T) {
	for _, tt := range []struct {
		rule    string
		queue   topology.WorkQueue
		version connection.Version
		want    topology.Engine
		refused string
	}{
		{"quorum on 4.0: nack", topology.WorkQueue{}, v40, topology.EngineNack, ""},
		{"quorum on 4.3: nack", topology.WorkQueue{}, v43, topology.EngineNack, ""},
		{"classic with priorities on 4.3: republish", topology.WorkQueue{Type: topology.Classic, NativePriority: true}, v43, topology.EngineRepublish, ""},
		{"quorum on 3.10: carry", topology.WorkQueue{}, v310, topology.EngineCarry, ""},
		{"classic on 3.10: carry", topology.WorkQueue{Type: topology.Classic}, v310, topology.EngineCarry, ""},
		{"classic with priorities on 4.0: carry", topology.WorkQueue{Type: topology.Classic, NativePriority: true}, v40, topology.EngineCarry, ""},
		{"a queue of others on 3.10: carry", topology.WorkQueue{Existing: true}, v310, topology.EngineCarry, ""},
		{"carry asked for", topology.WorkQueue{Engine: topology.EngineCarry}, v43, topology.EngineCarry, ""},
		{"republish asked for on 3.10", topology.WorkQueue{Engine: topology.EngineRepublish}, v310, topology.EngineRepublish, ""},
		{"a queue of others on 4.3: republish", topology.WorkQueue{Existing: true}, v43, topology.EngineRepublish, ""},
		{"nack refused on a queue of others", topology.WorkQueue{Existing: true, Engine: topology.EngineNack}, v43, "", "declared by others"},
		{"classic on 4.3: republish", topology.WorkQueue{Type: topology.Classic}, v43, topology.EngineRepublish, ""},
		{"republish asked for", topology.WorkQueue{Engine: topology.EngineRepublish}, v43, topology.EngineRepublish, ""},
		{"nack asked for and possible", topology.WorkQueue{Engine: topology.EngineNack}, v43, topology.EngineNack, ""},
		{"nack refused on 3.x", topology.WorkQueue{Engine: topology.EngineNack}, v310, "", "broker 3.10.8 cannot dead-letter at-least-once"},
		{"nack refused on classic", topology.WorkQueue{Engine: topology.EngineNack, Type: topology.Classic}, v43, "", "a classic queue's dead letters are not confirmed"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			tt.queue.Name, tt.queue.Waits = "orders", waits()
			plan, err := topology.NewPlan(tt.version, tt.queue)
			if tt.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tt.refused) {
					t.Fatalf("Plan: %v, want an error with %q", err, tt.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := plan.Engines[0]; got.Engine != tt.want || got.Queue != "orders" || got.Why == "" {
				t.Errorf("engine %+v, want %s with a reason", got, tt.want)
			}
		})
	}
}

func TestPriorityIsRefusedWhereItWouldNotWork(t *testing.T) {
	for _, tt := range []struct {
		rule    string
		queue   topology.WorkQueue
		version connection.Version
		refused string
	}{
		{"quorum on 4.3", topology.WorkQueue{Waits: waits()}, v43, ""},
		{"classic on 3.10", topology.WorkQueue{Type: topology.Classic, Waits: waits()}, v310, ""},
		{"quorum on 3.10 ignores it", topology.WorkQueue{}, v310, "it ignores priorities"},
		{"quorum on 4.0 spoils waits", topology.WorkQueue{Waits: waits()}, v40, "holds back expired ones"},
		{"quorum on 4.0 without waits", topology.WorkQueue{}, v40, ""},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			tt.queue.Name, tt.queue.NativePriority = "orders", true
			plan, err := topology.NewPlan(tt.version, tt.queue)
			switch {
			case tt.refused == "" && err != nil:
				t.Fatal(err)
			case tt.refused == "" && len(plan.Notes) == 0:
				t.Error("the plan does not say what the priority will do")
			case tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused)):
				t.Errorf("Plan: %v, want an error with %q", err, tt.refused)
			}
		})
	}
}

func TestArgumentsByVersionAndType(t *testing.T) {
	for _, tt := range []struct {
		rule  string
		spec  topology.Spec
		v     connection.Version
		queue string
		want  amqp.Table
	}{
		{"quorum work queue on 4.x", topology.WorkQueue{Name: "q"}, v43, "q", amqp.Table{
			"x-queue-type": "quorum", "x-delivery-limit": int64(20), "x-dead-letter-exchange": "q.rehop.dlx",
			"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}},
		{"quorum work queue on 3.x", topology.WorkQueue{Name: "q"}, v310, "q", amqp.Table{
			"x-queue-type": "quorum", "x-delivery-limit": int64(20), "x-dead-letter-exchange": "q.rehop.dlx"}},
		{"classic work queue", topology.WorkQueue{Name: "q", Type: topology.Classic}, v43, "q", amqp.Table{
			"x-queue-type": "classic", "x-dead-letter-exchange": "q.rehop.dlx"}},
		{"classic work queue with priority", topology.WorkQueue{Name: "q", Type: topology.Classic, NativePriority: true}, v43, "q", amqp.Table{
			"x-queue-type": "classic", "x-dead-letter-exchange": "q.rehop.dlx", "x-max-priority": int64(9)}},
		{"single active consumer", topology.WorkQueue{Name: "q", Type: topology.Classic, SingleActiveConsumer: true}, v310, "q", amqp.Table{
			"x-queue-type": "classic", "x-dead-letter-exchange": "q.rehop.dlx", "x-single-active-consumer": true}},
		{"consumer timeout before 4.3", topology.WorkQueue{Name: "q", Type: topology.Classic, ConsumerTimeout: time.Hour}, v40, "q", amqp.Table{
			"x-queue-type": "classic", "x-dead-letter-exchange": "q.rehop.dlx", "x-consumer-timeout": int64(3_600_000)}},
		{"consumer timeout on 4.3: consumers ask for it", topology.WorkQueue{Name: "q", ConsumerTimeout: time.Hour}, v43, "q", amqp.Table{
			"x-queue-type": "quorum", "x-delivery-limit": int64(20), "x-dead-letter-exchange": "q.rehop.dlx",
			"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}},
		{"consumer timeout of a classic queue on 4.3: there is none", topology.WorkQueue{Name: "q", Type: topology.Classic, ConsumerTimeout: time.Hour}, v43, "q", amqp.Table{
			"x-queue-type": "classic", "x-dead-letter-exchange": "q.rehop.dlx"}},
		{"arguments of lanes", topology.Lanes{Name: "q", Lanes: []topology.Lane{{Name: "a"}, {Name: "b"}}, Type: topology.Classic, SingleActiveConsumer: true, ConsumerTimeout: time.Hour}, v40, "q.b", amqp.Table{
			"x-queue-type": "classic", "x-dead-letter-exchange": "q.b.rehop.dlx", "x-single-active-consumer": true, "x-consumer-timeout": int64(3_600_000)}},
		{"wait on 4.x", topology.WorkQueue{Name: "q", Waits: delay.Schedule{time.Minute, 50 * 24 * time.Hour}}, v43, "q.wait.2", amqp.Table{
			"x-queue-type": "quorum", "x-message-ttl": int64(4_320_000_000), "x-dead-letter-exchange": "q.rehop.return", "x-dead-letter-routing-key": "q@2",
			"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}},
		{"wait before a classic work queue on 4.x: quorum", topology.WorkQueue{Name: "q", Type: topology.Classic, Waits: delay.Schedule{time.Minute}}, v40, "q.wait.1", amqp.Table{
			"x-queue-type": "quorum", "x-message-ttl": int64(60_000), "x-dead-letter-exchange": "q.rehop.return", "x-dead-letter-routing-key": "q@1",
			"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}},
		{"dead-letter queue of a classic work queue on 4.x: quorum", topology.WorkQueue{Name: "q", Type: topology.Classic}, v40, "q.dlq", amqp.Table{
			"x-queue-type": "quorum", "x-delivery-limit": int64(-1)}},
		{"dead-letter queue spelt out as classic", topology.DeadLetterQueue{Name: "d", Type: topology.Classic}, v43, "d", amqp.Table{"x-queue-type": "classic"}},
		{"carried wait, quorum: never at its delivery limit", topology.WorkQueue{Name: "q", Waits: waits(), Engine: topology.EngineCarry}, v310, "q.wait.1", amqp.Table{
			"x-queue-type": "quorum", "x-delivery-limit": int64(1_000_000_000), "x-single-active-consumer": true, "x-max-length": int64(1_000_000_001_000),
			"x-dead-letter-exchange": "q.rehop.return", "x-dead-letter-routing-key": "q@1"}},
		{"carried wait, classic on 3.x", topology.WorkQueue{Name: "q", Type: topology.Classic, Waits: waits(), Engine: topology.EngineCarry}, v310, "q.wait.2", amqp.Table{
			"x-queue-type": "classic", "x-single-active-consumer": true, "x-max-length": int64(1_000_000_001_000), "x-dead-letter-exchange": "q.rehop.return", "x-dead-letter-routing-key": "q@2"}},
		{"carried wait of a classic work queue on 4.x", topology.WorkQueue{Name: "q", Type: topology.Classic, Waits: waits(), Engine: topology.EngineCarry}, v43, "q.wait.2", amqp.Table{
			"x-queue-type": "quorum", "x-delivery-limit": int64(1_000_000_000), "x-single-active-consumer": true, "x-max-length": int64(1_000_000_001_000),
			"x-dead-letter-exchange": "q.rehop.return", "x-dead-letter-routing-key": "q@2"}},
		{"carried wait of messages with priorities on 4.0: in order", topology.WorkQueue{Name: "q", Type: topology.Classic, NativePriority: true, Waits: waits()}, v40, "q.wait.1", amqp.Table{
			"x-queue-type": "classic", "x-single-active-consumer": true, "x-max-length": int64(1_000_000_001_000), "x-dead-letter-exchange": "q.rehop.return", "x-dead-letter-routing-key": "q@1"}},
		{"dead-letter queue on 4.x is never emptied by looking", topology.WorkQueue{Name: "q"}, v43, "q.dlq", amqp.Table{
			"x-queue-type": "quorum", "x-delivery-limit": int64(-1)}},
		{"dead-letter queue on 3.x, where -1 means at once", topology.WorkQueue{Name: "q"}, v310, "q.dlq", amqp.Table{"x-queue-type": "quorum"}},
		{"dead-letter queue bounded by age", topology.DeadLetterQueue{Name: "d", MaxAge: time.Hour}, v310, "d", amqp.Table{
			"x-queue-type": "quorum", "x-message-ttl": int64(3_600_000)}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			plan, err := topology.NewPlan(tt.v, tt.spec)
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range topology.PlannedQueues(plan) {
				if q.Name == tt.queue {
					if !equal(q.Args, tt.want) {
						t.Errorf("arguments of %s:\n got %v\nwant %v", q.Name, q.Args, tt.want)
					}
					return
				}
			}
			t.Errorf("queue %s is not in the plan:\n%s", tt.queue, plan)
		})
	}
}

func equal(a, b amqp.Table) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

func TestFaultsAreReportedAllAtOnceWithFieldValueAndBound(t *testing.T) {
	long := strings.Repeat("n", 256)
	_, err := topology.NewPlan(v43,
		topology.Exchange{Name: long},
		topology.WorkQueue{
			Name:           "amq.orders",
			Type:           "stream",
			Bindings:       []topology.Binding{{RoutingKey: long}},
			Waits:          delay.Schedule{-5 * time.Second},
			Engine:         "9",
			NativePriority: true,
			Existing:       true,
		},
		topology.WorkQueue{},
		topology.DeadLetterQueue{Name: "d", MaxAge: -1},
		nil,
	)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"Exchange.Name is 256 bytes", "at most 255",
		`WorkQueue.Name is "amq.orders"`, "belong to the broker",
		`Type is "stream", want "quorum" or "classic"`,
		"Bindings[0].Exchange is empty", "Bindings[0].RoutingKey is 256 bytes",
		"wait 1 is -5s", "Engine is \"9\"", "Bindings has 1 bindings, want none with Existing", "NativePriority is true, want false with Existing",
		"WorkQueue.Name is empty", "MaxAge is -1ns", "specification 5 is nil",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in:\n%v", want, err)
		}
	}
}

func TestNameLeavesRoomForTheNamesDerivedFromIt(t *testing.T) {
	q := topology.WorkQueue{Name: strings.Repeat("n", 230), Waits: delay.Fixed(time.Second, delay.MaxWaits)}
	plan, err := topology.NewPlan(v43, q)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range topology.PlannedQueues(plan) {
		if len(part.Name) > 255 {
			t.Errorf("%d bytes: %s", len(part.Name), part.Name)
		}
	}
	q.Name += "n"
	if _, err := topology.NewPlan(v43, q); err == nil || !strings.Contains(err.Error(), "want at most 230") {
		t.Errorf("231 bytes: %v", err)
	}
}

func TestContradictionsBetweenSpecifications(t *testing.T) {
	for _, tt := range []struct {
		rule  string
		specs []topology.Spec
		want  string // in the error; empty: none
	}{
		{"the same exchange twice is one", []topology.Spec{topology.Exchange{Name: "shop"}, topology.Exchange{Name: "shop", Kind: "topic"}}, ""},
		{"an exchange of two kinds", []topology.Spec{topology.Exchange{Name: "shop"}, topology.Exchange{Name: "shop", Kind: "fanout"}}, "specified twice, as topic and as fanout"},
		{"a queue twice", []topology.Spec{topology.WorkQueue{Name: "q"}, topology.WorkQueue{Name: "q"}}, `queue "q" is specified twice`},
		{"a work queue's own dead-letter queue, spelt out", []topology.Spec{topology.WorkQueue{Name: "q"}, topology.DeadLetterQueue{Name: "q.dlq", MaxAge: time.Hour}}, ""},
		{"a dead-letter queue that is a work queue", []topology.Spec{topology.WorkQueue{Name: "q"}, topology.WorkQueue{Name: "q.dlq", Waits: waits()}}, ""},
		{"nothing", nil, "nothing to declare"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			plan, err := topology.NewPlan(v43, tt.specs...)
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				seen := map[string]bool{}
				for _, q := range topology.PlannedQueues(plan) {
					if seen[q.Name] {
						t.Errorf("queue %s is planned twice", q.Name)
					}
					seen[q.Name] = true
				}
			} else if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("NewPlan: %v, want %q", err, tt.want)
			}
		})
	}
}

// A person pastes the command of a note, in which a line break is a part of a name.
func TestACommandOfANoteIsReadByAShell(t *testing.T) {
	p, err := topology.NewPlan(v43, topology.WorkQueue{Name: "a\nb", Existing: true, Waits: delay.Schedule{time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"\nengine    a\\nb: republish", "\nbind      a\\nb.rehop.return ", "rabbitmqctl set_policy --apply-to queues \"$(printf 'rehop a\\nb')\" \"$(printf '^a\\nb$')\" '{\"dead-letter-exchange\":\"a\\nb.rehop.unrouted\""} {
		if !strings.Contains(p.String(), text) {
			t.Errorf("%s\nwant %q in it", p, text)
		}
	}
}

func TestPlanIsOnePartALine(t *testing.T) {
	p, err := topology.NewPlan(connection.Version{Major: 4, Minor: 3}, topology.Exchange{Name: "sh\nop"}, topology.WorkQueue{Name: "a\nb", Bindings: []topology.Binding{{Exchange: "sh\nop", RoutingKey: "k\nl"}}},
		topology.Lanes{Name: "c\nd", Lanes: []topology.Lane{{Name: "vip"}, {Name: "bulk"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{`exchange  sh\nop (topic)`, `queue     a\nb.dlq`, `bind      sh\nop --k\nl--> a\nb`, `engine    a\nb: `, `note      c\nd: lanes, highest first: c\nd.vip`} {
		if !strings.Contains(p.String(), line) {
			t.Errorf("%s\nwant %s", p, line)
		}
	}
}
