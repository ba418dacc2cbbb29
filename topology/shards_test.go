package topology_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop"
	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/rehoptest"
	"github.com/rehop/rehop/topology"
)

func shards(count int) topology.Shards {
	return topology.Shards{Name: "orders", Count: count, Waits: delay.Schedule{time.Minute}}
}

// The shards were computed by another program, from the text of the doc comment. A change
// would send keys of publishers in other languages to other queues than those of rehop.
func TestTheShardOfAKeyNeverChanges(t *testing.T) {
	counts := []int{2, 4, 8, 16, 100}
	for key, want := range map[string][]int{
		"a":                      {1, 3, 5, 5, 99},
		"customer-17":            {1, 1, 7, 13, 23},
		"customer-18":            {1, 3, 7, 14, 87},
		"order 4711":             {0, 2, 4, 14, 56},
		"Zoë":                    {0, 0, 0, 11, 92},
		"客户":                     {1, 3, 7, 7, 7},
		strings.Repeat("x", 255): {1, 3, 3, 3, 56},
	} {
		for i, count := range counts {
			if got, queue := shards(count).Queue(key), fmt.Sprintf("orders.%02d", want[i]); got != queue {
				t.Errorf("Queue(%.20q) of %d shards is %q, want %q", key, count, got, queue)
			}
		}
		if got := shards(1).Queue(key); got != "orders.00" {
			t.Errorf("Queue(%.20q) of one shard is %q", key, got)
		}
	}
	for _, s := range []topology.Shards{shards(0), shards(-1), shards(101)} {
		if got := s.Queue("a"); got != "" {
			t.Errorf("Queue of %d shards is %q, want none", s.Count, got)
		}
	}
	if got := shards(8).Queue(""); got != "" {
		t.Errorf("Queue of an empty key is %q, want none", got)
	}
}

func TestAGrowthMovesKeysToTheNewShardOnly(t *testing.T) {
	const keys = 20_000
	for count := 1; count < 100; count += 7 {
		moved, of := 0, map[string]int{}
		for i := range keys {
			key := fmt.Sprint("customer-", i)
			before, after := shards(count).Queue(key), shards(count+1).Queue(key)
			of[after]++
			switch {
			case before == after:
			case after != fmt.Sprintf("orders.%02d", count):
				t.Fatalf("from %d to %d shards, key %q moves from %s to %s, which is not the new shard", count, count+1, key, before, after)
			default:
				moved++
			}
		}
		if share := float64(moved) * float64(count+1) / keys; share < 0.8 || share > 1.2 {
			t.Errorf("from %d to %d shards, %d of %d keys move, want one in %d", count, count+1, moved, keys, count+1)
		}
		if len(of) != count+1 {
			t.Errorf("%d of %d shards have keys", len(of), count+1)
		}
	}
}

func TestEveryFaultOfShardsIsNamed(t *testing.T) {
	long := strings.Repeat("x", 228)
	with := func(change func(*topology.Shards)) topology.Shards {
		s := shards(4)
		change(&s)
		return s
	}
	for _, tt := range []struct {
		rule   string
		shards topology.Shards
		want   []string
	}{
		{"nothing", topology.Shards{}, []string{"Shards.Name is empty", "Count is 0, want 1 to 100"}},
		{"too many", shards(101), []string{`Shards "orders": Count is 101, want 1 to 100`}},
		{"less than none", shards(-1), []string{`Shards "orders": Count is -1, want 1 to 100`}},
		{"a long name", with(func(s *topology.Shards) { s.Name = long }), []string{"Shards.Name is 228 bytes long", "want at most 227"}},
		{"a name that makes those of the broker", with(func(s *topology.Shards) { s.Name = "amq" }), []string{`Shards.Name is "amq", want another one`}},
		{"what the shards have in common", with(func(s *topology.Shards) {
			s.Type, s.Engine, s.Waits, s.ConsumerTimeout = "stream", "9", delay.Schedule{-1}, time.Millisecond
		}), []string{`Shards "orders": Type is "stream"`, `Shards "orders": Engine is "9"`, `Shards "orders": Waits: `, `Shards "orders": ConsumerTimeout is 1ms`}},
		{"an engine that the type excludes", with(func(s *topology.Shards) { s.Type, s.Engine = topology.Classic, topology.EngineNack }), []string{`Shards "orders": Engine is nack, which is refused here`}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			_, err := topology.NewPlan(v43, tt.shards)
			if err == nil || rehop.ClassOf(err) != rehop.ClassBug {
				t.Fatalf("NewPlan: %v, want the faults", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("NewPlan: %v, want also %q", err, want)
				}
			}
			if n := len(strings.Split(err.Error(), "\n")); n > len(tt.want) {
				t.Errorf("%d faults are named, want %d: %v", n, len(tt.want), err)
			}
		})
	}
}

func TestShardsHaveOneDeadLetterQueue(t *testing.T) {
	everyVersion(t, func(s *server) {
		spec := shards(3)
		s.declare(&spec) // a pointer is its value
		want := []string{"orders.00", "orders.00.wait.1", "orders.01", "orders.01.wait.1", "orders.02", "orders.02.wait.1", "orders.dlq"}
		if got := slices.Sorted(maps.Keys(s.names())); !slices.Equal(got, want) {
			s.Errorf("queues %q, want %q", got, want)
		}
		s.declare(spec)
		for _, w := range spec.WorkQueues() {
			if r := s.resolve(w); r.DeadLetter.RoutingKey != "orders.dlq" {
				s.Errorf("the letters of %s go to %v", w.Name, r.DeadLetter)
			}
		}
		if err := topology.Delete(s.Context(), s.conn, spec); err != nil {
			s.Error(err)
		}
		if left := s.names(); len(left) > 0 {
			s.Errorf("%v are left", left)
		}
	})
}

