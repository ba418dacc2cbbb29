package topology_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/connection"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/producer"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

func lanes(names ...string) topology.Lanes {
	l := topology.Lanes{Name: "sms", Waits: delay.Schedule{time.Minute}}
	for _, name := range names {
		l.Lanes = append(l.Lanes, topology.Lane{Name: name})
	}
	return l
}

func TestEveryFaultOfLanesIsNamed(t *testing.T) {
	long := strings.Repeat("x", 230)
	for _, tt := range []struct {
		rule  string
		lanes topology.Lanes
		want  []string
	}{
		{"nothing", topology.Lanes{}, []string{"Lanes.Name is empty", "Lanes.Lanes has length 0, want 2 to 9"}},
		{"too many", lanes("1", "2", "3", "4", "5", "6", "7", "8", "9", "10"), []string{"Lanes.Lanes has length 10, want 2 to 9"}},
		{"names", lanes("a", "a", "", long, "\xff"), []string{`Lanes "sms": Lanes[1].Name is "a", want another one: Lanes[0] has it`, `Lanes "sms": Lanes[2].Name is empty`,
			`Lanes "sms": Lanes[3].Name is 230 bytes long ("xxxxxxxxxxxxxxxxxxxx"...), want at most 226`, `Lanes "sms": Lanes[4].Name is "\xff", which is not valid UTF-8`}},
		{"a name that is too long for any lane", topology.Lanes{Name: long, Lanes: []topology.Lane{{Name: "a"}, {Name: "b"}}}, []string{"Lanes.Name is 230 bytes long"}},
		{"a name that makes those of the broker", topology.Lanes{Name: "amq", Lanes: []topology.Lane{{Name: "a"}, {Name: "b"}}}, []string{`Lanes.Name is "amq", want another one`}},
		{"a lane named as the queue of all letters", topology.Lanes{Name: "sms", OneDeadLetterQueue: true, Lanes: []topology.Lane{{Name: "a"}, {Name: "dlq"}}}, []string{`Lanes[1].Name is "dlq"`}},
		{"shares", topology.Lanes{Name: "sms", Lanes: []topology.Lane{{Name: "a", Share: 6}, {Name: "b"}, {Name: "c", Share: 1001}, {Name: "d", Share: -1}}},
			[]string{"Lanes[1].Share is 0", "Lanes[2].Share is 1001, want 1 to 1000", "Lanes[3].Share is -1"}},
		{"bindings", topology.Lanes{Name: "sms", Bindings: []topology.Binding{{}}, Lanes: []topology.Lane{{Name: "a", Bindings: []topology.Binding{{}}}, {Name: "b"}}},
			[]string{`"sms": Bindings[0].Exchange is empty`, `"sms": Lanes[0].Bindings[0].Exchange is empty`}},
		{"what the lanes share", topology.Lanes{Name: "sms", Type: "stream", Engine: "9", Waits: delay.Schedule{-1}, Lanes: []topology.Lane{{Name: "a"}, {Name: "b"}}},
			[]string{`Type is "stream"`, "Engine is \"9\"", `Lanes "sms": Waits: `}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			_, err := topology.NewPlan(v43, tt.lanes)
			if err == nil || rehop.ClassOf(err) != rehop.ClassBug {
				t.Fatalf("Plan: %v, want the faults", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Plan: %v, want also %q", err, want)
				}
			}
			if n := len(strings.Split(err.Error(), "\n")); n > len(tt.want) {
				t.Errorf("%d faults are named, want %d: %v", n, len(tt.want), err)
			}
		})
	}
}

