package topology_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rehop/rehop/delay"
	"github.com/rehop/rehop/internal/route"
	"github.com/rehop/rehop/topology"
)

func TestConflictSaysWhatDiffersAndWhatToDo(t *testing.T) {
	everyVersion(t, func(s *server) {
		s.declare(topology.WorkQueue{Name: "typed", Type: topology.Classic})
		classic, others := lanes("a", "b"), lanes("a", "b")
		classic.Type, others.Name = topology.Classic, "theirs"
		s.declare(classic)
		s.rawQueue("theirs.a", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(route.DeliveryLimit), "x-dead-letter-exchange": "theirs.letters"})
		s.rawQueue("theirs", amqp.Table{"x-queue-type": "quorum", "x-max-length": int64(5)})
		s.declare(topology.DeadLetterQueue{Name: "letters", MaxAge: time.Hour})
		s.declare(topology.Exchange{Name: "shop"})
		for _, tt := range []struct {
			rule                       string
			spec                       topology.Spec
			argument, want, have, says string
		}{
			{"another queue type", topology.WorkQueue{Name: "typed"}, "x-queue-type", "quorum", "classic", `set WorkQueue.Type to "classic"; or, to have type quorum, stop what publishes to "typed" and to the exchanges that it is bound to, let its consumers empty it and its waits`},
			{"lanes of another queue type", lanes("a", "b"), "x-queue-type", "quorum", "classic", `set Lanes.Type to "classic"`},
			{"a lane's queue that others have declared", others, "x-dead-letter-exchange", "theirs.a.rehop.dlx", "theirs.letters", `stop what publishes to "theirs.a"`},
			{"single active consumer", topology.WorkQueue{Name: "typed", Type: topology.Classic, SingleActiveConsumer: true}, "x-single-active-consumer", "true", "none", `delete_queue typed`},
			{"a queue of others", topology.WorkQueue{Name: "theirs"}, "x-dead-letter-exchange", "theirs.rehop.dlx", "none", "set WorkQueue.Existing"},
			{"another age of letters", topology.DeadLetterQueue{Name: "letters", MaxAge: time.Minute}, "x-message-ttl", "1m0s", "1h0m0s", "send its letters back (rehop dlq send --all letters), or take them out (rehop dlq drop --all --copy letters.jsonl letters) until rehop dlq import letters letters.jsonl brings them back; " +
				`wait until it is empty (rabbitmqctl list_queues name messages: 0 for "letters", twice, 10 s apart); then delete it (rabbitmqctl delete_queue letters)`},
			{"another kind of exchange", topology.Exchange{Name: "shop", Kind: "fanout"}, "type", "fanout", "topic", "use the kind it has"},
		} {
			err := topology.Declare(s.Context(), s.conn, tt.spec)
			var c *topology.ConflictError
			if !errors.As(err, &c) {
				s.Errorf("%s: %v, want a *ConflictError", tt.rule, err)
				continue
			}
			if c.Argument != tt.argument || c.Want != tt.want || c.Have != tt.have || !strings.Contains(c.Advice, tt.says) {
				s.Errorf("%s: %+v; want %s, wanted %s, found %s, and %q", tt.rule, *c, tt.argument, tt.want, tt.have, tt.says)
			}
			if !strings.Contains(err.Error(), "exists with another "+c.Argument) || errors.Unwrap(c) == nil {
				s.Errorf("%s: %v", tt.rule, err)
			}
		}
	})
}

// The classic waits and letters that an earlier version declared before a classic
// work queue.
func TestPartsOfEarlierForms(t *testing.T) {
	s := start(t, "4.3")
	w := orders(waiting(time.Minute), func(w *topology.WorkQueue) { w.Bindings, w.Type = nil, topology.Classic })
	s.rawQueue("orders.wait.1", amqp.Table{"x-queue-type": "classic", "x-message-ttl": int64(60_000),
		"x-dead-letter-exchange": "orders.rehop.return", "x-dead-letter-routing-key": "orders@1"})
	s.rawQueue("orders.dlq", amqp.Table{"x-queue-type": "classic"})
	plan := s.declare(w)
	if got := plan.Engines[0].Waits; got[0] != "orders.wait.1.1m" || len(plan.Notes) != 1 || !strings.Contains(plan.Notes[0], "x-queue-type classic") {
		s.Errorf("the wait is %v, notes %q; want a quorum queue beside the classic one, and that it is said", got, plan.Notes)
	}
	if r := s.resolve(w); topology.WaitsAt(r)[0] != "orders.wait.1.1m" {
		s.Errorf("the wait is at %v", topology.WaitsAt(r))
	}
}