// names returns the queues of the broker.
func (s *server) names() map[string]rehoptest.Queue {
	all := map[string]rehoptest.Queue{}
	for _, name := range s.Queues() {
		q, _ := s.Broker.Queue(name)
		all[name] = q
	}
	return all
}

func TestAnotherCountOfShards(t *testing.T) {
	const nobody, ours = "and no consumer: nobody would handle them", "another process consumes"
	for _, tt := range []struct {
		rule         string
		from, to     int
		holds        string // a queue with a message
		read         bool   // shard 03 has a consumer
		refused, say string // "": not refused, nothing said
	}{
		{"grows", 3, 5, "orders.01", false, "", ""},
		{"the same", 5, 5, "orders.04", false, "", ""},
		{"shrinks, all empty", 5, 3, "orders.02", false, "", `"orders.04" of a larger Count is left, empty and without a consumer`},
		{"shrinks, with a message", 5, 3, "orders.04", false, `Shards "orders": Count is 3, and queue "orders.04" of a larger Count has messages (1 in "orders.04") ` + nobody, ""},
		{"shrinks, with a message that waits", 5, 3, "orders.03.wait.1", false, `queue "orders.03" of a larger Count has messages (1 in "orders.03.wait.1") ` + nobody, ""},
		{"an old process starts in a roll-out", 5, 3, "orders.03", true, "", `Count is 3, and ` + ours + ` "orders.03"`},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			everyVersion(t, func(s *server) {
				s.declare(shards(tt.from))
				s.publish(tt.holds)
				if tt.read {
					ch, err := s.raw.Channel()
					if err != nil {
						s.Fatal(err)
					}
					defer ch.Close()
					if _, err := ch.Consume("orders.03", "", false, false, false, false, nil); err != nil {
						s.Fatal(err)
					}
				}
				plan, err := topology.DeclarePlan(s.Context(), s.conn, shards(tt.to))
				if tt.refused == "" && err != nil || tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused) || rehop.ClassOf(err) != rehop.ClassConfiguration) {
					s.Errorf("Declare: %v, want %q", err, tt.refused)
				}
				if drift, err := topology.Verify(s.Context(), s.conn, shards(tt.to)); err != nil || drift.OK() != (tt.refused == "") {
					s.Errorf("Declare is refused: %t, and Verify: %v\n%s", tt.refused != "", err, drift)
				}
				notes := strings.Join(plan.Notes, "\n")
				if tt.say == "" && strings.Contains(notes, "larger Count") || !strings.Contains(notes, tt.say) {
					s.Errorf("Declare notes\n%s\nwant %q", notes, tt.say)
				}
				if _, exists := s.Broker.Queue("orders.02"); !exists {
					s.Error("shard 02 is gone")
				}
			})
		})
	}
}

// A queue of others with the name of a shard of a larger Count. What has no wiring is no shard. By AMQP a work queue of its own
// looks like one, so the error has both remedies.
func TestAQueueNamedAsAShardOfALargerCount(t *testing.T) {
	for _, tt := range []struct {
		rule    string
		declare func(s *server)
		refused string
	}{
		{"a queue of others", func(s *server) { s.rawQueue("orders.03", amqp.Table{"x-queue-type": "classic"}) }, ""},
		{"a work queue of its own", func(s *server) { s.declare(topology.WorkQueue{Name: "orders.03"}) },
			`queue "orders.03" of a larger Count has messages (1 in "orders.03") and no consumer: nobody would handle them; ` +
				"declare and consume the larger Count until they are done, and then the smaller one; or, if it is a work queue of its own, give it or the Shards another name"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			everyVersion(t, func(s *server) {
				s.declare(shards(3))
				tt.declare(s)
				s.publish("orders.03")
				plan, err := topology.DeclarePlan(s.Context(), s.conn, shards(3))
				if tt.refused == "" && err != nil || tt.refused != "" && (err == nil || !strings.HasSuffix(err.Error(), tt.refused)) {
					s.Errorf("Declare: %v, want %q", err, tt.refused)
				}
				if notes := strings.Join(plan.Notes, "\n"); strings.Contains(notes, "larger Count") {
					s.Errorf("Declare notes\n%s\nwant nothing of a larger Count", notes)
				}
				if drift, err := topology.Verify(s.Context(), s.conn, shards(3)); err != nil || drift.OK() != (tt.refused == "") {
					s.Errorf("Declare is refused: %t, and Verify: %v\n%s", tt.refused != "", err, drift)
				}
			})
		})
	}
}

func TestAShardThatIsMissingNamesItsShards(t *testing.T) {
	everyVersion(t, func(s *server) {
		s.declare(shards(2))
		_, err := topology.Resolve(s.Context(), s.conn, shards(3).WorkQueues()[2])
		if want := `queue "orders.02" does not exist: declare Shards "orders" first`; err == nil || !strings.Contains(err.Error(), want) {
			s.Errorf("Resolve: %v, want %q", err, want)
		}
	})
}

// By default the leader of a queue is on the node that its declarer is connected to.
func TestLeadersOfShardsAreSpread(t *testing.T) {
	plan, err := topology.NewPlan(v43, shards(2), topology.WorkQueue{Name: "alone"})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range topology.PlannedQueues(plan) {
		want := any(nil)
		if q.Name == "orders.00" || q.Name == "orders.01" {
			want = "balanced"
		}
		if got := q.Args["x-queue-leader-locator"]; got != want {
			t.Errorf("queue %q is declared with the locator %v, want %v", q.Name, got, want)
		}
	}
}