// Each lane is a work queue, of which the user has written nothing.
func TestFaultsThatOnlyThePlanOfLanesShowsNameTheirFields(t *testing.T) {
	word, long := lanes("a", "#"), lanes("a", strings.Repeat("x", 220))
	deep := lanes("a", "b")
	deep.Bindings = []topology.Binding{{Exchange: "shop", RoutingKey: strings.Repeat("x", 230)}}
	deep.Lanes[1].Bindings = deep.Bindings
	byNack := lanes("a", "b")
	byNack.Type, byNack.Engine = topology.Classic, topology.EngineNack
	for _, tt := range []struct {
		rule  string
		lanes topology.Lanes
		want  []string
	}{
		{"a lane that nothing can be delayed to", word, []string{`Lanes "sms": Lanes[1].Name is "#": its queue is "sms.#": nothing can be delayed`}},
		{"a lane with a name that is too long for delays", long, []string{`Lanes "sms": Lanes[1].Name is "xxxxxxx`, "its queue is 224 bytes long"}},
		{"bindings that are too long for delays", deep, []string{`Lanes "sms": Lanes[1].Bindings[0]: Exchange "shop"`, `Lanes "sms": Bindings[0]: Exchange "shop"`}},
		{"an engine that the type excludes", byNack, []string{`Lanes "sms": Engine is nack, which is refused here`}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			_, err := topology.NewPlan(v43, topology.Exchange{Name: "shop"}, topology.Delays{}, tt.lanes)
			if err == nil || rehop.ClassOf(err) != rehop.ClassBug {
				t.Fatalf("NewPlan: %v, want the faults", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("NewPlan: %v, want also %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "WorkQueue") {
				t.Errorf("NewPlan: %v, which names a WorkQueue", err)
			}
			if n := strings.Count(err.Error(), "topology: "); tt.rule == "an engine that the type excludes" && n != 1 {
				t.Errorf("NewPlan names it %d times, want once: %v", n, err)
			}
		})
	}
}

func TestThePlanOfLanesSaysWhereEachPriorityGoes(t *testing.T) {
	for _, tt := range []struct {
		n    int
		want string // the lane of each priority, 1 first
	}{
		{2, "222211111"}, {3, "332211111"}, {4, "443322111"}, {5, "543322111"}, {6, "654432211"}, {7, "765432211"}, {8, "876543211"}, {9, "987654321"},
	} {
		var names []string
		for i := range tt.n {
			names = append(names, fmt.Sprint(i+1))
		}
		plan, err := topology.NewPlan(v310, lanes(names...))
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 9)
		for _, b := range topology.PlannedBindings(plan) {
			if p, ok := b.Args["x-rehop-priority"].(int64); ok {
				got[p-1] = strings.TrimPrefix(b.Queue, "sms.")[0]
			}
		}
		if string(got) != tt.want {
			t.Errorf("%d lanes: priorities 1 to 9 lead to lanes %s, want %s", tt.n, got, tt.want)
		}
	}
	plan, err := topology.NewPlan(v310, lanes("vip", "normal", "bulk"))
	want := "sms: lanes, highest first: sms.vip (priority 5 to 9), sms.normal (priority 3 to 4 and none), sms.bulk (priority 1 to 2); consumed strictly"
	if err != nil || !strings.Contains(plan.String(), want) {
		t.Errorf("the plan does not say %q: %v\n%s", want, err, plan)
	}
	shared := lanes("vip", "bulk")
	shared.Lanes[0].Share, shared.Lanes[1].Share = 6, 1
	plan, err = topology.NewPlan(v310, shared)
	want = "sms.vip (priority 5 to 9, share 6), sms.bulk (priority 1 to 4 and none, share 1); consumed by shares"
	if err != nil || !strings.Contains(plan.String(), want) {
		t.Errorf("the plan does not say %q: %v\n%s", want, err, plan)
	}
}

// Lanes of one queue of letters, as they are declared in the tests below.
func declaredLanes(s *server, kind topology.QueueType, oneDLQ bool) topology.Lanes {
	l := lanes("vip", "normal", "bulk")
	l.Type, l.OneDeadLetterQueue = kind, oneDLQ
	l.Bindings = []topology.Binding{{Exchange: "shop", RoutingKey: "order.#"}}
	l.Lanes[2].Bindings = []topology.Binding{{Exchange: "shop", RoutingKey: "campaign.#"}}
	if err := topology.Declare(s.Context(), s.conn, topology.Exchange{Name: "shop"}, l); err != nil {
		s.Fatal(err)
	}
	return l
}

func TestAMessageGoesToOneLane(t *testing.T) {
	for _, version := range []string{"3.10", "4.0", "4.3"} {
		for _, kind := range []topology.QueueType{topology.Quorum, topology.Classic} {
			t.Run(version+" "+string(kind), func(t *testing.T) {
				s := start(t, version)
				l := declaredLanes(s, kind, false)
				publisher, err := producer.New(s.conn, producer.Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = publisher.Close() }()
				for _, tt := range []struct {
					rule string
					m    producer.Message
					want string
				}{
					{"by its priority", producer.Message{Exchange: "shop", RoutingKey: "order.paid", Priority: 9}, "vip"},
					{"of the least one of a lane", producer.Message{Exchange: "shop", RoutingKey: "order.paid", Priority: 5}, "vip"},
					{"normal", producer.Message{Exchange: "shop", RoutingKey: "order.paid", Priority: 4}, "normal"},
					{"low", producer.Message{Exchange: "shop", RoutingKey: "order.paid", Priority: 1}, "bulk"},
					{"without a priority", producer.Message{Exchange: "shop", RoutingKey: "order.paid"}, "normal"},
					{"with a header of its own", producer.Message{Exchange: "shop", RoutingKey: "order.paid", Headers: amqp.Table{"x-rehop-priority": 9}}, "normal"},
					{"by the exchange of the lanes", producer.Message{Exchange: l.Exchange(), Priority: 7}, "vip"},
					{"by a binding of its lane, whatever its priority", producer.Message{Exchange: "shop", RoutingKey: "campaign.june", Priority: 9}, "bulk"},
					{"by name", producer.Message{RoutingKey: "sms.vip", Priority: 1}, "vip"},
				} {
					if _, err := publisher.Publish(t.Context(), tt.m); err != nil {
						t.Fatalf("%s: %v", tt.rule, err)
					}
					for _, w := range l.WorkQueues() {
						q, _ := s.Queue(w.Name)
						if n := len(q.Ready); n > 1 || n == 1 != (w.Name == "sms."+tt.want) {
							t.Errorf("a message %s: %d in %s, want it in %s", tt.rule, n, w.Name, tt.want)
						}
						s.purge(w.Name)
					}
				}
			})
		}
	}
}