// Queues that a broker of 3.x was given, which has been upgraded since.
func TestUpgradedBroker(t *testing.T) {
	for _, tt := range []struct {
		rule   string
		engine topology.Engine // on 3.x
		want   topology.Engine
		wait   string
	}{
		{"carry goes on", topology.EngineCarry, topology.EngineCarry, "orders.wait.1"},
		{"republish has waits that lose nothing", topology.EngineRepublish, topology.EngineRepublish, "orders.wait.1.1m"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			s := start(t, "4.0")
			w := orders(waiting(time.Minute, time.Hour), func(w *topology.WorkQueue) { w.Bindings, w.Engine = nil, tt.engine })
			old, err := topology.NewPlan(v310, w)
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range topology.PlannedQueues(old) {
				s.rawQueue(q.Name, q.Args)
			}
			w.Engine = topology.EngineAuto
			for range 2 {
				plan := s.declare(w)
				if e := plan.Engines[0]; e.Engine != tt.want || e.Waits[0] != tt.wait {
					t.Errorf("%+v, want %s with the wait %s", e, tt.want, tt.wait)
				}
				if notes := strings.Join(plan.Notes, "\n"); !strings.Contains(notes, "rabbitmqctl set_policy") || !strings.Contains(notes, "a delivery limit of 20 applies") {
					t.Errorf("notes %q, want what to do about the work queue and the dead letters", plan.Notes)
				}
			}
			if r := s.resolve(w); topology.Engine(r.Engine) != tt.want || topology.WaitsAt(r)[0] != tt.wait {
				t.Errorf("engine %s, waits at %v", r.Engine, topology.WaitsAt(r))
			}
		})
	}
}

// A node of 3.13 beside one of 4.0 that has declared the queue.
func TestFormOfALaterNodeIsAccepted(t *testing.T) {
	s := start(t, "3.10")
	w := orders(waiting(time.Minute), func(w *topology.WorkQueue) { w.Bindings = nil })
	later, err := topology.NewPlan(v40, w)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range topology.PlannedQueues(later) {
		s.rawQueue(q.Name, q.Args)
	}
	plan := s.declare(w)
	if e := plan.Engines[0]; e.Engine != topology.EngineRepublish || e.Waits[0] != "orders.wait.1" {
		t.Errorf("%+v, want republish with the wait that exists", e)
	}
}

// Whoever consumes carries all there is, also for a process with a longer
// schedule that has died.
func TestCarriedWaits(t *testing.T) {
	everyVersion(t, func(s *server) {
		long := orders(func(w *topology.WorkQueue) { w.Bindings, w.Engine = nil, topology.EngineCarry })
		short := long
		short.Waits = long.Waits[:2]
		s.declare(short)
		if got := s.resolve(short).Carried; len(got) != 2 {
			s.Errorf("carried are %v, want two waits", got)
		}
		s.declare(long)
		for _, w := range []topology.WorkQueue{short, long} {
			r := s.resolve(w)
			if got, want := r.Carried, []string{"orders.wait.1", "orders.wait.2", "orders.wait.3", "orders.wait.4"}; !slices.Equal(queuesOf(got), want) {
				s.Errorf("with %d waits, carried are %v, want %v", len(w.Waits), got, want)
			}
			if r.Engine != route.Carry || len(topology.WaitsAt(r)) != len(w.Waits) {
				s.Errorf("engine %s, waits at %v", r.Engine, topology.WaitsAt(r))
			}
		}
		q, _ := s.Queue("orders.wait.1")
		for _, unwanted := range []string{"x-message-ttl", "x-max-priority"} {
			if v, has := q.Arguments[unwanted]; has {
				s.Errorf("a carried wait has %s %v", unwanted, v)
			}
		}
	})
}