func (s *server) purge(queue string) {
	s.Helper()
	ch, err := s.raw.Channel()
	if err == nil {
		_, err = ch.QueuePurge(queue, false)
	}
	if err == nil {
		err = ch.Close()
	}
	if err != nil {
		s.Fatal(err)
	}
}

func TestLanesAreDeletedAsAWhole(t *testing.T) {
	for _, oneDLQ := range []bool{false, true} {
		t.Run(fmt.Sprintf("one dead-letter queue: %t", oneDLQ), func(t *testing.T) {
			s := start(t, "4.3")
			l := declaredLanes(s, topology.Quorum, oneDLQ)
			declaredLanes(s, topology.Quorum, oneDLQ) // again
			plan, err := topology.NewPlan(v43, l)
			if err != nil {
				t.Fatal(err)
			}
			letters := 0
			for _, q := range topology.PlannedQueues(plan) {
				if _, ok := s.Queue(q.Name); !ok {
					t.Errorf("queue %s is planned and not declared", q.Name)
				}
				if strings.HasSuffix(q.Name, ".dlq") {
					letters++
				}
			}
			if want := map[bool]int{false: 3, true: 1}[oneDLQ]; letters != want {
				t.Errorf("%d dead-letter queues, want %d", letters, want)
			}
			if _, err := s.Publish(rehoptest.Message{RoutingKey: "sms.bulk"}); err != nil {
				t.Fatal(err)
			}
			if err := topology.Delete(t.Context(), s.conn, l); !errors.Is(err, topology.ErrInUse) || !strings.Contains(err.Error(), `"sms.bulk"`) {
				t.Errorf("Delete with a message in a lane: %v, want ErrInUse that names it", err)
			}
			s.purge("sms.bulk")
			if err := topology.Delete(t.Context(), s.conn, l, topology.Exchange{Name: "shop"}); err != nil {
				t.Error(err)
			}
			for _, q := range topology.PlannedQueues(plan) {
				if _, ok := s.Queue(q.Name); ok {
					t.Errorf("queue %s is left", q.Name)
				}
			}
		})
	}
}

func TestLanesHaveARouteForEachLane(t *testing.T) {
	s := start(t, "4.3")
	l := declaredLanes(s, topology.Quorum, true)
	source, err := route.Of(l)
	if err != nil || source.Lanes != "sms" || !source.Strict || len(source.Routes) != 3 {
		t.Fatalf("the source is %+v, %v", source, err)
	}
	if alone, err := route.Of(l.WorkQueues()[0]); err != nil || alone.Lanes != "" || len(alone.Routes) != 1 {
		t.Errorf("one lane alone is %+v, %v", alone, err)
	}
	var letters []string
	for i, known := range source.Routes {
		if known.Queue != l.WorkQueues()[i].Name || known.Lane != l.Lanes[i].Name {
			t.Errorf("lane %d is queue %q, lane %q", i, known.Queue, known.Lane)
		}
		if r, err := known.Broker.Resolve(t.Context(), s.conn); err != nil {
			t.Error(err)
		} else {
			letters = append(letters, r.DeadLetter.RoutingKey)
		}
	}
	if !slices.Equal(letters, []string{"sms.dlq", "sms.dlq", "sms.dlq"}) {
		t.Errorf("dead letters go to %v", letters)
	}
}