// A queue that has the name of a wait, and another form, is of somebody else: nothing of it is carried.
func TestAStrangersQueueWithTheNameOfAWaitIsNotCarried(t *testing.T) {
	everyVersion(t, func(s *server) {
		short := orders(waiting(time.Minute), func(w *topology.WorkQueue) { w.Bindings, w.Engine = nil, topology.EngineCarry })
		long := short
		long.Waits = delay.Schedule{time.Minute, 5 * time.Minute}
		s.declare(long)
		ours := []route.CarriedWait{{Queue: "orders.wait.1", Number: 1, For: time.Minute}, {Queue: "orders.wait.2", Number: 2, For: 5 * time.Minute}}
		for rule, args := range map[string]amqp.Table{
			"plain":                              {"x-queue-type": "classic"},
			"with a single active consumer":      {"x-queue-type": "quorum", "x-single-active-consumer": true},
			"a work queue of its own":            {"x-queue-type": "quorum", "x-single-active-consumer": true, "x-dead-letter-exchange": "orders.wait.3.rehop.dlx"},
			"with letters of their own":          {"x-queue-type": "classic", "x-single-active-consumer": true, "x-dead-letter-exchange": "theirs"},
			"a timed wait of an earlier program": {"x-queue-type": "classic", "x-message-ttl": int64(60_000), "x-dead-letter-exchange": "orders.rehop.return", "x-dead-letter-routing-key": "orders@3"},
		} {
			s.rawQueue("orders.wait.3", args)
			if got := s.resolve(short).Carried; !slices.Equal(got, ours) {
				s.Errorf("%s: carried are %v, want %v", rule, got, ours)
			}
			s.deleteQueue("orders.wait.3")
		}
	})
}

func queuesOf(waits []route.CarriedWait) (names []string) {
	for _, w := range waits {
		names = append(names, w.Queue)
	}
	return names
}

// Each version's waits have queues of their own, and a version carries those of
// the others before it that it finds.
func TestCarriedWaitsThatChange(t *testing.T) {
	everyVersion(t, func(s *server) {
		first := orders(waiting(40*time.Second, time.Minute), func(w *topology.WorkQueue) { w.Bindings, w.Engine = nil, topology.EngineCarry })
		second, third := first, first
		second.Waits = delay.Schedule{time.Second, time.Minute}
		third.Waits = delay.Schedule{5 * time.Second, time.Minute}
		for range 2 {
			for _, tt := range []struct {
				w     topology.WorkQueue
				at    string
				carry []route.CarriedWait
			}{
				{first, "orders.wait.1", []route.CarriedWait{{Queue: "orders.wait.1", Number: 1, For: 40 * time.Second}}},
				{second, "orders.wait.1.2", []route.CarriedWait{{Queue: "orders.wait.1", Number: 1, For: 40 * time.Second}, {Queue: "orders.wait.1.2", Number: 1, For: time.Second}}},
				{third, "orders.wait.1.3", []route.CarriedWait{{Queue: "orders.wait.1", Number: 1, For: 40 * time.Second}, {Queue: "orders.wait.1.2", Number: 1, For: time.Second},
					{Queue: "orders.wait.1.3", Number: 1, For: 5 * time.Second}}},
			} {
				plan := s.declare(tt.w)
				if got := plan.Engines[0].Waits; !slices.Equal(got, []string{tt.at, "orders.wait.2"}) {
					s.Errorf("%v waits in %v, want %s for the first wait", tt.w.Waits, got, tt.at)
				}
				r := s.resolve(tt.w)
				want := append(tt.carry, route.CarriedWait{Queue: "orders.wait.2", Number: 2, For: time.Minute})
				if got := r.Carried; !slices.Equal(got, want) || topology.WaitsAt(r)[0] != tt.at {
					s.Errorf("%v carries %v and waits at %v; want %v", tt.w.Waits, got, topology.WaitsAt(r), want)
				}
			}
		}
		if err := topology.Delete(s.Context(), s.conn, first); err != nil {
			s.Error(err)
		}
		if left := s.Queues(); len(left) > 0 {
			s.Errorf("Delete left %v", left)
		}
	})
}