func TestLanesThatHaveChangedAreRefused(t *testing.T) {
	oneQueue := lanes("vip", "normal", "bulk")
	oneQueue.OneDeadLetterQueue = true
	for _, version := range []string{"3.10", "4.0", "4.3"} {
		for _, tt := range []struct {
			rule  string
			then  topology.Lanes
			again bool
		}{
			{"the same", lanes("vip", "normal", "bulk"), true},
			{"another order", lanes("normal", "vip", "bulk"), false},
			{"one more", lanes("vip", "normal", "bulk", "rest"), false},
			{"one less", lanes("vip", "bulk"), false},
			{"one dead-letter queue", oneQueue, false},
		} {
			t.Run(version+" "+tt.rule, func(t *testing.T) {
				s := start(t, version)
				s.declare(lanes("vip", "normal", "bulk"))
				before := s.Queues()
				err := topology.Declare(t.Context(), s.conn, tt.then)
				var conflict *topology.ConflictError
				if tt.again != (err == nil) || !tt.again && (!errors.As(err, &conflict) || conflict.Name != "sms.lanes" || !strings.Contains(err.Error(), "two places")) {
					t.Fatalf("Declare: %v", err)
				}
				if after := s.Queues(); !slices.Equal(after, before) {
					t.Errorf("refused, it has declared queues: %v, before %v", after, before)
				}
				source, err := route.Of(tt.then)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range source.Routes { // a consumer of lanes that nobody has declared
					_, err := r.Broker.Resolve(t.Context(), s.conn)
					if tt.again != (err == nil) || !tt.again && (!errors.As(err, &conflict) || conflict.Name != "sms.lanes" || rehop.ClassOf(err) == rehop.ClassTransient) {
						t.Errorf("lane %s: Resolve: %v", r.Lane, err)
					}
				}
				if letters, _ := s.Publish(rehoptest.Message{Exchange: "sms.vip.rehop.unrouted"}); letters != 1 {
					t.Errorf("a letter of the lane vip is in %d queues", letters)
				}
				for priority := 1; priority <= 9; priority++ {
					m := rehoptest.Message{Exchange: "sms.lanes", Publishing: amqp.Publishing{Headers: amqp.Table{"x-rehop-priority": int64(priority)}}}
					if n, err := s.Publish(m); n != 1 || err != nil {
						t.Errorf("a message of priority %d is in %d lanes, %v", priority, n, err)
					}
				}
			})
		}
	}
}

// What goes from exchange to exchange counts as routed, even where the last one has
// no queue.
func TestADelayedMessageWhoseLaneIsGoneIsStranded(t *testing.T) {
	for _, version := range []string{"3.10", "4.0", "4.3"} {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, version)
				shop, orders := topology.Exchange{Name: "shop"}, topology.WorkQueue{Name: "orders"}
				l := lanes("vip", "normal")
				l.Bindings = []topology.Binding{{Exchange: "shop", RoutingKey: "sms.#"}}
				delays := topology.Delays{}
				s.declare(delays, shop, l, orders)
				p, err := producer.New(s.conn, producer.Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				publish := func(m producer.Message) {
					m.Delay = 2 * time.Second
					if _, err := p.Publish(t.Context(), m); err != nil {
						t.Fatal(err)
					}
				}
				for range 40 {
					publish(producer.Message{Exchange: "shop", RoutingKey: "sms.new"})
				}
				publish(producer.Message{Exchange: "shop", RoutingKey: "sms.new", Priority: 9})
				s.DeleteQueue("sms.normal")
				publish(producer.Message{RoutingKey: "orders"})
				time.Sleep(10 * time.Second)
				for queue, want := range map[string]int{"sms.vip": 1, "orders": 1, delays.Stranded().Name: 40} {
					if q, _ := s.Queue(queue); len(q.Ready) != want {
						t.Errorf("%s has %d messages, want %d", queue, len(q.Ready), want)
					}
				}
			})
		})
	}
}

func TestLanesAreDeletedWithWhatDelaysLeadThrough(t *testing.T) {
	for _, tt := range []struct {
		rule  string
		grain time.Duration
		same  bool // the Conn that deletes has declared
		give  bool // the Delays, to Delete
		left  bool
	}{
		{"the default grain", 0, false, false, false},
		{"the finest grain", 10 * time.Millisecond, false, false, false},
		{"a grain that divides a second", 125 * time.Millisecond, false, false, false},
		{"another grain that the Conn has declared", 30 * time.Millisecond, true, false, false},
		{"another grain that is given", 30 * time.Millisecond, false, true, false},
		{"another grain that nothing tells", 30 * time.Millisecond, false, false, true},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			s := start(t, "4.3")
			l, delays := lanes("vip", "normal"), topology.Delays{Grain: tt.grain}
			l.Bindings = []topology.Binding{{Exchange: "shop", RoutingKey: "sms.#"}}
			s.declare(topology.Exchange{Name: "shop"}, delays, l)
			conn := s.conn
			if !tt.same {
				conn = s.connect(connection.Config{})
			}
			specs := []topology.Spec{l}
			if tt.give {
				specs = append(specs, delays)
			}
			if err := topology.Delete(t.Context(), conn, specs...); err != nil {
				t.Error(err)
			}
			due := fmt.Sprintf("sms.lanes.due.%v", cmp.Or(tt.grain, time.Second))
			for _, name := range []string{due, due + ".unrouted"} {
				if left := s.DeleteExchange(name); left != tt.left {
					t.Errorf("exchange %s is left: %t, want %t", name, left, tt.left)
				}
			}
		})
	}
}