// A queue that an earlier version declared does not tell its wait.
func TestACarriedWaitThatDoesNotTellItsLength(t *testing.T) {
	s := start(t, "3.10")
	w := orders(waiting(time.Minute), func(w *topology.WorkQueue) { w.Bindings = nil })
	s.rawQueue("orders.wait.1", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(1_000_000_000), "x-single-active-consumer": true,
		"x-dead-letter-exchange": "orders.rehop.return", "x-dead-letter-routing-key": "orders@1"})
	s.declare(w)
	want := []route.CarriedWait{{Queue: "orders.wait.1", Number: 1}, {Queue: "orders.wait.1.2", Number: 1, For: time.Minute}}
	if got := s.resolve(w).Carried; !slices.Equal(got, want) {
		s.Errorf("carried are %v, want %v", got, want)
	}
}

func TestMixedFormsAreAConflict(t *testing.T) {
	s := start(t, "4.3")
	w := orders(waiting(time.Minute, time.Hour), func(w *topology.WorkQueue) { w.Bindings = nil })
	carry := w
	carry.Engine = topology.EngineCarry
	s.declare(carry)
	s.deleteQueue("orders.wait.1")
	err := topology.Declare(s.Context(), s.conn, w)
	var c *topology.ConflictError
	if !errors.As(err, &c) || c.Name != "orders.wait.2" || !strings.Contains(c.Advice, `delete_queue orders.wait.2`) {
		t.Errorf("Declare: %v, want a conflict about the second wait", err)
	}
}

func TestQueueOfOthers(t *testing.T) {
	everyVersion(t, func(s *server) {
		w := orders(func(w *topology.WorkQueue) { w.Bindings, w.Existing = nil, true })
		s.wantError("not there", topology.Declare(s.Context(), s.conn, w), `queue "orders" does not exist`)
		args := amqp.Table{"x-queue-type": "classic", "x-max-length": int64(1000)}
		s.rawQueue("orders", args)
		for range 2 {
			s.declare(w)
		}
		if q, _ := s.Queue("orders"); len(q.Arguments) != len(args) {
			s.Errorf("the queue has the arguments %v, want %v as before", q.Arguments, args)
		}
		r := s.resolve(w)
		if r.DeliveryLimit != 0 || r.Kind != route.Work || !r.Existing || r.NackLandsOn("k") != 0 || !r.Returned("orders.rehop.return") {
			s.Errorf("route %+v: a nack on it may delete", r)
		}
		s.on(func(ch *amqp.Channel) error {
			return ch.Publish("orders.rehop.return", "orders@1", true, false, amqp.Publishing{})
		})
		if q, _ := s.Queue("orders"); len(q.Ready) != 1 {
			s.Error("what ends its wait does not come back to the queue")
		}
		if _, ok := s.Queue("orders.dlq"); !ok {
			s.Error("there is no dead-letter queue")
		}
		s.deleteQueue("orders")
		if err := topology.Delete(s.Context(), s.conn, w); err != nil {
			s.Error(err)
		}
	})
}

// A schedule without waits takes over those of another schedule, by whichever engine it asks for: they are
// carried only if they have no TTL.
func TestAScheduleWithoutWaitsCarriesOnlyWhatHasNoTTL(t *testing.T) {
	everyVersion(t, func(s *server) {
		for _, engine := range []topology.Engine{topology.EngineRepublish, topology.EngineCarry} {
			before := topology.WorkQueue{Name: "by " + string(engine), Engine: engine, Waits: delay.Schedule{time.Minute, time.Hour}}
			s.declare(before)
			for _, now := range []topology.Engine{topology.EngineAuto, topology.EngineCarry} {
				want := 0
				if engine == topology.EngineCarry {
					want = len(before.Waits)
				}
				if r := s.resolve(topology.WorkQueue{Name: before.Name, Engine: now}); len(r.Carried) != want {
					s.Errorf("waits %s, and the engine is %q now: carries %v, want %d", before.Name, now, r.Carried, want)
				}
			}
		}
	})
}
